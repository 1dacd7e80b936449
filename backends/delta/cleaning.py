"""Cleans the log of a Delta table: finds the files that only old versions need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.backends.delta.log import FOLDER
from streamfactory.backends.delta.replay import live_files
from streamfactory.backends.delta.vectors import vector_path
from streamfactory.tables import relative_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.backends.delta.actions import File
    from streamfactory.backends.delta.log import DeltaLog

_OF_VERSION: Final = re.compile(
    r"(\d{20})\.(?:json|crc|checkpoint(?:\.[0-9A-Fa-f.-]+)?\.(?:parquet|json))"
)
"""Names of files of the log that are those of one version."""


def files_of_old(log: DeltaLog, ordinal: int) -> set[str]:
    """The files that versions before one have, and it and later ones have not.

    A file that one of these removed is one of its files, as streams read its rows as
    deleted; unless it was merged into others.

    Args:
        log: Of the table.
        ordinal: A version.

    Returns:
        Paths below the table.

    Raises:
        FormatRefused: permanent; a file lies outside of the table.
    """
    location, newest = log.files.location, log.newest()
    commits = log.listed().commits
    found: set[str] = set()
    for version in sorted(one for one in commits if one <= ordinal):
        actions = log.read(version)
        found |= _paths([*actions.remove, *actions.cdc], location)
    found -= _paths(live_files(log, ordinal), location)
    for version in range(ordinal, newest + 1):
        actions = log.read(version)
        changed = [one for one in actions.remove if one.changes]
        found -= _paths([*actions.add, *changed, *actions.cdc], location)
    return found


def log_of_old(log: DeltaLog, ordinal: int) -> list[str]:
    """The files of the log that are those of versions before one; the last one first.

    So that what is left when the removal is interrupted ends at a version.
    """
    names = [name for name in log.files.sizes(FOLDER) if _OF_VERSION.fullmatch(name)]
    old = sorted((name for name in names if int(name[:20]) < ordinal), reverse=True)
    return [f"{FOLDER}/{name}" for name in old]


def _paths(files: Iterable[File], location: str) -> set[str]:
    return {path for one in files for path in _paths_of(one, location)}


def _paths_of(file: File, location: str) -> Iterator[str]:
    yield relative_path(file.path, location)
    if file.vector is not None and file.vector.kind != "i":
        yield vector_path(file.vector, location)
