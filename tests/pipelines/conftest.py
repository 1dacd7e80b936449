"""Files of pipelines, and topics that they read and write."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving import drivers
from tests.proving.sessions import Topic

from streamfactory.spark.checkpoints import (
    Place,
    SinkCommit,
    ledger_folder,
    read_commits,
)
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.together import Pipelines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.outcomes import Batch, Outcome

SINK = '[[sinks]]\nstream = "out"\n'


@dataclass
class Works:
    """A folder with streams of a catalogue, and pipelines over them."""

    folder: Path
    topics: dict[str, Topic] = field(default_factory=dict)
    """By name."""
    batches: list[Batch] = field(default_factory=list)
    """That all runs reported."""

    def topic(
        self, name: str, partitions: int = 2, options: dict[str, str] | None = None
    ) -> Topic:
        """A topic of `file`, and a stream of its name in the catalogue."""
        given = {"stream.file.partitions": str(partitions)} | (options or {})
        topic = Topic(self.folder, name, **given)
        streams = self.folder / "configs" / "streams"
        streams.mkdir(parents=True, exist_ok=True)
        body = {"name": name, "properties": topic.options}
        (streams / f"{name}.json").write_text(json.dumps(body))
        self.topics[name] = topic
        return topic

    def pipeline(self, text: str, file: str = "p", **options: str | int) -> Path:
        """A file; where it does not say, it reads ``in`` from its beginning."""
        path = self.folder / f"{file}.toml"
        given = {key.replace("_", "."): value for key, value in options.items()}
        top = {"checkpoint": f"checkpoints/{file}", **given}
        lines = [f'"{key}" = {json.dumps(value)}' for key, value in top.items()]
        if "[source]" not in text and "sources" not in text:
            text = f'[source]\nstream = "in"\nstartingOffsets = "earliest"\n{text}'
        path.write_text("\n".join([*lines, text]))
        return path

    def query_id(self, name: str) -> str:
        """Of the query behind a checkpoint."""
        path = self.folder / "checkpoints" / name / "1" / "metadata"
        found: str = json.loads(path.read_text())["id"]
        return found

    def commits(self, name: str, batch: int) -> list[SinkCommit]:
        """What a batch of the first generation wrote."""
        place = Place.of(str(self.folder / "checkpoints" / name))
        return read_commits(ledger_folder(place, 1), batch)

    def forget_commit(self, name: str = "p") -> None:
        """As when the driver died between the sinks' commits and its own."""
        assert drivers.forget_commit(self.folder / "checkpoints" / name / "1")

    def run(
        self, spark: SparkSession, *paths: Path, **overrides: Any
    ) -> Sequence[Outcome]:
        """Run them to their end."""
        pipelines = Pipelines(paths, Overrides(**overrides))
        return pipelines.run(spark, on_batch=self.batches.append)

    def succeed(self, spark: SparkSession, *paths: Path, **overrides: Any) -> Outcome:
        """Run them to their end, which is a good one; answers that of the first."""
        outcomes = self.run(spark, *paths, **overrides)
        assert [one.failure for one in outcomes] == [None] * len(paths)
        return outcomes[0]


@pytest.fixture
def works(tmp_path: Path) -> Works:
    return Works(tmp_path)
