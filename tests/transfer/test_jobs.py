"""Whole jobs from Python: files in, a copy, a file out."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"id": [1, 2, 3], "page": ["a", "b", "c"]})


def topic(folder: Path, name: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.topic.name": name,
        "stream.file.path": str(folder / "topics"),
    }


def ids(stream: dict[str, str]) -> list[int]:
    with streamfactory.open(stream) as opened:
        found: list[int] = opened.to_reader().read_all()["id"].to_pylist()
    return sorted(found)


def test_files_are_published_copied_and_exported(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    clicks, archive = topic(tmp_path, "clicks"), topic(tmp_path, "archive")
    published = streamfactory.publish(
        clicks, tmp_path / "rows.parquet", writer_id="web"
    )
    assert (published.rows, published.complete) == (3, True)
    copied = streamfactory.copy(clicks, archive)
    assert (copied.rows, copied.complete) == (3, True)
    assert ids(archive) == [1, 2, 3]
    exported = streamfactory.export(archive, tmp_path / "out.parquet")
    assert exported.rows == 3
    assert pq.read_table(tmp_path / "out.parquet").sort_by("id") == ROWS


def test_jobs_that_are_run_again_do_nothing_twice(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    clicks, archive = topic(tmp_path, "clicks"), topic(tmp_path, "archive")
    for expected in (3, 0):
        published = streamfactory.publish(
            clicks, str(tmp_path / "rows.parquet"), writer_id="web"
        )
        assert published.rows == expected
        assert streamfactory.copy(clicks, archive).rows == expected
    assert ids(archive) == [1, 2, 3]


def test_an_export_that_waits_for_its_rate_is_not_late(tmp_path: Path) -> None:
    pages = ["x" * 100_000] * 3
    stream = topic(tmp_path, "clicks")
    with streamfactory.open_sink(stream | {"schema": "page string"}) as sink:
        sink.put(pa.table({"page": pages}))
    # A row is paid off in 0.5 s.
    stream["max.bytes.per.second"] = "200000"
    stream["stream.file.fetch.timeout.millis"] = "100"
    assert streamfactory.export(stream, tmp_path / "out.parquet").rows == 3


def test_a_copy_that_follows_ends_when_it_is_stopped(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    clicks, archive = topic(tmp_path, "clicks"), topic(tmp_path, "archive")
    streamfactory.publish(clicks, tmp_path / "rows.parquet")
    stop = threading.Event()
    stop.set()
    assert streamfactory.copy(clicks, archive, follow=True, stop=stop).rows == 0


def test_problems_are_errors_of_the_root(tmp_path: Path) -> None:
    clicks = topic(tmp_path, "clicks")
    with pytest.raises(streamfactory.MisuseError, match="there is no input"):
        streamfactory.publish(clicks)
    with pytest.raises(streamfactory.ConfigError, match="colour"):
        streamfactory.copy(clicks, clicks, sink_options={"colour": "red"})
    (tmp_path / "out.parquet").write_bytes(b"")
    with pytest.raises(streamfactory.MisuseError, match="exists already"):
        streamfactory.export(clicks, tmp_path / "out.parquet")


@pytest.mark.parametrize("way", ["publish", "file"])
def test_times_of_96_bits_keep_their_year(tmp_path: Path, way: str) -> None:
    times = [datetime.fromisoformat(day) for day in ("9999-12-31", "1500-01-01")]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us"))})
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    stream = topic(tmp_path, "t")
    if way == "publish":
        streamfactory.publish(stream, path)
    else:
        stream = {
            "streamType": "file",
            "stream.file.path": str(path),
            "stream.file.format": "parquet",
        }
    with streamfactory.open(stream) as opened:
        assert opened.to_reader().read_all()["at"].to_pylist() == times
