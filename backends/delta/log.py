"""The commits of a Delta table, as the files of its log state them."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import (
    FormatRefused,
    OffsetOutOfRange,
    Unsupported,
)
from streamfactory.tables import Kept, Oldest, check_size, missing_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.tables import TableFiles

FOLDER: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\..+)?\.parquet")
_KEPT: Final = 64
"""Commits whose actions are kept: a commit is read by plans and by readers."""
_LAST_MS: Final = 253_402_300_800_000
"""The year 10000: later times are damaged."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What one commit did."""

    version: int
    time_ms: int | None
    add: list[Mapping[str, Any]] = field(default_factory=list)
    remove: list[Mapping[str, Any]] = field(default_factory=list)
    cdc: list[Mapping[str, Any]] = field(default_factory=list)
    metadata: Mapping[str, Any] | None = None
    protocol: bool = False
    """Whether it changed what a reader must support."""


@final
class DeltaLog:
    """Finds and reads commits. Thread-safe.

    Args:
        files: Of the table.
        most: Bytes that one commit may have.
    """

    def __init__(self, files: TableFiles, most: int) -> None:
        self._files = files
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
            stamp = self._files.stamp(_path(self._newest)) if self._stamp else None
            if stamp is None or stamp != self._stamp:
                self.generation += 1
                self._kept.clear()
                self._stamp = None
                self._newest = max(self._listed()[0])
                self._stamp = self._files.stamp(_path(self._newest))
            while stamp := self._files.stamp(_path(self._newest + 1)):
                check_size(_path(self._newest + 1), stamp[0], self._most)
                self._newest, self._stamp = self._newest + 1, stamp
            return self._newest

    def oldest(self) -> Oldest:
        """The first version that can be listed, and all versions behind it."""
        commits, checkpoints = self._listed()
        newest = max(commits)
        first = newest
        while first - 1 in commits:
            first -= 1
        if first > 0:
            # The state before the first commit that is left comes from a checkpoint.
            usable = [version for version in checkpoints if version >= first - 1]
            first = min(usable, default=newest)
        return Oldest(first, first in commits, created=first == 0)

    def read(self, version: int) -> Actions:
        """The actions of a commit.

        Raises:
            OffsetOutOfRange: data_loss; the log was cleaned.
            FormatRefused: permanent; the file is too long, or no commit.
        """
        kept = self._kept.get(version)
        if kept is not None:
            return kept
        try:
            content = self._files.read(_path(version), self._most)
        except FileNotFoundError as error:
            what = f"commit {version} is no longer in the log of the table"
            raise OffsetOutOfRange(what) from error
        actions = _parsed(version, content)
        if actions.time_ms is None:
            actions = replace(actions, time_ms=self._modified_ms(version))
        return self._kept.add(version, actions)

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

    def _modified_ms(self, version: int) -> int | None:
        """When the file of a commit was written: its time, where it states none."""
        stamp = self._files.stamp(_path(version))
        return stamp[1] // 1_000_000 if stamp and stamp[1] else None

    def _listed(self) -> tuple[set[int], set[int]]:
        names = self._files.sizes(FOLDER)
        for name, size in names.items():
            if name.endswith(".json"):  # deltalake reads these, and has no limit
                check_size(f"{FOLDER}/{name}", size, self._most)
        commits = {int(m[1]) for name in names if (m := _COMMIT.fullmatch(name))}
        found = (_CHECKPOINT.fullmatch(name) for name in names)
        checkpoints = {int(m[1]) for m in found if m}
        if not commits:
            if names:
                what = f"the log of the table at {self._files.location!r} has no commit"
                raise FormatRefused(what)
            raise missing_table(self._files, "delta", f"{FOLDER} folder")
        return commits, checkpoints


def _path(version: int) -> str:
    return f"{FOLDER}/{version:020}.json"


def _parsed(version: int, content: bytes) -> Actions:
    lists: dict[str, list[Mapping[str, Any]]] = {"add": [], "remove": [], "cdc": []}
    metadata, time_ms, protocol = None, None, False
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        action = _action(version, number, line)
        for name, body in action.items():
            if name in lists:
                lists[name].append(body)
            elif name == "metaData":
                metadata = body
            elif name == "protocol":
                protocol = True
            elif name == "commitInfo":
                time = body.get("inCommitTimestamp") or body.get("timestamp")
                time_ms = time if type(time) is int and 0 < time < _LAST_MS else None
    return Actions(version, time_ms, **lists, metadata=metadata, protocol=protocol)


def _action(version: int, number: int, line: bytes) -> dict[str, Mapping[str, Any]]:
    cause: Exception | None = None
    try:
        action = json.loads(line)
    except (ValueError, RecursionError) as error:
        action, cause = None, error
    if not isinstance(action, dict) or not all(
        isinstance(body, dict) for body in action.values()
    ):
        what = f"commit {version} of the table is damaged: line {number} is no action"
        raise FormatRefused(what) from cause
    return action
