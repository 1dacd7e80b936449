"""The fixtures are what the formats' own writers left, state by state."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING

import pytest
from tests.proving.skipping import skip_or_fail
from tests.tables.states import DATA, Fixture
from tests.tables.writers.building import Unavailable, build
from tests.tables.writers.capture import plain

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path

EVOLVED = "hudi-evolved"  # hudi-rs matches its columns by name: test_hudi_evolution.py
HUDI = sorted({path.stem for path in DATA.glob("hudi-*.zip")} - {EVOLVED})
ICEBERG = sorted(path.stem for path in DATA.glob("iceberg-*.zip"))


def test_fixtures_stay_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 1_500_000


@pytest.mark.parametrize("name", HUDI)
def test_each_state_of_a_hudi_table_has_the_rows_that_its_writer_read(
    name: str, tmp_path: Path
) -> None:
    hudi = importlib.import_module("hudi")
    fixture = Fixture(name, tmp_path)
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        batches = hudi.HudiTable(str(fixture.folder)).read()
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert _found(rows, state.rows) == state.rows, state.name


@pytest.mark.parametrize("name", ICEBERG)
def test_each_state_of_an_iceberg_table_has_the_rows_that_its_writer_read(
    name: str, tmp_path: Path
) -> None:
    tables = importlib.import_module("pyiceberg.table")
    fixture = Fixture(name, tmp_path)
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        metadata = fixture.folder / state.facts["metadata"]
        table = tables.StaticTable.from_metadata(str(metadata))
        rows = table.scan().to_arrow().to_pylist()
        assert _found(rows, state.rows) == state.rows, state.name


def test_the_stream_of_a_delta_table_has_the_changes_that_its_writer_reads(
    tmp_path: Path,
) -> None:
    # The deletes are deletion vectors, whose changes no file of the feed has.
    fixture = Fixture("delta-feed", tmp_path)
    number = [state.name for state in fixture.states].index("overwrite a partition")
    fixture.show(number)
    properties = {
        "streamType": "delta",
        "stream.delta.path": str(fixture.folder),
        "stream.delta.start.commit": "1",
    }
    with streamfactory.open(properties, follow=False) as stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
    found = [(int(row["_commit"]), row["_change"], row["id"]) for row in rows]
    names = {"update_preimage": "update_before", "update_postimage": "update_after"}
    assert sorted(found) == sorted(
        (state.facts["version"], names.get(kind, kind), key)
        for state in fixture.states[: number + 1]
        for kind, key, _ in state.facts["changes"]
    )


def test_the_columns_of_a_delta_table_that_maps_them_are_those_of_its_writer(
    tmp_path: Path,
) -> None:
    fixture = Fixture("delta-mapped", tmp_path)
    properties = {"streamType": "delta", "stream.delta.path": str(fixture.folder)}
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        with streamfactory.open(properties, follow=False) as stream:
            rows = [row for batch in stream for row in batch.rows.to_pylist()]
        assert _found(rows, state.rows) == state.rows, state.name
    properties["stream.delta.start.commit"] = "0"
    with streamfactory.open(properties, follow=False) as stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
    found = [(row["_change"], row["id"], row["title"]) for row in rows]
    assert sorted(found) == [
        ("insert", 1, "a"),
        ("insert", 2, "c"),
        ("update_after", 1, "b"),
        ("update_before", 1, "a"),
    ]


def test_a_state_that_is_stepped_to_is_the_state_alone(tmp_path: Path) -> None:
    stepped = Fixture("hudi-mor", tmp_path / "stepped")
    for number in range(len(stepped.states)):
        stepped.show(number)
    alone = Fixture("hudi-mor", tmp_path / "alone")
    alone.show(len(alone.states) - 1)
    assert _files(stepped.folder) == _files(alone.folder)


@pytest.mark.long("makes the fixtures again by Spark, with jars from Maven Central")
def test_the_programs_still_make_the_fixtures(tmp_path: Path) -> None:
    try:
        build("hudi", tmp_path, "hudi-defaults")
    except Unavailable as error:
        skip_or_fail(str(error))
    made = (tmp_path / "hudi-defaults.json").read_text()
    kept = (DATA / "hudi-defaults.json").read_text()
    assert _named(made) == _named(kept)


def _found(
    rows: list[dict[str, object]], wanted: list[dict[str, object]]
) -> list[dict[str, object]]:
    """Rows in the form and order of a fixture."""
    names = list(wanted[0]) if wanted else []
    found = [{name: _plain(row[name]) for name in names} for row in rows]
    return sorted(found, key=lambda row: (row["id"], row["city"]))


def _plain(value: object) -> object:
    found = plain(value)
    return found.removesuffix("+00:00") if isinstance(found, str) else found


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _named(text: str) -> list[object]:
    states = json.loads(text)["states"]
    return [
        (state["name"], [(row["id"], row["name"]) for row in state["rows"]])
        for state in states
    ]
