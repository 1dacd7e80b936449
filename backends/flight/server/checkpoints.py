"""Checkpoints of groups of readers, on the server's log.

Each group has its own log, apart from the topics: without rows, and with one writer
for each instance, whose last commit is its checkpoint. The epoch of the commit is the
generation of the checkpoint.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog import Epoch
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.spi import (
    CheckpointFailed,
    FormatRefused,
    MessageTooLarge,
    MisuseError,
    Position,
    StorageFailed,
    Summary,
    TopicNotFound,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.spi import Partition

_LONGEST_NAME: Final = 249
"""Maximum characters: Kafka's limit, which file systems support."""
_MOST_INSTANCES: Final = 10_000
"""Maximum instances of one group."""
_MOST_BYTES: Final = 8 << 20
"""Maximum bytes of all positions of a group: one message returns them."""
_FENCED_REMEDY: Final = "run each instance in only one process at a time"
_SCHEMA: Final = pa.schema({"nothing": pa.null()})


class CheckpointKeeper:
    """Claims, loads and saves the checkpoints of groups. Thread-safe.

    Args:
        store: Holds one log for each group; the caller closes it.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._sizes: dict[str, dict[str, int]] = {}
        """Bytes of each position, by group and instance."""

    def claim(self, request: m.ClaimCheckpoint) -> m.Done:
        """Fence earlier owners of an instance."""
        for name in (request.instance, request.owner):
            check_name(name)
        log = self._opened(request.group)
        self._reserve(log, request.instance)
        log.claim(request.instance, request.owner)
        return m.Done()

    def load(self, request: m.Group) -> m.Checkpoints:
        """All checkpoints of a group; none for a group without."""
        try:
            log = self._store.open(request.group)
        except TopicNotFound:
            return m.Checkpoints({})
        return m.Checkpoints(
            {
                instance: m.SavedCheckpoint(last.epoch, last.source_position.to_json())
                for instance, last in log.writers().items()
                if last.source_position is not None
            }
        )

    def save(self, request: m.SaveCheckpoint) -> m.Done:
        """Replace a checkpoint; the same one again, by its owner, has no effect.

        Raises:
            PositionRefused: permanent; the position is corrupt or newer.
            WriterFenced: permanent; another owner has claimed the instance, or has
                saved this generation.
            CheckpointFailed: permanent; the previous checkpoint stays valid.
        """
        for name in (request.instance, request.owner):
            check_name(name)
        position = Position.from_json(request.position)
        log = self._opened(request.group)
        self._reserve(log, request.instance, len(request.position.encode()))
        try:
            held = log.commit(
                Epoch(
                    request.instance,
                    request.generation,
                    [],
                    Summary(0),
                    request.owner,
                    position,
                )
            ).held
        except StorageFailed as error:
            msg = (
                f"the checkpoint of instance {request.instance!r} of group "
                f"{request.group!r} could not be saved: {error.what}"
            )
            remedy = "the previous checkpoint stays valid"
            raise CheckpointFailed(msg, remedy=remedy) from error
        if held is None or (held.epoch, held.source_position) == (
            request.generation,
            position,
        ):
            return m.Done()
        msg = (
            f"generation {request.generation} of instance {request.instance!r} of "
            f"group {request.group!r}: generation {held.epoch} was saved before"
        )
        raise WriterFenced(msg, remedy=_FENCED_REMEDY)

    def delete(self, request: m.Group) -> m.Done:
        """Remove all checkpoints of a group, if any."""
        with self._lock:
            with suppress(TopicNotFound):
                self._store.delete(request.group)
            self._sizes.pop(request.group, None)
        return m.Done()

    def groups(self) -> Sequence[str]:
        """Names of all groups, sorted."""
        return self._store.names()

    def offsets(self, group: str) -> Mapping[tuple[Partition, str | None], int]:
        """Next offsets of a group, by partition and incarnation.

        If several instances have a partition, the highest offset counts.

        Raises:
            TopicNotFound: permanent; there is no such group.
        """
        found: dict[tuple[Partition, str | None], int] = {}
        for last in self._store.open(group).writers().values():
            position = last.source_position or Position()
            for partition, offset in position.items():
                key = partition, position.incarnations.get(partition)
                found[key] = max(offset, found.get(key, 0))
        return found

    def _opened(self, group: str) -> Log:
        try:
            return self._store.open(group)
        except TopicNotFound:
            pass
        try:
            return self._store.create(group, _SCHEMA, 1)
        except MisuseError:  # another instance was first, or the name is unusable
            return self._store.open(group)

    def _reserve(self, log: Log, instance: str, size: int | None = None) -> None:
        """Count an instance, and its position before it is saved.

        Raises:
            MessageTooLarge: permanent; the group would have too much.
        """
        with self._lock:
            sizes = self._sizes.get(log.name)
            if sizes is None:
                sizes = self._sizes[log.name] = {
                    name: len((last.source_position or Position()).to_json())
                    for name, last in log.writers().items()
                }
            before = sizes.get(instance, 0)
            size = before if size is None else size
            total, count = sum(sizes.values()) - before + size, len(sizes)
            count += instance not in sizes
            if count > _MOST_INSTANCES or total > _MOST_BYTES:
                msg = (
                    f"group {log.name!r} would have {count} checkpoints of {total} "
                    f"bytes; {_MOST_INSTANCES} of {_MOST_BYTES} are allowed"
                )
                remedy = "divide the stream among several groups"
                raise MessageTooLarge(msg, remedy=remedy)
            sizes[instance] = size


def check_name(name: str) -> None:
    """Refuse what cannot name a topic, a group or an instance.

    Raises:
        FormatRefused: permanent.
    """
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        shown = name[:64] + "..." * (len(name) > 64)
        msg = (
            f"{shown!r} ({len(name)} characters) is not a valid name: a name has 1 to "
            f"{_LONGEST_NAME} printable characters"
        )
        raise FormatRefused(msg, remedy="choose another name")
