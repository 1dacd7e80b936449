"""Tables written by connectors of Spark, in an environment that has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from tests.pipelines.connector_driver import SETTINGS
from tests.proving.drivers import Driver, forget_commit
from tests.proving.java import java_or_skip
from tests.proving.sessions import Topic
from tests.proving.skipping import skip_or_fail
from tests.proving.tiers import sample
from tests.tables.writers.building import Unavailable, environment

from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MODULE: Final = "tests.pipelines.connector_driver"
ROWS: Final = 60
"""Of an epoch of the source."""
PIPELINE: Final = """
checkpoint = "checkpoint"
[source]
stream = "in.json"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 60
[[tables]]
name = "delta"
format = "delta"
path = "delta"
[[tables]]
name = "iceberg"
format = "iceberg"
path = "lake.db.rows"
[spark]
"""
HERE: Final = "tests/pipelines/test_table_connectors.py"
KILLS: Final = (
    ("before", "iceberg", 1),
    ("after", "delta", 0),
    ("after", "iceberg", 0),
    ("before", "delta", 0),
    ("after", "iceberg", 1),
)


@pytest.fixture(scope="module")
def python() -> str:
    """The Python of an environment with PySpark 4.1, for which there are connectors."""
    java_or_skip()
    try:
        return str(environment("connectors"))
    except Unavailable as reason:
        skip_or_fail(str(reason))


@pytest.mark.timeout(1800)
@pytest.mark.long("starts five Sparks of its own")
@pytest.mark.parametrize(
    "kills",
    sample(
        [KILLS[:3], KILLS[3:]],
        "three more Sparks of its own, killed at other steps",
        shown_by=f"{HERE}::test_tables_have_each_row_once_where_a_pipeline_is_killed",
    ),
    ids=["first", "more"],
)
def test_tables_have_each_row_once_where_a_pipeline_is_killed(
    python: str, tmp_path: Path, kills: Sequence[tuple[str, str, int]]
) -> None:
    source = Topic(tmp_path, "in")
    body = {"name": "in", "properties": source.options}
    (tmp_path / "in.json").write_text(json.dumps(body))
    settings = "".join(f'"{key}" = "{value}"\n' for key, value in SETTINGS.items())
    (tmp_path / "p.toml").write_text(PIPELINE + settings)
    Driver(tmp_path, MODULE, "create", python=python).succeed()
    rows = 0
    for number, (where, table, passes) in enumerate(kills):
        for _ in range(2):
            source.put(pa.table({"id": pa.arange(rows, rows + ROWS)}))
            rows += ROWS
        run = Driver(tmp_path, MODULE, "run", where, table, passes, python=python)
        assert run.was_killed(), run.log[-4000:]
        if number % 2:
            forget_commit(tmp_path / "checkpoint" / "1")
    run = Driver(tmp_path, MODULE, "run", "never", "", 0, python=python)
    run.succeed()
    for kind, path in (("delta", "delta"), ("iceberg", "warehouse/db/rows")):
        properties = {"streamType": kind, f"stream.{kind}.path": str(tmp_path / path)}
        with open_stream(properties) as stream:
            found = stream.to_reader().read_all().column("id").to_pylist()
        assert sorted(found) == [*range(rows)], kind
