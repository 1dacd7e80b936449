"""The backend of the documentation, and the page that shows it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import streamfactory
from streamfactory.spi import OffsetOutOfRange, Partition, Position
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.testing.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "lines.py"


@pytest.fixture(scope="module")
def lines() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("lines", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lines"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["lines"]


@pytest.fixture
def plugins(lines: ModuleType) -> PluginManager:
    manager = PluginManager()
    manager.register(lines)
    return manager


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0.log").write_bytes(b"a\nbb\n\nc\rc\ntorn")
    (tmp_path / "7.log").write_bytes(b"x\n")
    (tmp_path / "notes.log").write_bytes(b"not a partition\n")
    return tmp_path


def properties(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "streamType": "lines",
        "stream.lines.topic.name": "logs",
        "stream.lines.folder": str(folder),
        **more,
    }


def read(folder: Path, plugins: PluginManager, **given: Any) -> list[tuple[int, str]]:
    with streamfactory.open(properties(folder), plugins=plugins, **given) as stream:
        return [
            (batch.partition.id, line)
            for batch in stream
            for line in batch.rows["line"].to_pylist()
        ]


def test_reads_whole_lines_of_every_file(folder: Path, plugins: PluginManager) -> None:
    assert read(folder, plugins) == [
        (0, "a"),
        (0, "bb"),
        (0, ""),
        (0, "c\rc"),
        (7, "x"),
    ]


def test_reading_continues_when_a_torn_line_is_completed(
    folder: Path, plugins: PluginManager
) -> None:
    with streamfactory.open(properties(folder), plugins=plugins) as stream:
        assert sum(batch.num_rows for batch in stream) == 5
        position = stream.position
    with (folder / "0.log").open("ab") as file:
        file.write(b" no more\n")
    (folder / "9.log").write_bytes(b"new\n")
    assert read(folder, plugins, start=position) == [(0, "torn no more"), (9, "new")]


def test_a_line_longer_than_the_limit_comes_whole(
    folder: Path, plugins: PluginManager
) -> None:
    (folder / "7.log").write_bytes(b"y" * 300_000 + b"\nz\n")
    options = {"batch.bytes": "1000"}
    found = read(folder, plugins, options=options)
    assert [(p, len(line)) for p, line in found if p == 7] == [(7, 300_000), (7, 1)]


def test_a_file_that_shrank_is_reported(folder: Path, plugins: PluginManager) -> None:
    position = Position({Partition("logs", 0): 5, Partition("logs", 7): 0})
    (folder / "0.log").write_bytes(b"a\n")
    with pytest.raises(OffsetOutOfRange) as caught:
        read(folder, plugins, start=position)
    assert caught.value.latest == 2
    assert caught.value.partition == Partition("logs", 0)


@pytest.mark.parametrize("seed", range(5))
def test_faults_on_the_way_change_nothing(
    folder: Path, plugins: PluginManager, seed: int
) -> None:
    wanted = [f"line {n}" for n in range(500)]
    (folder / "0.log").write_text("".join(f"{line}\n" for line in wanted))
    faults = Faults(seed=seed, fail=0.1, drop=0.2, duplicate=0.3, tear=0.5)
    options = {"batch.bytes": "200", "retry.max.attempts": "50"}
    found = read(folder, plugins, options=options, faults=faults)
    assert [line for p, line in found if p == 0] == wanted
    assert faults.injected["tear"] > 0


def test_the_page_shows_the_file_as_it_is() -> None:
    page = (ROOT / "docs" / "spi.md").read_text()
    shown = re.search(
        r"<!-- file: examples/lines\.py -->\n```python[^\n]*\n(.*?)```\n<!-- end -->",
        page,
        re.DOTALL,
    )
    assert shown is not None
    assert shown[1] == SOURCE.read_text()


def test_a_complete_backend_is_short() -> None:
    assert len(SOURCE.read_text().splitlines()) < 120
