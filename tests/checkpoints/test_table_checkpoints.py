"""Checkpoints of pipelines that read a table: where a run starts, without Spark."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.conftest import QueryFolder
from tests.pipelines.reverse_proving import ChangingTable

from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.spark.tasks import read
from streamfactory.spi import IncarnationChanged
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.microbatch import BatchOffset, Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source


class Runs:
    """Runs of one pipeline, with batches planned and recorded as Spark does.

    Args:
        folder: Of the checkpoint.
        table: Folder of the table.
    """

    def __init__(self, folder: Path, table: Path) -> None:
        self._folder = folder
        self.options = {"streamType": "delta", "stream.delta.path": str(table)}
        self._queries: dict[str, QueryFolder] = {}
        self.why = ""

    def run(self, **overrides: Any) -> int:
        """Read all that is available; returns the number of rows."""
        with ExitStack() as stack:
            opened = PipelineCheckpoint.open(
                str(self._folder), "p", {"input": self._source(stack)}, **overrides
            )
            self.why = opened.why
            start = {} if opened.start is None else opened.start["input"]
            source = self._source(stack, **start)
            planner = Planner(source)
            query = self._queries.setdefault(
                opened.folder, QueryFolder(Path(opened.folder))
            )
            if query.batches:
                before = BatchOffset.parse(query.batches[-1][0])
            else:
                before = planner.initial()
            end = planner.latest(before, limited=False)
            if end == before:
                return 0
            query.begin()
            query.write([end.to_text()])
            query.commit()
            return sum(
                batch.num_rows
                for one in planner.ranges(before, end)
                for batch in read(source.config, one, source.schema)
            )

    def _source(self, stack: ExitStack, **options: str) -> Source:
        definition = StreamDefinition.of("table", {**self.options, **options})
        source = Source(configure(definition, default_manager(), use="spark"))
        stack.callback(source.close)
        return source


def made(table: ChangingTable) -> int:
    return sum(map(len, table.changes.values()))


@pytest.fixture
def table(tmp_path: Path) -> ChangingTable:
    return ChangingTable(tmp_path / "lake", 1)


@pytest.fixture
def runs(tmp_path: Path, table: ChangingTable) -> Runs:
    return Runs(tmp_path / "checkpoint", tmp_path / "lake")


def test_a_pipeline_reads_the_snapshot_and_then_each_change_once(
    runs: Runs, table: ChangingTable
) -> None:
    assert runs.run() == made(table)
    assert runs.run() == 0
    before = made(table)
    for _ in range(5):
        table.change()
    assert runs.run() == made(table) - before
    assert runs.why == "continues from the checkpoint"
    assert runs.run() == 0


def test_overrides_of_a_table_apply_once(runs: Runs, table: ChangingTable) -> None:
    runs.run()
    for _ in range(3):
        table.change()
    assert runs.run(reset="latest") == 0
    before = made(table)
    while made(table) == before:
        table.change()
    assert runs.run(reset="latest") == made(table) - before
    assert runs.why == "--reset was applied before: continues from the checkpoint"
    # By the options of the stream: a snapshot again.
    assert runs.run(ignore="monday") == len(table.rows)
    assert runs.run(ignore="monday") == 0
    assert runs.run(ignore="tuesday") == len(table.rows)


def test_the_checkpoint_of_another_table_is_refused(
    runs: Runs, table: ChangingTable, tmp_path: Path
) -> None:
    assert runs.run() == made(table)
    ChangingTable(tmp_path / "other", 2)
    runs.options["stream.delta.path"] = str(tmp_path / "other")
    with pytest.raises(IncarnationChanged, match="expected id"):
        runs.run()
