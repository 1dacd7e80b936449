"""What a catalog and its tables name is checked: code, places, kinds and lengths."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    FormatRefused,
    StorageFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "shop.orders"
CODE = """
from pathlib import Path
Path({mark!r}).touch()
class Class:
    def __init__(self, *_): pass
"""


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """A table with a row in a folder with its own catalog."""
    config = {
        "streamType": "iceberg",
        "stream.iceberg.table": NAME,
        "stream.iceberg.warehouse": str(tmp_path / "lake"),
    }
    write(config)
    return config


def write(config: dict[str, str]) -> None:
    with streamfactory.open_sink(config) as sink:
        sink.put(pa.table({"id": [1]}))


def read(config: dict[str, str]) -> list[int]:
    with streamfactory.open(config) as stream:
        return list(stream.to_reader().read_all()["id"].to_pylist())


def row(config: dict[str, str], sql: str, *values: str) -> str:
    """One value of the catalog's database, or an update of it."""
    database = Path(config["stream.iceberg.warehouse"]) / "catalog.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        return str((connection.execute(sql, values).fetchone() or ("",))[0])


def metadata_of(config: dict[str, str]) -> Path:
    found = row(config, "select metadata_location from iceberg_tables")
    return Path(found.removeprefix("file://"))


def change(config: dict[str, str], with_: Callable[[dict[str, Any]], object]) -> None:
    path = metadata_of(config)
    metadata = json.loads(path.read_text())
    with_(metadata)
    path.write_text(json.dumps(metadata))


def refused(config: dict[str, str], match: str) -> None:
    for use in (read, write):
        with pytest.raises(FormatRefused, match=match):
            use(config)


@pytest.mark.parametrize("key", ["py-io-impl", "write.py-location-provider.impl"])
def test_code_that_a_table_names_is_not_imported(
    key: str, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "imported"
    (tmp_path / "code_of_others.py").write_text(CODE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    change(lake, lambda m: m["properties"].update({key: "code_of_others.Class"}))
    refused(lake, f"{key} names code")
    assert not mark.exists()


@pytest.mark.parametrize("key", ["py-catalog-impl", "py-io-impl"])
def test_code_that_a_configuration_names_is_refused(
    key: str, lake: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=rf"catalog\.prop\.{key}: names code"):
        read({**lake, f"stream.iceberg.catalog.prop.{key}": "os.PathLike"})


def test_metadata_outside_of_the_warehouse_is_not_read(
    lake: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "0-1.metadata.json"
    other.write_bytes(metadata_of(lake).read_bytes())
    row(lake, "update iceberg_tables set metadata_location = ?", f"file://{other}")
    refused(lake, "outside of the table")


def test_a_table_outside_of_the_warehouse_is_not_read(
    lake: dict[str, str], tmp_path: Path
) -> None:
    change(lake, lambda m: m.update(location=f"file://{tmp_path}/other"))
    refused(lake, "outside of the table")


def test_a_pipe_in_place_of_metadata_does_not_hang(lake: dict[str, str]) -> None:
    path = metadata_of(lake)
    path.unlink()
    os.mkfifo(path)
    refused(lake, "not a regular file")


def test_a_link_in_place_of_metadata_is_not_followed(
    lake: dict[str, str], tmp_path: Path
) -> None:
    path = metadata_of(lake)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    refused(lake, "link")


@pytest.mark.parametrize("named", [False, True])
def test_metadata_that_is_too_long_is_not_read(
    named: bool, lake: dict[str, str]
) -> None:
    if named:  # as a catalog that is not the embedded one
        database = Path(lake["stream.iceberg.warehouse"]) / "catalog.db"
        lake["stream.iceberg.catalog.prop.uri"] = f"sqlite:///{database}"
    assert read(lake) == [1]
    with metadata_of(lake).open("a") as file:
        file.truncate(1 << 40)  # sparse
    refused(lake, "more than")


@pytest.mark.parametrize("damage", ['{"format-version": 2}', "[" * 100_000, "[1]", ""])
def test_damaged_metadata_is_named(damage: str, lake: dict[str, str]) -> None:
    metadata_of(lake).write_text(damage)
    refused(lake, "is damaged")


def test_compressed_metadata_is_refused(lake: dict[str, str]) -> None:
    path = metadata_of(lake)
    packed = path.with_name(path.name.replace(".metadata", ".gz.metadata"))
    packed.write_bytes(b"\x1f\x8b")
    row(lake, "update iceberg_tables set metadata_location = ?", f"file://{packed}")
    refused(lake, "is compressed")


def test_a_damaged_database_of_the_catalog_is_named(lake: dict[str, str]) -> None:
    database = Path(lake["stream.iceberg.warehouse"]) / "catalog.db"
    content = database.read_bytes()
    page = int.from_bytes(content[16:18])
    database.write_bytes(content[:page] + bytes(len(content) - page))
    for use in (read, write):
        with pytest.raises(StorageFailed, match="malformed") as caught:
            use(lake)
        assert "the database of the catalog cannot be used" in caught.value.what
        assert "catalog.db in stream.iceberg.warehouse" in str(caught.value.remedy)
    database.write_bytes(content)
    assert read(lake) == [1]


def test_a_database_of_the_catalog_that_cannot_be_opened_is_named(
    lake: dict[str, str],
) -> None:
    database = Path(lake["stream.iceberg.warehouse"]) / "catalog.db"
    database.rename(database.with_suffix(".kept"))
    database.mkdir()
    with pytest.raises(ConnectionFailed, match="unable to open") as caught:
        read(lake | {"retry.max.attempts": "1"})
    assert "catalog.db in stream.iceberg.warehouse" in str(caught.value.remedy)
    assert "sqlalche.me" not in str(caught.value)
