"""Avro files of tables that are made to have decoders hold more than they may."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import cramjam
import pyarrow as pa
import pytest
from tests.tables.states import Fixture
from tests.tables.streams import table_properties
from tests.tables.test_hudi_archive import entry, following, hudi_files, with_blocks
from tests.tables.test_hudi_archive import read as read_on
from tests.tables.test_iceberg_damage import manifests

import streamfactory
from streamfactory.spi import CorruptData, FormatRefused
from streamfactory.tables import check_avro_file, check_avro_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYNC = b"0123456789abcdef"
NULLS = {"type": "array", "items": "null"}
MANY = 20_000_000


def integer(number: int) -> bytes:
    rest, found = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        found, rest = found + bytes([rest & 0x7F | 0x80]), rest >> 7
    return found + bytes([rest])


def sized(data: bytes) -> bytes:
    return integer(len(data)) + data


def record(**fields: Any) -> dict[str, Any]:
    pairs = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": pairs}


def container(schema: Any, codec: str, *blocks: tuple[int, bytes]) -> bytes:
    """An Avro file: its blocks have a number of records and their compressed bytes."""
    header = {"avro.codec": codec.encode(), "avro.schema": json.dumps(schema).encode()}
    pairs = b"".join(sized(k.encode()) + sized(v) for k, v in header.items())
    body = b"".join(integer(n) + sized(data) + SYNC for n, data in blocks)
    return b"Obj\x01" + integer(len(header)) + pairs + integer(0) + SYNC + body


def deflated(data: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(data) + engine.flush()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)) + bytes(4),
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_that_of_all_blocks_inflated(codec: str) -> None:
    one = sized(bytes(3_000_000))
    block = (1, CODECS[codec](one))
    content = container("bytes", codec, block, block)
    check_avro_file("x", content, 2 * len(one))
    with pytest.raises(FormatRefused, match=r"inflated.*log\.max\.bytes"):
        check_avro_file("x", content, 2 * len(one) - 1)


def test_a_codec_whose_blocks_cannot_be_limited_is_refused() -> None:
    with pytest.raises(FormatRefused, match=r"bzip2.*deflate, snappy"):
        check_avro_file("x", container("bytes", "bzip2"), 1 << 20)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Obj\x01",
        container("int", "null", (9, b"\0")),
        container("int", "null", (1, b"\0"))[:-1],
        container("int", "null", (1, b"\0"))[:-16] + bytes(16),
        container("int", "null") + integer(1) + integer(-1) + SYNC,
        container("int", "null") + b"\xff" * 20,
    ],
)
def test_a_damaged_container_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"it |block"):
        check_avro_file("x", content, 1 << 20)


WITHIN = {**record(one=["null", "R"])}
DOUBLED: Any = record()
for depth in range(40):
    DOUBLED = {**record(a=DOUBLED, b=f"R{depth}"), "name": f"R{depth + 1}"}
    DOUBLED["fields"][0]["type"]["name"] = f"R{depth}"


@pytest.mark.parametrize(
    "schema",
    [
        NULLS,
        {"type": "map", "values": "null"},
        {"type": "array", "items": record()},
        {"type": "array", "items": record(a="null", b=record())},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        record(a=["null", {"type": "array", "items": {"type": "null"}}]),
        record(a={**record(), "name": "x.E"}, b={"type": "array", "items": "x.E"}),
        record(i="int", **{f"n{n}": "null" for n in range(17)}),
        WITHIN,
        DOUBLED,
    ],
)
def test_schemas_of_values_without_bytes_are_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"no bytes|within itself"):
        check_avro_schema(schema)


def test_schemas_that_tables_have_are_not_refused() -> None:
    partition = {**record(), "name": "r102"}  # of a table without partitions
    file = {**record(path="string", partition=partition), "name": "r2"}
    check_avro_schema(record(status="int", file=file, more=["null", "r2"]))
    check_avro_schema({"type": "array", "items": ["null", file]})
    check_avro_schema({"type": "map", "values": {"type": "array", "items": "int"}})


# --- of tables -------------------------------------------------------------------


def rows_of(kind: str, path: Path, **options: str) -> list[dict[str, Any]]:
    with streamfactory.open(table_properties(kind, path, **options)) as stream:
        return [row for batch in stream for row in batch.rows.to_pylist()]


BOMB = container("bytes", "deflate", (1, deflated(sized(bytes(MANY)))))
AMPLIFIED = container(
    record(a=NULLS), "null", (1, integer(MANY) + integer(0)), (1, integer(0))
)


def peak_of(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "error", "why"),
    [(BOMB, FormatRefused, "inflated"), (AMPLIFIED, CorruptData, "no bytes")],
)
def test_a_manifest_is_not_inflated_beyond_the_limit(
    content: bytes, error: type[Exception], why: str, tmp_path: Path
) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("insert")
    for manifest in manifests(fixture.folder):
        manifest.write_bytes(content)
    options = {"stream__iceberg__log__max__bytes": "1M"}

    def call() -> None:
        with pytest.raises(error, match=why):
            rows_of("iceberg", fixture.folder, **options)

    assert peak_of(call) < MANY // 2


@pytest.mark.parametrize(
    ("content", "why"), [(BOMB, "inflated"), (AMPLIFIED, "no bytes")]
)
def test_an_instant_is_not_inflated_beyond_the_limit(
    content: bytes, why: str, tmp_path: Path
) -> None:
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 1")
    (instant,) = hudi_files(fixture, "timeline", "*.commit")
    instant.write_bytes(content)
    options = {"stream__hudi__log__max__bytes": "1M"}

    def call() -> None:
        with pytest.raises(FormatRefused, match=why):
            rows_of("hudi", fixture.folder, **options)

    assert peak_of(call) < MANY // 2


def test_a_block_of_an_archive_does_not_amplify(tmp_path: Path) -> None:
    made = with_blocks(tmp_path, entry(a=NULLS), a=[])
    (content, *_) = [p.read_bytes() for p in hudi_files(made, "history", ".commits*")]
    made.show("insert 1")
    with following(made.folder) as stream:
        read_on(stream, 1)
        made.show("insert 8")
        for path in hudi_files(made, "history", ".commits*"):
            path.write_bytes(content)
        with pytest.raises(CorruptData, match="no bytes"):
            read_on(stream, 7)
