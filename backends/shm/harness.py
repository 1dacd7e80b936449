"""The conformance kit's access to ``shm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.harness import LogHarness
from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ShmHarness(LogHarness):
    """A topic of numbers in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "topics"
        self._shm = ShmLogStore(self._folder, Settings(capacity=1 << 20))
        super().__init__(self._shm)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "shm",
            "stream.shm.path": str(self._folder),
            "stream.shm.topic.name": self.topic,
        }

    def close(self) -> None:
        super().close()
        self._shm.close()
