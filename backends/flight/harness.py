"""The conformance kit's access to ``flight``: a server process over a folder.

One server serves all cases of a run, each with a topic of its own. The harness writes
the folder's log directly, as another process may.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.harness import LogHarness

if TYPE_CHECKING:
    from collections.abc import Mapping


class FlightHarness(LogHarness):
    """A topic of numbers on the server."""

    @classmethod
    def _server_settings(cls) -> Mapping[str, str]:
        """Settings of the server, besides address and path; for subclasses."""
        return {}

    @classmethod
    def _stream_options(cls) -> Mapping[str, str]:
        """Options under ``stream.flight.`` that reach such a server; for subclasses."""
        return {}

    @classmethod
    def prepare(cls) -> None:
        _server(cls)  # type: ignore[arg-type]  # a class is hashable

    def __init__(self, folder: Path) -> None:
        self._location, path = _server(type(self))  # type: ignore[arg-type]
        self._disk = DiskLogStore(LocalStorage(path), Settings())
        super().__init__(self._disk)

    def properties(self) -> Mapping[str, str]:
        options = {f"stream.flight.{k}": v for k, v in self._stream_options().items()}
        return {
            "streamType": "flight",
            "stream.flight.location": self._location,
            "stream.flight.topic.name": self.topic,
            **options,
        }

    def close(self) -> None:
        super().close()
        self._disk.close()


@cache
def _server(harness: type[FlightHarness]) -> tuple[str, Path]:
    """Location and folder of a harness's server, which ends with this process."""
    path = Path(tempfile.mkdtemp(prefix="flight-conformance-"))
    process = subprocess.Popen(
        [sys.executable, "-m", "streamfactory", "serve", "--config", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def stop() -> None:
        process.terminate()
        process.communicate()
        shutil.rmtree(path, ignore_errors=True)

    atexit.register(stop)
    assert process.stdin is not None
    assert process.stdout is not None
    own = {"address": "127.0.0.1:0", "path": str(path)}
    settings = {**own, **harness._server_settings()}
    process.stdin.write(json.dumps(settings) + "\n")
    process.stdin.flush()
    return process.stdout.readline().split()[-1], path
