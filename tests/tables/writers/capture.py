"""Keeps the states of a table on disk: its files and its rows after each step.

Used by the programs of this folder, which run in environments of their own (see
`building`): nothing of this project is imported here.

A fixture is two files. ``NAME.zip`` has each distinct file once, as
``blobs/<sha256>``, and ``states/<number>.json`` with the paths of one state.
``NAME.json`` has, per state, its name, the rows that the writer itself reads, and
what else the program tells about it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import json
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of each zip entry, so that it says nothing about the machine."""

ROOT = "/table-of-a-fixture".ljust(200, "-")
"""Stands for the table's folder in files that name absolute paths.

Of fixed length: the folder of a test replaces it, padded to the same length.
"""


def plain(value: Any) -> Any:
    """A value as JSON: decimals and times as text."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return value


class Capture:
    """Collects the states of one table and writes the fixture.

    Args:
        table: The table's folder.
        keep: Whether a file of this path in the table belongs to the fixture.
        change: Makes the kept bytes of a file, given its path and its bytes.
    """

    def __init__(
        self,
        table: Path,
        keep: Callable[[str], bool] = lambda _: True,
        change: Callable[[str, bytes], bytes] = lambda _, data: data,
    ) -> None:
        self.table = table
        self._keep, self._change = keep, change
        self._blobs: dict[str, bytes] = {}
        self._files: list[dict[str, str]] = []
        self._states: list[dict[str, Any]] = []

    def state(
        self, name: str, rows: Iterable[Mapping[str, Any]], **facts: object
    ) -> None:
        """Keeps the files as they are now.

        Args:
            name: What was done to the table since the state before.
            rows: The rows of the table, as its own writer reads them.
            facts: What else is known about the state.
        """
        files = {}
        for path in sorted(self.table.rglob("*")):
            relative = path.relative_to(self.table).as_posix()
            if path.is_file() and not path.name.endswith(".crc"):
                if not self._keep(relative):
                    continue
                data = self._change(relative, path.read_bytes())
                digest = hashlib.sha256(data).hexdigest()
                self._blobs[digest] = data
                files[relative] = digest
        self._files.append(files)
        plains = [{key: plain(value) for key, value in row.items()} for row in rows]
        self._states.append({"name": name, **facts, "rows": plains})

    def save(self, folder: Path, written_by: str) -> None:
        """Writes the fixture, named as the table, into a folder."""
        name = self.table.name
        packed = zipfile.ZipFile(
            folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
        )
        with packed:
            for number, files in enumerate(self._files):
                entry = json.dumps(files, indent=0).encode()
                packed.writestr(_entry(f"states/{number}.json"), entry)
            for digest, data in sorted(self._blobs.items()):
                packed.writestr(_entry(f"blobs/{digest}"), data)
        lines = ",\n".join(f"  {json.dumps(state)}" for state in self._states)
        head = json.dumps(written_by)
        text = f'{{"written_by": {head}, "states": [\n{lines}\n]}}\n'
        (folder / f"{name}.json").write_text(text)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
