"""Lag of positions in tables, in rows and in commits."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.proving.commands import command_of

import streamfactory
from streamfactory.backends.delta.harness import DeltaHarness
from streamfactory.backends.delta.log import DeltaLog
from streamfactory.backends.hudi.harness import HudiHarness
from streamfactory.backends.iceberg.harness import IcebergHarness
from streamfactory.spi import Checkpoint
from streamfactory.tables.harness import numbers_table
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.lag import measure_lag
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.spi import Position

LAST = 3
"""Commits that follow the snapshot."""


def lag_of(properties: Any, position: Position) -> tuple[int | None, int | None]:
    """Rows and commits of the one partition."""
    config = configure(from_mapping(properties), default_manager(), use="read")
    with closing(Source(config)) as source:
        [lag] = measure_lag(position, source)
    return lag.behind, lag.commits


@pytest.mark.parametrize("make", [DeltaHarness, IcebergHarness, HudiHarness])
def test_lag_is_counted_in_rows_and_in_commits(make: Any, tmp_path: Path) -> None:
    IcebergHarness.prepare()
    harness = make(tmp_path)
    harness.create(1)
    harness.write(0, [1, 2, 3])
    properties = harness.properties()
    with streamfactory.open(properties) as stream:
        rows = iter(stream)
        next(rows)
        position = stream.position
        assert lag_of(properties, position) == (0, 0)
        for number in range(LAST):
            harness.write(0, [number] * 10)
        assert lag_of(properties, position) == (30, LAST)
    with streamfactory.open(properties, start=position, follow=False) as stream:
        for left, _ in zip((2, 1, 0), stream, strict=True):
            assert lag_of(properties, stream.position) == (10 * left, left)
    close = getattr(harness, "close", None)
    if close is not None:
        close()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A snapshot, as of version 1, and three commits; the last one changes no row."""
    path = tmp_path / "t"
    for numbers in ([1, 2, 3], [4, 5]):
        write_deltalake(str(path), numbers_table(numbers), mode="append")
    return path


def changed(path: Path) -> None:
    for _ in range(2):
        write_deltalake(str(path), numbers_table([6]), mode="append")
    DeltaTable(str(path)).optimize.compact()


def test_groups_show_their_lag_in_commits_of_tables_alone(
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    catalogue = tmp_path / "streams"
    catalogue.mkdir()
    (catalogue / "lake.toml").write_text(
        '[properties]\nstreamType = "delta"\n'
        f'stream.delta.path = "{table}"\n'
        f'checkpoint.location = "{tmp_path / "groups"}"\n'
    )
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(catalogue))
    with streamfactory.open("lake") as stream:
        for _ in stream:
            pass
        store = FileCheckpointStore(tmp_path / "groups")
        store.save("billing", "0-of-1", Checkpoint(stream.position, 5))
    changed(table)
    program = command_of(capsys)
    [lag] = program("lag", "--json").json["lags"]
    assert (lag["behind"], lag["commits"]) == (2, 3)
    text = program("lag", "billing", "--partitions").out
    assert "group billing, stream lake: 2 behind, in 3 commits" in text
    assert text.splitlines()[0].split() == [
        *("NAME", "KIND", "STREAM", "BEHIND", "COMMITS", "PARTITIONS", "REMARKS")
    ]


def test_commits_are_counted_without_opening_them(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"streamType": "delta", "stream.delta.path": str(table)}
    config = configure(from_mapping(properties), default_manager(), use="read")
    with closing(Source(config)) as source:
        [info] = source.metadata.partitions()
        for _ in range(20):
            write_deltalake(str(table), numbers_table([6]), mode="append")
        [info] = source.metadata.partitions(known={info.partition})
        opened: list[int] = []
        real = DeltaLog.read

        def read(log: DeltaLog, version: int) -> Any:
            opened.append(version)
            return real(log, version)

        monkeypatch.setattr(DeltaLog, "read", read)
        assert source.metadata.commits(info, info.earliest) == 22
    assert opened == []


def test_check_shows_the_lag_in_commits(
    table: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "lake.toml"
    path.write_text(
        f'[properties]\nstreamType = "delta"\nstream.delta.path = "{table}"\n'
    )
    done = command_of(capsys)("check", path)
    assert "5 offsets behind, in 1 commit, where a new reader starts" in done.out
