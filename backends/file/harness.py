"""The conformance kit's access to ``file``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.harness import LogHarness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class FileHarness(LogHarness):
    """A topic of numbers in a folder."""

    segment_format: ClassVar = "arrow"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "topics"
        settings = Settings(segment_format=self.segment_format)
        self._disk = DiskLogStore(LocalStorage(self._folder), settings)
        super().__init__(self._disk)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "file",
            "stream.file.path": str(self._folder),
            "stream.file.topic.name": self.topic,
            "stream.file.segment.format": self.segment_format,
        }

    def close(self) -> None:
        super().close()
        self._disk.close()


class ParquetFileHarness(FileHarness):
    """The same, in segments that are Parquet files."""

    segment_format: ClassVar = "parquet"
