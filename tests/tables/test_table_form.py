"""How data files are written: by properties of the table, which options begin."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import SortDirection
from tests.tables.lakes import ID, DeltaLake, IcebergLake

from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.spi import ConfigError, Unsupported
from streamfactory.tables import datafiles
from streamfactory.tables.datafiles import DataFiles
from streamfactory.tables.form import Form, Names, SortField, form_of
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables.lakes import Lake

NAMES = Names("codec", "size", "level", "rows")


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=lambda kind: kind.kind)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    return made


def configured(lake: Lake, **options: str) -> None:
    for key, text in options.items():
        lake.config[f"stream.{lake.kind}.{key.replace('_', '.')}"] = text


def properties(lake: Lake) -> dict[str, str]:
    if isinstance(lake, DeltaLake):
        return dict(lake.table().metadata().configuration)
    assert isinstance(lake, IcebergLake)
    with lake.table() as table:
        return dict(table.properties)


def codecs(lake: Lake) -> set[str]:
    return {
        pq.read_metadata(path).row_group(0).column(0).compression
        for path in lake.data_files()
    }


CODECS = {
    "delta": "delta.parquet.compression.codec",
    "iceberg": "write.parquet.compression-codec",
}
SIZES = {"delta": "delta.targetFileSize", "iceberg": "write.target-file-size-bytes"}


def test_a_new_table_has_the_properties_and_its_files_are_written_by_them(
    lake: Lake,
) -> None:
    configured(lake, table_properties=f"owner=shop, {CODECS[lake.kind]} = ZSTD")
    with lake.sink() as sink:
        sink.put({"id": [1]})
    assert properties(lake)["owner"] == "shop"
    assert codecs(lake) == {"ZSTD"}
    del lake.config[f"stream.{lake.kind}.table.properties"]
    with lake.sink() as sink:  # those of the table count
        sink.put({"id": [2]})
    assert codecs(lake) == {"ZSTD"}
    assert lake.ids() == [1, 2]


def test_files_end_at_the_size_of_the_table_and_are_not_small_then(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafiles, "_BUFFERED", 1 << 17)
    configured(lake, table_properties=f"{SIZES[lake.kind]}={1 << 18}")
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 200_000)
    with lake.sink() as sink:
        for first in range(0, len(numbers), 10_000):
            rows = pa.table({"id": numbers[first : first + 10_000]})
            sink.put(rows, writer_id="w")
        for _ in range(2):
            with open_admin(lake.config) as admin:
                admin.compact()
                facts = dict(admin.facts())
                assert facts["files to compact"] == 0
                assert int(facts["files"]) > 3
    assert lake.ids() == sorted(numbers.tolist())


@pytest.mark.parametrize(
    "text",
    ["owner", "a=${env:HOME}", "=x", "a=1,a=2", "streamfactory.writer.w={}", "a=1,b"],
)
def test_properties_that_are_none_are_refused(lake: Lake, text: str) -> None:
    configured(lake, table_properties=text)
    with pytest.raises(ConfigError, match=r"table\.properties"), lake.sink() as sink:
        sink.put({"id": [1]})


@pytest.mark.parametrize("kind", [*CODECS])
def test_values_that_are_not_known_are_refused_before_a_table_is_made(
    tmp_path: Path, kind: str
) -> None:
    lake = {"delta": DeltaLake, "iceberg": IcebergLake}[kind](tmp_path)
    configured(lake, table_properties=f"{CODECS[kind]}=lzo")
    with lake.sink() as sink:
        for _ in range(2):
            with pytest.raises(Unsupported, match="lzo, which is none of none, snapp"):
                sink.put({"id": [1]})


def test_properties_of_delta_that_need_a_feature_are_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    for name in ("enableChangeDataFeed", "columnMapping.mode", "enableRowTracking"):
        configured(lake, table_properties=f"delta.{name}=true")
        with lake.sink() as sink, pytest.raises(Unsupported, match=name):
            sink.put({"id": [1]})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, Form()),
        ({"codec": "UNCOMPRESSED"}, Form("none")),
        ({"codec": "gzip", "level": " 9 "}, Form("gzip", 9)),
        ({"codec": "zstd", "level": "-5"}, Form("zstd", -5)),
        ({"codec": "snappy", "level": "seven"}, Form("snappy")),
        ({"size": "100mb"}, Form(largest=100 << 20)),
        ({"size": "536870912", "rows": "7"}, Form(largest=1 << 29, rows=7)),
    ],
)
def test_properties_say_how_files_are_written(
    given: dict[str, str], wanted: Form
) -> None:
    assert form_of(given, NAMES) == wanted


@pytest.mark.parametrize(
    "given",
    [
        {"codec": ""},
        {"codec": "zstd", "level": "99"},
        {"codec": "gzip", "level": "fast"},
        {"codec": "gzip", "level": "9" * 5000},
        {"size": "0"},
        {"size": "-1"},
        {"size": "1e99"},
        {"rows": "0"},
        {"rows": "many"},
    ],
)
def test_properties_with_unknown_values_are_named(given: dict[str, str]) -> None:
    name = [*given][-1]
    with pytest.raises(Unsupported, match=f"the table has {name}="):
        form_of(given, NAMES)


# --- sorted rows ----------------------------------------------------------------------


def test_rows_are_sorted_within_row_groups_with_their_numbers(tmp_path: Path) -> None:
    form = Form(rows=100, sort=[SortField("p"), SortField("id", descending=True)])
    schema = pa.schema(
        [("id", pa.int64()), ("p", pa.string()), ("o", pa.list_(pa.int8()))]
    )
    made = DataFiles(LocalStorage(tmp_path), "part", schema, [], form)
    numbers = np.random.default_rng(2).permutation(250)
    for first in (0, 90, 180):
        ids = numbers[first : first + 90]
        some = [None if one % 7 == 0 else f"{one % 3}" for one in ids.tolist()]
        columns: list[Any] = [ids, some, [[1]] * len(ids)]
        rows = pa.record_batch(columns, schema=schema)
        made.add(rows, ids + 1000)
    (file,) = made.finish()
    parquet = pq.ParquetFile(tmp_path / file.path)
    groups = [parquet.read_row_group(n) for n in range(parquet.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 250
    assert max(group.num_rows for group in groups) <= 100
    for group in groups:
        keys = [("p", "ascending"), ("id", "descending")]
        assert group.sort_by(keys).equals(group)
    ids = pa.concat_tables(groups)["id"].to_numpy()
    assert sorted(ids) == [*range(250)]
    assert (made.numbers[file.path] == ids + 1000).all()


def test_a_new_iceberg_table_has_the_order_and_its_rows_are_sorted(
    tmp_path: Path,
) -> None:
    lake = IcebergLake(tmp_path)
    configured(lake, sort_by="city desc, id")
    with lake.sink() as sink:
        sink.put({"id": [3, 1, 2], "city": ["a", "b", "b"]})
    with lake.table() as table:
        order = [
            (table.schema().find_column_name(one.source_id), one.direction)
            for one in table.sort_order().fields
        ]
    assert order == [("city", SortDirection.DESC), ("id", SortDirection.ASC)]
    (path,) = lake.data_files()
    assert pq.read_table(path)["id"].to_pylist() == [1, 2, 3]


def test_rows_that_are_written_by_key_are_sorted_and_replaced(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    configured(lake, sort_by="id desc")
    lake.config["producer.key.columns"] = "id"
    with (
        lake.sink() as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        changes = [
            pa.record_batch({"id": [1, 5, 3], "v": ["a", "b", "c"]}),
            pa.record_batch({"id": [5, 9, 1], "v": ["B", "d", "A"]}),
        ]
        with sink.writer(changes[0].schema, writer_id="w", epoch=0) as writer:
            for rows in changes:
                writer.write(rows)
            message = writer.commit()
        assert committer.commit(0, [message])
        sink.put({"id": [3], "v": ["C"]})
    found = {row["id"]: row["v"] for row in lake.rows()}
    assert found == {1: "A", 3: "C", 5: "B", 9: "d"}


@pytest.mark.parametrize("text", ["nope", "id,id", "id up", "city desc desc"])
def test_an_order_by_what_is_no_column_is_refused(tmp_path: Path, text: str) -> None:
    lake = IcebergLake(tmp_path)
    configured(lake, sort_by=text)
    with lake.sink() as sink, pytest.raises(ConfigError, match=r"sort\.by has"):
        sink.put({"id": [1]})


def test_columns_without_an_order_are_refused(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    configured(lake, sort_by="o")
    with lake.sink() as sink, pytest.raises(Unsupported, match="have no order"):
        sink.put({"id": [1], "o": [{"x": 1}]})


def test_orders_by_transforms_are_left_to_others(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    lake.create(ID)
    with lake.table() as table, table.update_sort_order() as update:
        update.desc("id", _bucket())
    with lake.sink() as sink:
        sink.put({"id": [3, 1, 2]})
    (path,) = lake.data_files()
    assert pq.read_table(path)["id"].to_pylist() == [3, 1, 2]


def _bucket() -> Any:
    from pyiceberg.transforms import BucketTransform

    return BucketTransform(4)
