"""What the metadata of a commit states of each file group that it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.backends.hudi.instants import Instant

_REORGANIZE: Final = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})
"""Operations that write rows that the table has already."""


@dataclass(slots=True)
class Written:
    """What a commit wrote of one file group."""

    partition: str
    id: str
    path: str
    """Of the file, relative to the table."""
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    logged: int = 0
    """Records in log files: inserts and updates."""
    new: bool = False
    """Whether the group begins with it."""

    @property
    def base(self) -> bool:
        """Whether it is a base file."""
        return self.path.endswith(".parquet")

    @property
    def span(self) -> int:
        """Changed rows at the most."""
        return max(self.inserts + self.updates, self.logged) + self.deletes


@dataclass(frozen=True, slots=True)
class Effects:
    """What a commit did to the rows of the table."""

    written: list[Written]
    replaced: list[tuple[str, str]]
    """Partition and id of the file groups that it replaced."""
    reorganized: bool
    """Whether the table has the same rows before and after."""
    schema: str | None
    """Avro schema of the table, as JSON."""
    ids: str | None
    """Schema with the ids of columns, as JSON; None without schema evolution."""


def effects(instant: Instant, metadata: Mapping[str, Any]) -> Effects:
    """Validate the metadata of a commit.

    Raises:
        FormatRefused: permanent; it is damaged, or names files outside of the table.
    """
    try:
        return _effects(metadata)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        what = f"instant {instant.time} of the timeline is damaged: {error}"
        raise FormatRefused(what[:300]) from error


def _effects(metadata: Mapping[str, Any]) -> Effects:
    written: dict[tuple[str, str], Written] = {}
    for folder, stats in sorted((metadata.get("partitionToWriteStats") or {}).items()):
        partition = _folder(folder)
        for stat in sorted(stats, key=lambda stat: (stat["fileId"], stat["path"])):
            key = (partition, _name(stat["fileId"]))
            path = _path(stat["path"], partition)
            one = written.setdefault(key, Written(*key, path))
            one.path = path
            one.inserts += _count(stat, "numInserts")
            one.updates += _count(stat, "numUpdateWrites")
            one.deletes += _count(stat, "numDeletes")
            if one.base:
                one.new = stat.get("prevCommit") in (None, "", "null")
            else:
                one.logged += _count(stat, "numWrites")
    replaced = [
        (_folder(folder), _name(group))
        for folder, groups in sorted(
            (metadata.get("partitionToReplaceFileIds") or {}).items()
        )
        for group in sorted(groups)
    ]
    operation = metadata.get("operationType")
    extra = metadata.get("extraMetadata") or {}
    return Effects(
        list(written.values()),
        replaced,
        operation in _REORGANIZE or metadata.get("compacted") is True,
        extra.get("schema") or None,
        extra.get("latest_schema") or None,
    )


def _count(stat: Mapping[str, Any], name: str) -> int:
    found = stat.get(name) or 0
    if type(found) is not int or found < 0:
        what = f"{name} is {found!r}"
        raise ValueError(what)
    return found


def _folder(text: str) -> str:
    if text and any(part in ("", ".", "..", ".hoodie") for part in text.split("/")):
        what = f"a partition is {text[:200]!r}"
        raise ValueError(what)
    return _plain(text)


def _name(text: str) -> str:
    if not text or "/" in text:
        what = f"a file group is {text[:200]!r}"
        raise ValueError(what)
    return _plain(text)


def _path(text: str, partition: str) -> str:
    folder, _, name = text.rpartition("/")
    if folder != partition:
        what = f"a file of partition {partition!r} is {text[:200]!r}"
        raise ValueError(what)
    _name(name)
    return text


def _plain(text: str) -> str:
    if "\0" in text or "://" in text or "\\" in text:
        what = f"a path is {text[:200]!r}"
        raise ValueError(what)
    return text
