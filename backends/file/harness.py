"""The conformance kit's access to ``file``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.harness import LogHarness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class FileHarness(LogHarness):
    """A topic of numbers in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "topics"
        self._disk = DiskLogStore(LocalStorage(self._folder), Settings())
        super().__init__(self._disk)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "file",
            "stream.file.path": str(self._folder),
            "stream.file.topic.name": self.topic,
        }

    def close(self) -> None:
        super().close()
        self._disk.close()
