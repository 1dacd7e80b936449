"""The conformance kit's access to ``flight``: a server process over a folder.

The harness writes the folder's log directly, as another process may.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.harness import LogHarness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class FlightHarness(LogHarness):
    """A topic of numbers in a folder, served by a process of its own."""

    def __init__(self, folder: Path) -> None:
        path = folder / "topics"
        self._disk = DiskLogStore(LocalStorage(path), Settings())
        super().__init__(self._disk)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "streamfactory.cli.main", "serve", "--config", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        settings = {"address": "127.0.0.1:0", "path": str(path)}
        self._server.stdin.write(json.dumps(settings) + "\n")
        self._server.stdin.flush()
        self._location = self._server.stdout.readline().split()[-1]

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "flight",
            "stream.flight.location": self._location,
            "stream.flight.topic.name": self.topic,
        }

    def close(self) -> None:
        super().close()
        self._disk.close()
        self._server.terminate()
        self._server.communicate()
