"""Each feature of a format is read, or refused before the first row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from deltalake import write_deltalake
from tests.tables.states import Fixture
from tests.tables.test_delta import properties as delta_properties
from tests.tables.test_delta import read as read_delta
from tests.tables.test_delta import rows_of
from tests.tables.test_delta_damage import commit
from tests.tables.test_iceberg import (
    NUMBERS,
    append,
    catalog,
    create,
    properties,
    read,
)
from tests.tables.test_iceberg_damage import changed, manifests

import streamfactory
from streamfactory.backends.delta.replay import SUPPORTED
from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.catalog.memory import InMemoryCatalog

__all__ = ["catalog"]  # a fixture

READ: Final = {
    "columnMapping": "test_delta_columns",
    "deletionVectors": "test_delta",
    "timestampNtz": "test_table_sinks",
    "typeWidening": "test_table_evolving",
    "typeWidening-preview": "test_table_evolving",
    "v2Checkpoint": "test_delta_replay",
    "vacuumProtocolCheck": "test_table_features",
}
"""Features of Delta that are read, with the tests of what they are for."""
REFUSED: Final = (
    "variantType",
    "variantType-preview",
    "variantShredding-preview",
    "catalogManaged",
    "geospatial",
    "icebergCompatV3",
    "featureOfTomorrow",
)


def requiring(path: Path, *features: str) -> None:
    """A Delta table with a row, whose readers need to have some features."""
    write_deltalake(str(path), rows_of(1))
    listed = {"readerFeatures": [*features], "writerFeatures": [*features]}
    commit(path, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **listed}})


def first_rows(config: dict[str, str]) -> Any:
    with streamfactory.open(config, follow=False) as stream:
        return next(iter(stream)).rows


def test_each_known_feature_of_delta_has_a_test() -> None:
    assert set(READ) == SUPPORTED


@pytest.mark.parametrize("feature", sorted(READ))
def test_a_table_with_a_known_feature_is_read(feature: str, tmp_path: Path) -> None:
    requiring(tmp_path / "t", feature)
    assert [row[0] for row in read_delta(tmp_path / "t")] == [1]


@pytest.mark.parametrize("feature", REFUSED)
def test_a_table_with_another_feature_is_refused_by_its_name(
    feature: str, tmp_path: Path
) -> None:
    requiring(tmp_path / "t", "deletionVectors", feature)
    with pytest.raises(FormatRefused, match=rf"requires {feature}, which"):
        first_rows(delta_properties(tmp_path / "t"))


def test_variants_of_delta_are_refused_whatever_the_protocol_states(
    tmp_path: Path,
) -> None:
    """Of a shredded file, ``metadata`` and ``value`` alone are another value."""
    path = tmp_path / "t"
    write_deltalake(str(path), rows_of(1))
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [*map(json.loads, log.read_text().splitlines())]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            field = {**schema["fields"][0], "name": "v", "type": "variant"}
            inner = {"type": "struct", "fields": [field]}
            schema["fields"].append({**schema["fields"][0], "name": "o", "type": inner})
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(FormatRefused, match="'variant'"):
        first_rows(delta_properties(path))


# --- Iceberg --------------------------------------------------------------------------


def with_entries(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Fixture:
    """A table with position deletes, whose entries are changed."""
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("delete")
    for manifest in manifests(fixture.folder):
        changed(manifest, lambda entry: change(entry["data_file"]))
    return fixture


def as_equality_deletes(file: dict[str, Any]) -> None:
    if file["content"] == 1:
        file |= {"content": 2, "equality_ids": [1]}


def as_deletion_vectors(file: dict[str, Any]) -> None:
    if file["content"] == 1:
        file["file_format"] = "PUFFIN"


def as_orc(file: dict[str, Any]) -> None:
    if file["content"] == 0:
        file["file_format"] = "ORC"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (as_equality_deletes, "has equality deletes"),
        (as_deletion_vectors, "has files in PUFFIN"),
        (as_orc, "has files in ORC"),
    ],
)
def test_files_of_other_kinds_are_refused_before_the_first_row(
    change: Callable[[dict[str, Any]], None], match: str, tmp_path: Path
) -> None:
    fixture = with_entries(tmp_path, change)
    with pytest.raises(FormatRefused, match=match):
        first_rows(properties(fixture.folder))
    if change is as_orc:
        return  # that commit has delete files only
    start = str(fixture.states[4].facts["snapshot"])
    with pytest.raises(FormatRefused, match=match):
        read(fixture.folder, None, stream__iceberg__start__commit=start)


def metadata_changed(path: Path, **values: Any) -> None:
    newest = max((path / "metadata").glob("*.metadata.json"))
    newest.write_text(json.dumps({**json.loads(newest.read_text()), **values}))


def test_format_version_1_is_refused_with_the_remedy(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = tmp_path / "one"
    catalog.create_table(
        "n.one", NUMBERS, f"file://{path}", properties={"format-version": "1"}
    )
    append(catalog, "one", 1)
    with pytest.raises(FormatRefused, match="format version 1") as caught:
        first_rows(properties(path))
    assert "format-version=2" in str(caught.value)


def test_format_version_3_is_read_where_files_are_those_of_version_2(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "three", tmp_path)
    append(catalog, "three", 3)
    metadata_changed(path, **{"format-version": 3, "next-row-id": 0})
    assert sorted(row["id"] for row in read(path)) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["variant", "type_of_tomorrow"])
def test_types_of_version_3_that_are_unknown_are_refused_by_name(
    kind: str, catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "types", tmp_path)
    newest = max((path / "metadata").glob("*.metadata.json"))
    text = newest.read_text().replace('"type":"long"', f'"type":"{kind}"')
    newest.write_text(text.replace('"format-version":2', '"format-version":3'))
    with pytest.raises(FormatRefused, match=f"the type '{kind}', which is"):
        first_rows(properties(path))
