"""``make prove PATHS=golden GOLDEN=folder``: test data that many projects share.

The folder has ``arrow-testing.tar.xz`` and ``parquet-testing.tar.xz``: the data of
https://github.com/apache/arrow-testing and https://github.com/apache/parquet-testing.
Each file is read as a stream and by ``pyarrow``; what that comes to is compared with
``expected.json``, which is kept here. A finding is a file with another result, or one
that ends or stops the process. Both have to be seen: a better result changes the page.

The expected results are written anew with the variable GOLDEN_WRITE=1.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPECTED: Final = Path(__file__).with_name("expected.json")
ARCHIVES: Final = ("arrow-testing.tar.xz", "parquet-testing.tar.xz")
_PATIENCE: Final = 120.0
"""Seconds for one file."""
_FORMS: Final = {"arrow-ipc-stream": "stream", "arrow-ipc-file": "file"}


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Read every file of the archives."""
    folder = os.environ.get("GOLDEN")
    if not folder:
        return Verdict(notes=["golden: set GOLDEN to the folder of the archives"])
    for name in ARCHIVES:
        with tarfile.open(Path(folder, name)) as archive:
            archive.extractall(place, filter="data")
    reader = Reader()
    try:
        found = {
            name: reader.verdict(form, place / name) for form, name in files(place)
        }
    finally:
        reader.close()
    if os.environ.get("GOLDEN_WRITE"):
        EXPECTED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return compared(json.loads(EXPECTED.read_text()), found)


def files(place: Path) -> Iterator[tuple[str, str]]:
    """Format and name of each file."""
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.suffix == ".parquet":
            yield "parquet", name
        elif path.suffix == ".stream":
            yield "stream", name
        elif path.suffix == ".arrow_file":
            yield "file", name
        elif "clusterfuzz" in path.name or "crash" in path.name:
            form = next((form for key, form in _FORMS.items() if key in name), None)
            if form is not None:
                yield form, name


def compared(expected: dict[str, str], found: dict[str, str]) -> Verdict:
    """The verdict: files that others have, and those with another result."""
    verdict = Verdict(inputs=len(found))
    for name in sorted(expected.keys() | found.keys()):
        wanted, got = expected.get(name, "no file"), found.get(name, "no file")
        if wanted != got or got.startswith(("ended", "untyped", "different")):
            verdict.findings += 1
            verdict.notes.append(f"{name}: {got}, expected {wanted}")
    return verdict


@final
class Reader:
    """A child process that reads files, and the next one where a file ends it."""

    def __init__(self) -> None:
        self._child = self._started()

    def verdict(self, form: str, path: Path) -> str:
        """What reading a file comes to."""
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{form} {path}\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], _PATIENCE)
        line = child.stdout.readline() if ready else ""
        if line:
            return line.strip()
        self.close()
        self._child = self._started()
        return "ended the process" if ready else "ended by the deadline"

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()

    @staticmethod
    def _started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.golden.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )
