"""The commits of a Delta table, as the files of its log state them."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from streamfactory.backends.delta.actions import (
    MOST_VERSIONS,
    Damaged,
    File,
    Metadata,
    Protocol,
    damaged,
    file_of,
    metadata_of,
    protocol_of,
    time_of,
    writer_of,
)
from streamfactory.spi import FormatRefused, OffsetOutOfRange, Unsupported
from streamfactory.tables import Kept, Oldest, missing_table, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.tables import TableFiles

FOLDER: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9A-Fa-f-]{36})?\.(?:parquet|json)"
)
_KEPT: Final = 64
"""Commits whose actions are kept: a commit is read by plans and by readers."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What one commit did, or what a file of a checkpoint has."""

    version: int
    time_ms: int | None = None
    add: list[File] = field(default_factory=list)
    remove: list[File] = field(default_factory=list)
    cdc: list[File] = field(default_factory=list)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    writers: Mapping[str, int] = field(default_factory=dict)
    """Versions of applications, by their ids: actions ``txn``."""
    sidecars: list[str] = field(default_factory=list)
    """Paths of the other files of a checkpoint."""


class Listing(NamedTuple):
    """The files of a log at one look."""

    commits: set[int]
    checkpoints: dict[int, list[str]]
    """By version: the files of a checkpoint that is complete."""


@final
class DeltaLog:
    """Finds and reads commits. Thread-safe.

    Args:
        files: Of the table.
        most: Bytes that one commit may have.
    """

    def __init__(self, files: TableFiles, most: int) -> None:
        self.files = files
        self._most = most
        self._lock = threading.Lock()
        self._newest = -1
        self._stamp: tuple[int, int] | None = None
        """Of the last commit: another one there is that of another table."""
        self._kept: Kept[Actions] = Kept(_KEPT)
        self.generation = 0
        """Changes when the table was found to be recreated."""

    def newest(self) -> int:
        """The last version, looked up now.

        Raises:
            TopicNotFound: permanent; there is no log.
        """
        with self._lock:
            stamp = self.files.stamp(_path(self._newest)) if self._stamp else None
            if stamp is None or stamp != self._stamp:
                self.generation += 1
                self._kept.clear()
                self._stamp = None
                self._newest = max(self.listed().commits)
                self._stamp = self.files.stamp(_path(self._newest))
            while stamp := self.files.stamp(_path(self._newest + 1)):
                self._newest, self._stamp = self._newest + 1, stamp
            return self._newest

    def oldest(self) -> Oldest:
        """The first version that can be listed, and all versions behind it."""
        commits, checkpoints = self.listed()
        newest = max(commits)
        first = newest
        # A listing may lack a commit that was added meanwhile, and have a later one.
        while first and (first - 1 in commits or self.files.exists(_path(first - 1))):
            first -= 1
        if first > 0:
            # The state before the first commit that is left comes from a checkpoint.
            usable = [version for version in checkpoints if version >= first - 1]
            first = min(usable, default=newest)
        is_left = first in commits or self.files.exists(_path(first))
        return Oldest(first, is_left, created=first == 0)

    def read(self, version: int) -> Actions:
        """The actions of a commit.

        Raises:
            OffsetOutOfRange: data_loss; the log was cleaned.
            FormatRefused: permanent; the file is too long, or no commit.
            CorruptData: data_loss; an action is damaged.
        """
        kept = self._kept.get(version)
        if kept is not None:
            return kept
        try:
            actions = self.read_file(version, _path(version))
        except FileNotFoundError as error:
            what = f"commit {version} is no longer in the log of the table"
            raise OffsetOutOfRange(what) from error
        if actions.time_ms is None:
            actions = replace(actions, time_ms=self._modified_ms(version))
        return self._kept.add(version, actions)

    def read_file(self, version: int, path: str) -> Actions:
        """The actions of a file in JSON.

        Raises:
            FileNotFoundError: It does not exist.
            FormatRefused: permanent; the file is too long, or no commit.
            CorruptData: data_loss; an action is damaged.
        """
        content = self.files.read(path, self._most)
        return gathered(version, _actions(version, content))

    def at_time(self, timestamp_ms: int) -> int | None:
        """The first version at or after a time; None where there is none.

        Raises:
            Unsupported: misuse; a commit has no time.
        """
        low, high = self.oldest().ordinal, self.newest() + 1
        end = high
        while low < high:
            middle = (low + high) // 2
            time_ms = self.read(middle).time_ms
            if time_ms is None:
                what = f"commit {middle} of the table has no time"
                raise Unsupported(what, remedy="start with start.commit=VERSION")
            if time_ms < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low if low < end else None

    def listed(self) -> Listing:
        """The commits and checkpoints that there are now.

        Raises:
            TopicNotFound: permanent; there is no log.
            FormatRefused: permanent; it has no commit, or a version beyond what an
                offset can name.
        """
        names = self.files.sizes(FOLDER)
        commits = {int(m[1]) for name in names if (m := _COMMIT.fullmatch(name))}
        if not commits:
            if names:
                what = f"the log of the table at {self.files.location!r} has no commit"
                raise FormatRefused(what)
            raise missing_table(self.files, "delta", f"{FOLDER} folder")
        if max(commits) > MOST_VERSIONS:
            what = f"the log of the table at {self.files.location!r} has the version "
            what += f"{max(commits)}: versions beyond {MOST_VERSIONS} are unsupported"
            raise FormatRefused(what)
        return Listing(commits, _checkpoints(names))

    def _modified_ms(self, version: int) -> int | None:
        """When the file of a commit was written: its time, where it states none."""
        stamp = self.files.stamp(_path(version))
        return stamp[1] // 1_000_000 if stamp and stamp[1] else None


def gathered(version: int, found: Iterator[tuple[str, Mapping[str, Any]]]) -> Actions:
    """Validate actions, each a name and a body.

    Raises:
        CorruptData: data_loss; an action is damaged.
    """
    lists: dict[str, list[File]] = {"add": [], "remove": [], "cdc": []}
    metadata = protocol = time_ms = None
    sidecars: list[str] = []
    writers: dict[str, int] = {}
    try:
        for name, body in found:
            if name in lists:
                lists[name].append(file_of(body))
            elif name == "metaData":
                metadata = metadata_of(body)
            elif name == "protocol":
                protocol = protocol_of(body)
            elif name == "commitInfo":
                time_ms = time_of(body)
            elif name == "txn":
                writer, number = writer_of(body)
                writers[writer] = number
            elif name == "sidecar":
                sidecars.append(str(body.get("path")))
    except Damaged as error:
        raise damaged(version, error) from error
    return Actions(
        version,
        time_ms,
        **lists,
        metadata=metadata,
        protocol=protocol,
        writers=writers,
        sidecars=sidecars,
    )


def _path(version: int) -> str:
    return f"{FOLDER}/{version:020}.json"


def _checkpoints(names: Mapping[str, int]) -> dict[int, list[str]]:
    """The checkpoints that are complete, by version: one of several of a version."""
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        matched = _CHECKPOINT.fullmatch(name)
        if matched is None:
            continue
        version, path = int(matched[1]), f"{FOLDER}/{name}"
        if matched[2] is None:
            whole[version] = [path]
        else:
            parts.setdefault((version, int(matched[3])), []).append(path)
    for (version, count), found in parts.items():
        if len(found) == count:
            whole.setdefault(version, found)
    return whole


def _actions(version: int, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            yield from _action(version, number, line).items()


def _action(version: int, number: int, line: bytes) -> dict[str, Mapping[str, Any]]:
    cause: Exception | None = None
    try:
        action = parse_json(line)
    except (ValueError, RecursionError) as error:
        action, cause = None, error
    if not isinstance(action, dict) or not all(
        isinstance(body, dict) for body in action.values()
    ):
        what = f"commit {version} of the table is damaged: line {number} is no action"
        raise FormatRefused(what) from cause
    return action
