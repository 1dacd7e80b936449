"""Opens the fixtures of tables that the formats' own writers made.

`writers/` has the programs that make them and `tests/data/tables` the files. A test
steps a folder through the states of a table, as its writer left them one after
another::

    table = Fixture("hudi-cow", tmp_path / "trips")
    table.show(0)
    table.show("upsert")
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from tests.tables.writers.capture import ROOT

DATA = Path(__file__).parents[1] / "data" / "tables"
_ROOT = ROOT.encode()


@dataclass(frozen=True)
class State:
    """What the writer of a table tells about one state.

    Attributes:
        name: What was done to the table since the state before.
        rows: The rows as the writer reads them; decimals and times are text.
        facts: What else is known, such as Delta's version or Iceberg's snapshot.
    """

    name: str
    rows: list[dict[str, Any]]
    facts: dict[str, Any]


class Fixture:
    """A table whose folder shows one state after another.

    Args:
        name: Of the files in ``tests/data/tables``.
        parent: The folder in which the table's own folder is created. Its name is
            padded to a fixed length: files that name absolute paths have room for it.

    Attributes:
        states: What the writer tells about each state.
        folder: The table.
    """

    def __init__(self, name: str, parent: Path) -> None:
        self.states = _states(name)
        self._name = name
        room = len(_ROOT) - len(f"{parent.absolute()}/")
        self.folder = parent.absolute() / name.ljust(room, "-")
        if len(str(self.folder)) != len(_ROOT):
            msg = f"the folder for a fixture has a path that is too long: {parent}"
            raise ValueError(msg)

    def show(self, state: int | str) -> State:
        """Has the folder hold the files of a state, by its number or its name.

        Files that both states have are left alone; new ones appear before others
        disappear, as under a writer.
        """
        names = [found.name for found in self.states]
        number = names.index(state) if isinstance(state, str) else state
        files = _files(self._name)[number]
        root = str(self.folder).encode()
        with zipfile.ZipFile(DATA / f"{self._name}.zip") as packed:
            for path, digest in files.items():
                target = self.folder / _safe(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                data = packed.read(f"blobs/{digest}").replace(_ROOT, root)
                if not target.is_file() or target.read_bytes() != data:
                    part = target.with_name(f"{target.name}.part")
                    part.write_bytes(data)
                    part.rename(target)
        for found in sorted(self.folder.rglob("*"), reverse=True):
            if found.is_dir():
                if not any(found.iterdir()):
                    found.rmdir()
            elif found.relative_to(self.folder).as_posix() not in files:
                found.unlink()
        return self.states[number]


@cache
def _states(name: str) -> list[State]:
    text = json.loads((DATA / f"{name}.json").read_text())
    return [
        State(state.pop("name"), state.pop("rows"), state) for state in text["states"]
    ]


@cache
def _files(name: str) -> list[dict[str, str]]:
    with zipfile.ZipFile(DATA / f"{name}.zip") as packed:
        entries = [entry for entry in packed.namelist() if entry.startswith("states/")]
        return [
            json.loads(packed.read(f"states/{number}.json"))
            for number in range(len(entries))
        ]


def _safe(path: str) -> PurePosixPath:
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts:
        msg = f"the fixture has a path outside of the table: {path}"
        raise ValueError(msg)
    return found
