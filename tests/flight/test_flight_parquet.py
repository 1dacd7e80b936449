"""A Flight server on a folder with topics of Parquet segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from tests.flight.conftest import stream

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path


def ids(properties: dict[str, str]) -> list[int]:
    with streamfactory.open(properties) as opened:
        found: list[int] = opened.to_reader().read_all()["id"].to_pylist()
    return found


def test_a_topic_of_parquet_segments_is_served_and_written_as_any_other(
    folder: str, tmp_path: Path
) -> None:
    local = {
        "streamType": "file",
        "stream.file.path": folder,
        "stream.file.topic.name": "clicks",
        "stream.file.segment.format": "parquet",
    }
    with streamfactory.open_sink(local) as sink:
        sink.put(pa.table({"id": [1, 2]}), writer_id="local", epoch=0)
    with streamfactory.serve(path=folder) as server:
        remote = stream(server)
        assert ids(remote) == [1, 2]
        with streamfactory.open_sink(remote) as sink:
            sink.put(pa.table({"id": [3]}), writer_id="remote", epoch=0)
            sink.put(pa.table({"id": [3]}), writer_id="remote", epoch=0)
        assert ids(remote) == [1, 2, 3]
    del local["stream.file.segment.format"]
    assert ids(local) == [1, 2, 3]
    assert {p.suffix for p in tmp_path.rglob("data/*")} == {".parquet"}
