"""What a writer is given is stored as it was then."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamfactory
from streamfactory.conversion.arrays import unshared
from streamfactory.wiring.writing import writer as writer_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with streamfactory.serve(path=str(tmp_path_factory.mktemp("flight"))) as server:
        yield server.location


@pytest.fixture(params=["file", "memory", "flight", "shm"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    kind = request.param
    options = {"topic.name": uuid.uuid4().hex}
    if kind in ("file", "shm"):
        options["path"] = str(tmp_path / kind)
    elif kind == "memory":
        options["store"] = uuid.uuid4().hex
    else:
        options["location"] = request.getfixturevalue("location")
    named = {f"stream.{kind}.{key}": value for key, value in options.items()}
    return {"streamType": kind, **named}


def values(stream: dict[str, str]) -> list[int]:
    with streamfactory.open(stream) as opened:
        found: list[int] = opened.to_reader().read_all()["n"].to_pylist()
        return found


def test_memory_that_is_used_again_does_not_change_written_rows(
    stream: dict[str, str],
) -> None:
    buffer = np.zeros(3, np.int64)
    schema = pa.schema([("n", pa.int64())])
    with (
        streamfactory.open_sink(stream) as sink,
        closing(sink.writer(schema)) as writer,
        sink.committer() as committer,
    ):
        for n in range(4):
            buffer[:] = n
            writer.write(pa.record_batch([pa.array(buffer)], schema=schema))
        buffer[:] = 9
        committer.commit(0, [writer.commit()])
    assert values(stream) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict, "reader"])
def test_frames_over_memory_that_is_used_again_do_not_change_written_rows(
    frame: Any, tmp_path: Path
) -> None:
    stream = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "frames",
    }
    buffer = np.zeros((3, 1), np.int64)
    schema = pa.schema([("n", pa.int64())])
    if frame == "reader":
        table = pa.table({"n": pa.array(buffer[:, 0])})
    elif frame is pd.DataFrame:
        table = pd.DataFrame(buffer, columns=["n"], copy=False)
    elif frame is dict:
        table = {"n": pd.DataFrame(buffer, columns=["n"], copy=False)["n"]}
    else:
        table = pl.from_numpy(buffer, schema=["n"], orient="row")
    with (
        streamfactory.open_sink(stream) as sink,
        closing(sink.writer(schema)) as writer,
        sink.committer() as committer,
    ):
        for n in range(3):
            buffer[:] = n
            writer.write(table.to_reader() if frame == "reader" else table)
        buffer[:] = 9
        committer.commit(0, [writer.commit()])
    assert values(stream) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_committed_rows_do_not_change_with_the_memory_of_a_put(
    stream: dict[str, str],
) -> None:
    buffer = np.zeros(3, np.int64)
    with streamfactory.open_sink(stream) as sink:
        sink.put(pa.table({"n": pa.array(buffer)}))
    buffer[:] = 9
    assert values(stream) == [0, 0, 0]


def test_a_reader_that_uses_memory_again_is_put_as_it_was_read(
    stream: dict[str, str],
) -> None:
    schema = pa.schema([("n", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        buffer = np.zeros(2, np.int64)
        for n in range(3):
            buffer[:] = n
            yield pa.record_batch([pa.array(buffer)], schema=schema)
        buffer[:] = 9

    with streamfactory.open_sink(stream) as sink:
        sink.put(pa.RecordBatchReader.from_batches(schema, batches()))
    assert values(stream) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("kind", "copies"), [("shm", 0), ("memory", 1)])
def test_a_put_copies_rows_only_where_they_stay_in_this_process(
    kind: str, copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[pa.RecordBatch] = []

    def counted(rows: pa.RecordBatch, *, foreign: bool = False) -> pa.RecordBatch:
        copied.append(rows)
        return unshared(rows, foreign=foreign)

    monkeypatch.setattr(writer_module, "unshared", counted)
    place = {"path": str(tmp_path / kind)} if kind == "shm" else {}
    options = {"topic.name": uuid.uuid4().hex, **place}
    named = {f"stream.{kind}.{key}": value for key, value in options.items()}
    with streamfactory.open_sink({"streamType": kind, **named}) as sink:
        sink.put(pa.record_batch({"n": np.arange(3)}))
    assert len(copied) == copies


def test_memory_that_cannot_change_is_not_copied() -> None:
    fixed = np.arange(4)
    fixed.flags.writeable = False
    rows = pa.record_batch({"n": pa.array(fixed)})
    assert unshared(rows) is rows


def test_of_a_slice_only_its_rows_are_copied() -> None:
    rows = pa.record_batch({"n": np.arange(100_000), "s": ["x"] * 100_000})
    part = unshared(rows.slice(5, 3))
    assert part.column("n").to_pylist() == [5, 6, 7]
    assert part.get_total_buffer_size() < 4096


def test_the_words_of_a_dictionary_are_copied() -> None:
    words = np.arange(3)
    indices = np.array([0, 1, 2], np.int8)
    indices.flags.writeable = False
    column = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(words))
    kept = unshared(pa.record_batch({"w": column}))
    words[:] = 9
    assert kept.column("w").to_pylist() == [0, 1, 2]
