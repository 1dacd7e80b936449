"""Files that `publish` reads, made to harm: refused with a typed error."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from streamfactory.spark.checkpoints.resolving import Reset
from streamfactory.spi import DecodeError, FormatRefused, MisuseError, SchemaMismatch
from streamfactory.transfer.inputs.base import InputOptions
from streamfactory.transfer.inputs.formats import open_input

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
NO_TEXT = b"\xff\xfe"


def read(path: Path, max_message: int = 1 << 32) -> list[pa.RecordBatch]:
    options = InputOptions(max_message=max_message)
    with closing(open_input(str(path), options=options)) as source:
        source.columns(1.0)
        found = []
        while not source.finished:
            rows = source.read(1.0, 1000)
            if rows is not None:
                found.append(rows)
        return found


def texts(*offsets: int, data: bytes) -> pa.RecordBatch:
    """A batch whose column has these offsets, whatever they are."""
    places = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
    buffers = [None, places, pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    return pa.RecordBatch.from_arrays([column], names=["text"])


def write(path: Path, *batches: pa.RecordBatch, codec: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with (
        path.open("wb") as file,
        pa.ipc.new_stream(file, batches[0].schema, options=options) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    return path


@pytest.mark.parametrize(
    "batch",
    [texts(0, 2, data=NO_TEXT), texts(0, 3, 1, data=b"abc")],
    ids=["no UTF-8", "offsets that fall"],
)
def test_arrow_whose_values_are_unsound_is_refused(
    tmp_path: Path, batch: pa.RecordBatch
) -> None:
    good = texts(0, 1, data=b"a")
    path = write(tmp_path / "a.arrows", good, batch)
    with pytest.raises(DecodeError, match=r"a\.arrows, byte \d+: .*text"):
        read(path)


def test_arrow_that_unpacks_to_more_than_its_limit_is_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": pa.array([bytes(1 << 22)])})
    path = write(tmp_path / "a.arrows", batch, codec="zstd")
    assert path.stat().st_size < 10_000
    assert sum(rows.num_rows for rows in read(path, max_message=1 << 23)) == 1
    with pytest.raises(DecodeError, match="are announced"):
        read(path, max_message=1 << 20)


@pytest.mark.parametrize("cut", [3, 7, 20, 150, -9, -5, -3])
def test_arrow_that_is_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a.arrows", texts(0, 1, data=b"a"))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises((DecodeError, FormatRefused)):
        read(path)


def test_arrow_from_before_markers_is_read(tmp_path: Path) -> None:
    batch = texts(0, 1, data=b"a")
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    path = tmp_path / "a.arrows"
    with (
        path.open("wb") as file,
        pa.ipc.new_stream(file, batch.schema, options=options) as writer,
    ):
        writer.write_batch(batch)
    assert read(path) == [batch]


def test_csv_with_names_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a," + NO_TEXT + b"\n1,2\n")
    with pytest.raises(FormatRefused, match="has no header"):
        read(path)


def test_json_with_values_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": "' + NO_TEXT + b'"}\n')
    with pytest.raises(FormatRefused, match="a record is not UTF-8"):
        read(path)


def test_parquet_with_values_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.Table.from_batches([texts(0, 2, data=NO_TEXT)])
    pa.parquet.write_table(table, path)
    with pytest.raises(DecodeError, match=r"a\.parquet, row 0: .*UTF8"):
        read(path)


def test_a_file_with_a_column_twice_is_named(tmp_path: Path) -> None:
    column = pa.array([1])
    path = write(
        tmp_path / "a.arrows",
        pa.RecordBatch.from_arrays([column] * 2, names=["a", "a"]),
    )
    with pytest.raises(SchemaMismatch, match=r"a\.arrows: .*several columns"):
        read(path)


def test_a_reset_nested_without_end_is_refused() -> None:
    with pytest.raises(MisuseError, match="is no position"):
        Reset.parse('{"a":' + "[" * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b'\xef\xbb\xbf \n\tnull{"a":1}\n',
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a":1}\n{"b":"]]]","a":' + b"[" * 100_000 + b"\n",
    ],
    ids=["null", "null after a mark", "deep", "deep in a later record"],
)
def test_json_that_ends_arrows_reader_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)
    with pytest.raises(FormatRefused, match="a record is n"):
        read(path)


def test_json_of_many_brackets_within_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":"%s"}\n{"a":"\\"%s"}\n' % (b"[" * 999, b"{" * 999))
    assert sum(rows.num_rows for rows in read(path)) == 2


def test_parquet_that_ends_before_its_footer_says_is_refused(tmp_path: Path) -> None:
    """It was read for ever."""
    path = tmp_path / "a.parquet"
    path.write_bytes((HOSTILE / "without-its-rows.parquet").read_bytes())
    with pytest.raises(DecodeError, match="its footer has 8 rows"):
        read(path)
