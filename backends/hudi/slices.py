"""The files that hold the rows of a file group as of a commit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.backends.hudi.instants import Instant, ordinals, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

_ATTEMPT: Final = r"\d+-\d+-\d+"
_BASE: Final = re.compile(rf"(?P<id>[^/]+)_{_ATTEMPT}_(?P<time>\d{{14,17}})\.parquet")
_LOG: Final = re.compile(
    rf"\.(?P<id>[^/]+)_(?P<time>\d{{14,17}})\.log\.(?P<version>\d{{1,9}})"
    rf"(?:_{_ATTEMPT})?"
)


class File(NamedTuple):
    """A base file or a log file."""

    name: str
    time: str
    """Of the instant that wrote it; of the base file, for a log file of table versions
    before 8."""
    version: int = 0
    """Of a log file."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files of one file group that exist now."""

    id: str
    bases: Sequence[File]
    logs: Sequence[File]


class Slice(NamedTuple):
    """What is merged to the rows of a file group as of a commit. Pickles."""

    base: str | None
    """Path of the base file; None where the group has log files only."""
    logs: tuple[str, ...]
    """Paths of the log files, in order."""


def file_groups(names: Iterable[str]) -> dict[str, FileGroup]:
    """The file groups among the files of a partition, by their id."""
    bases: dict[str, list[File]] = {}
    logs: dict[str, list[File]] = {}
    for name in names:
        if matched := _BASE.fullmatch(name):
            bases.setdefault(matched["id"], []).append(File(name, matched["time"]))
        elif matched := _LOG.fullmatch(name):
            file = File(name, matched["time"], int(matched["version"]))
            logs.setdefault(matched["id"], []).append(file)
    return {
        key: FileGroup(key, bases.get(key, ()), logs.get(key, ()))
        for key in sorted({*bases, *logs})
    }


def written_at(found: Slice) -> str:
    """The instant of the base file of a slice."""
    return file_time(found.base or "")


def file_time(path: str) -> str:
    """The instant that a base file, or a log file, names; empty for another path."""
    name = path.rpartition("/")[2]
    matched = _BASE.fullmatch(name) or _LOG.fullmatch(name)
    return "" if matched is None else matched["time"]


class Moment:
    """What of the table's files counts as of a commit.

    Args:
        known: All instants that are completed, by their times.
        last: The commit; None is the table before its first.
        until: The next commit of rows; None where there is none.
        first: The earliest of the instants that are listed.
        layout: Of the timeline: 1 before table version 8.
        merge_on_read: Whether ``commit`` is what a compaction completes as.
    """

    def __init__(
        self,
        known: Mapping[str, Instant],
        last: Instant | None,
        until: Instant | None,
        *,
        first: str,
        layout: int,
        merge_on_read: bool,
    ) -> None:
        self.last, self._until = last, until
        self._named_by_base = layout == 1
        self._compaction = "commit" if merge_on_read else None
        self._logs = merge_on_read
        self._known = known
        self._first = first

    def slice(self, folder: str, group: FileGroup) -> Slice | None:
        """The files of a group as of the commit; None where it has no rows then."""
        bases = [base for base in group.bases if self._counts(base.time)]
        base = max(bases, key=lambda file: parse_time(file.time), default=None)
        logs = [log for log in group.logs if self._logs and self._belongs(log, base)]
        if base is None and not logs:
            return None
        logs.sort(key=lambda log: (self._completed(log.time), log.version, log.name))
        prefix = f"{folder}/" if folder else ""
        return Slice(
            None if base is None else prefix + base.name,
            tuple(prefix + log.name for log in logs),
        )

    def _counts(self, time: str) -> bool:
        """Whether what an instant wrote is part of the table as of the commit."""
        instant = self._known.get(time)
        if instant is None:
            # Archived instants are older than all that are listed; others, that are
            # not listed, are pending or failed.
            return self.last is not None and time < self._first
        if instant.action == self._compaction:
            # It has the rows of all commits before it was requested, and no others.
            return self._until is None or parse_time(time) < self._until.at
        return self.last is not None and instant.at <= self.last.at

    def _belongs(self, log: File, base: File | None) -> bool:
        if self._named_by_base:
            # Its blocks name their instants: the merger leaves later ones out. All of
            # them are later than the base file.
            if self.last is None or parse_time(log.time) > self.last.at:
                return False
            return base is None or log.time == base.time
        if not self._counts(log.time):
            return False
        return base is None or self._completed(log.time) >= parse_time(base.time)

    def _completed(self, time: str) -> datetime:
        instant = self._known.get(time)
        return parse_time(time) if instant is None else instant.at


class View:
    """The completed instants at one look, with those that commit rows numbered.

    Args:
        instants: In the order in which they were completed.
        properties: Of the table.
        savepoints: Whether there are savepoints: a commit behind one may be archived
            although the one before it is listed.
        whole: Whether the archived instants are among them.
    """

    def __init__(
        self,
        instants: list[Instant],
        properties: Mapping[str, str],
        *,
        savepoints: bool = False,
        whole: bool = False,
    ) -> None:
        self.all, self.properties = instants, properties
        self.savepoints, self.whole = savepoints, whole
        self.layout = int(properties.get("hoodie.timeline.layout.version", "1"))
        self.merge_on_read = properties["hoodie.table.type"] == "MERGE_ON_READ"
        # A compaction completes as a commit, as nothing else of such a table does.
        self.commits = [
            one
            for one in instants
            if not (self.merge_on_read and one.action == "commit")
        ]
        self.ordinals = ordinals(self.commits)
        self.index = {ordinal: i for i, ordinal in enumerate(self.ordinals)}
        self._numbered_from = self._first_certain()
        self._known = {one.time: one for one in instants}
        self._first = min(self._known, default="")

    def shows(
        self,
        instants: list[Instant],
        properties: Mapping[str, str],
        *,
        savepoints: bool,
    ) -> bool:
        """Whether the timeline is as it was at this look."""
        now = (instants, properties, savepoints)
        return now == (self.all, self.properties, self.savepoints)

    def numbers(self, ordinal: int) -> bool:
        """Whether an ordinal surely is that of the commit which this view gives it.

        Ordinals of commits within one slot depend on those before them, which may be
        archived.
        """
        return ordinal in self.index and (self.whole or ordinal >= self._numbered_from)

    def _first_certain(self) -> int:
        """The first ordinal that does not depend on commits that are not listed."""
        for before, ordinal in pairwise(self.ordinals):
            if ordinal > before + 1:
                return ordinal
        return self.ordinals[-1] + 1 if self.ordinals else 0

    def moment(self, index: int) -> Moment:
        """The table as of the commit at an index; -1 is before the first."""
        following = index + 1 < len(self.commits)
        return Moment(
            self._known,
            self.commits[index] if index >= 0 else None,
            self.commits[index + 1] if following else None,
            first=self._first,
            layout=self.layout,
            merge_on_read=self.merge_on_read,
        )
