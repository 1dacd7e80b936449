"""What the conformance kit drives the schemes ``env`` and ``file`` with."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

from streamfactory.spi.references import FOLDERS


class EnvHarness:
    """Stores values in the environment of the process."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def store(self, value: str) -> str:
        """Store a value; return what follows the colon."""
        name = f"CONFORMANCE_{uuid.uuid4().hex}"
        os.environ[name] = value
        self._names.append(name)
        return name

    def replace(self, what: str, value: str) -> None:
        """Replace a stored value."""
        os.environ[what] = value

    def missing(self) -> list[str]:
        """What has no value."""
        return [f"CONFORMANCE_{uuid.uuid4().hex}"]

    def close(self) -> None:
        """Remove what was stored."""
        for name in self._names:
            os.environ.pop(name, None)


class FileHarness:
    """Stores values in files of a folder that is allowed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self._before = os.environ.get(FOLDERS)
        os.environ[FOLDERS] = self._folder.name

    def store(self, value: str) -> str:
        """Store a value; return what follows the colon."""
        path = Path(self._folder.name, uuid.uuid4().hex)
        path.write_text(value, encoding="utf-8")
        return str(path)

    def replace(self, what: str, value: str) -> None:
        """Replace a stored value."""
        Path(what).write_text(value, encoding="utf-8")

    def missing(self) -> list[str]:
        """What has no value."""
        return [f"{self._folder.name}/missing", self._folder.name, __file__]

    def close(self) -> None:
        """Remove what was stored."""
        if self._before is None:
            os.environ.pop(FOLDERS, None)
        else:
            os.environ[FOLDERS] = self._before
        self._folder.cleanup()
