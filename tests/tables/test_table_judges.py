"""Other engines return the rows that were written, also as of earlier commits.

One table of each format has all that is written: partitions, nested columns that were
added, changes by key, deletes, merged files, and all rows replaced.
"""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl
import pyarrow as pa
import pytest
from tests.proving.drivers import Driver
from tests.proving.java import java_or_skip
from tests.proving.skipping import skip_or_fail
from tests.tables.judging import FIRST, SELECT
from tests.tables.lakes import DeltaLake, IcebergLake
from tests.tables.writers.building import Unavailable, environment

from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tables.lakes import Lake

NOON: Final = datetime(2024, 5, 1, 12, 0, 0, 500_000, tzinfo=UTC)
FIRST_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("seen", pa.timestamp("us", "UTC")),
    ]
)
WHOLE_SCHEMA: Final = FIRST_SCHEMA.append(
    pa.field("o", pa.struct([("x", pa.int64()), ("l", pa.list_(pa.int64()))]))
)


class Version(NamedTuple):
    """What a table has as of a commit."""

    kind: str
    path: str
    """Of the table; of Iceberg, of its metadata."""
    version: int
    rows: list[tuple[Any, ...]]
    """Columns of `SELECT`, or of `FIRST`."""
    is_whole: bool


def row(number: int, city: str | None, o: Any = None) -> dict[str, Any]:
    price = Decimal(number) / 4
    return {"id": number, "p": city, "price": price, "seen": NOON, "o": o}


def history(lake: Lake) -> list[Version]:
    """Write a table, and return what it had after each step."""
    parts = {"delta": "p", "iceberg": "bucket[4](id),p"}[lake.kind]
    lake.config |= {
        f"stream.{lake.kind}.partition.by": parts,
        "producer.key.columns": "id",
        "schema.contract": "evolve",
    }
    state = {n: row(n, ["rome", "oslo", None][n % 3]) for n in range(30)}
    versions = []

    def put(rows: list[dict[str, Any]], schema: pa.Schema) -> None:
        sink.put(pa.Table.from_pylist(rows, schema))

    def look(*, is_whole: bool) -> None:
        versions.append(version_of(lake, [*state.values()], is_whole=is_whole))

    with lake.sink() as sink:
        put([*state.values()], FIRST_SCHEMA)
        look(is_whole=False)
        changes = [row(3, "oslo"), row(30, "bern")]
        put(changes, FIRST_SCHEMA)
        state |= {one["id"]: one for one in changes}
        sink.put([{"id": n, "_change": "delete"} for n in (4, 5)])
        del state[4], state[5]
        look(is_whole=False)
        more = [row(31, "bern", {"x": 1, "l": [1, None]}), row(6, "rome", {"x": 2})]
        put(more, WHOLE_SCHEMA)
        state |= {one["id"]: one for one in more}
        look(is_whole=True)
        with open_admin(lake.config) as admin:
            admin.compact()
        look(is_whole=True)
        replaced = [row(1, "last")]
        with (
            contextlib.closing(sink.writer(WHOLE_SCHEMA)) as writer,
            contextlib.closing(sink.committer()) as committer,
        ):
            writer.write(pa.Table.from_pylist(replaced, WHOLE_SCHEMA))
            committer.commit(0, [writer.commit()], replace_all=True)
        state.clear()
        state |= {1: replaced[0]}
        look(is_whole=True)
    return versions


def version_of(lake: Lake, state: list[dict[str, Any]], *, is_whole: bool) -> Version:
    rows = []
    for one in sorted(state, key=lambda one: one["id"]):
        o = one["o"] or {}
        price, at = f"{one['price']:.2f}", one["seen"].isoformat(" ")
        nested = [o.get("x"), o.get("l")] if is_whole else []
        rows.append((one["id"], one["p"], price, at, *nested))
    if isinstance(lake, DeltaLake):
        return Version("delta", str(lake.path), lake.table().version(), rows, is_whole)
    assert isinstance(lake, IcebergLake)
    with lake.table() as table:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        path = table.metadata_location.removeprefix("file://")
        return Version("iceberg", path, snapshot.snapshot_id, rows, is_whole)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Version]:
    folder = tmp_path_factory.mktemp("judged")
    lakes = (DeltaLake(folder / "delta"), IcebergLake(folder / "iceberg"))
    return [one for lake in lakes for one in history(lake)]


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows as `Version` has them: times with a zone, and to the microsecond."""
    found = []
    for number, city, price, at, *nested in rows:
        time = datetime.fromisoformat(at)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        found.append((number, city, price, time.isoformat(" "), *nested))
    return found


def by_library(one: Version) -> list[tuple[Any, ...]]:
    """By deltalake and pyiceberg."""
    from deltalake import DeltaTable
    from pyiceberg.table import StaticTable

    if one.kind == "delta":
        found = DeltaTable(one.path, version=one.version).to_pyarrow_table()
    else:
        table = StaticTable.from_metadata(one.path)
        found = table.scan(snapshot_id=one.version).to_arrow()
    return flat(found.to_pylist(), one)


def by_polars(one: Version) -> list[tuple[Any, ...]]:
    if one.kind == "delta":
        scan = pl.scan_delta(one.path, version=one.version)
    else:
        scan = pl.scan_iceberg(one.path, snapshot_id=one.version)
    return flat(scan.collect().to_dicts(), one)


def flat(rows: list[dict[str, Any]], one: Version) -> list[tuple[Any, ...]]:
    found = []
    for each in sorted(rows, key=lambda each: each["id"]):
        o = each.get("o") or {}
        nested = [o.get("x"), o.get("l")] if one.is_whole else []
        at = each["seen"].astimezone(UTC).isoformat(" ")
        found.append((each["id"], each["p"], f"{each['price']:.2f}", at, *nested))
    return found


@pytest.mark.parametrize("engine", [by_library, by_polars])
def test_libraries_return_what_was_written(
    engine: Callable[[Version], Any],
    written: list[Version],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for one in written:
        assert engine(one) == one.rows, one[:3]


@pytest.mark.timeout(900)
@pytest.mark.long("makes an environment, and starts an engine in it")
@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_engines_return_what_was_written(
    engine: str, written: list[Version], tmp_path: Path
) -> None:
    if engine == "spark":
        java_or_skip()
    try:
        python = environment({"duckdb": "duckdb", "spark": "connectors"}[engine])
    except Unavailable as reason:
        skip_or_fail(str(reason))
    asked = [
        {"kind": o.kind, "path": o.path, "version": o.version, "whole": o.is_whole}
        for o in written
    ]
    request, answer = tmp_path / "request.json", tmp_path / "answer.json"
    request.write_text(json.dumps(asked))
    module = "tests.tables.judging"
    run = Driver(tmp_path, module, engine, request, answer, python=str(python))
    run.succeed()
    for one, rows in zip(written, json.loads(answer.read_text()), strict=True):
        assert plain(rows) == one.rows, (one[:3], SELECT if one.is_whole else FIRST)
