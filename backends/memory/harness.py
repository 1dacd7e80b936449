"""The conformance kit's access to ``memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.harness import LogHarness
from streamfactory.backends.memory.stores import store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class MemoryHarness(LogHarness):
    """A topic of numbers in a separate store."""

    def __init__(self, folder: Path) -> None:
        self._name = f"conformance-{folder.name}"
        super().__init__(store(self._name))

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "memory",
            "stream.memory.topic.name": self.topic,
            "stream.memory.store": self._name,
        }
