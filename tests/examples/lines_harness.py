"""The kit's hand on the example backend: plain files."""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class LinesHarness:
    """A folder of files, a number a line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "lines"

    @staticmethod
    def plugin() -> Any:
        """The module under test: `examples` has to be on the path, of children too."""
        return importlib.import_module("lines")

    def create(self, partitions: int) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self.grow(partitions)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "lines",
            "stream.lines.topic.name": "lines",
            "stream.lines.folder": str(self._folder),
        }

    def partitions(self) -> Sequence[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.log"))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        with (self._folder / f"{partition}.log").open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)

    def numbers(self, rows: Any) -> list[int]:
        return [int(line) for line in rows.column("line").to_pylist()]

    def grow(self, partitions: int) -> None:
        for number in range(partitions):
            (self._folder / f"{number}.log").touch()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
