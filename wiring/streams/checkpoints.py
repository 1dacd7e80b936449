"""Checkpoint stores: the framework's files, or a backend's store with retries."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.arrowlog.disk.storage import remedy_of
from streamfactory.spi import (
    Checkpoint,
    CheckpointFailed,
    CheckpointStore,
    CorruptData,
    MisuseError,
    Position,
    PositionRefused,
    WriterFenced,
)
from streamfactory.wiring.core.durable import (
    locked_folder,
    make_folder,
    replace_file,
    sync_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import ConsumerFactory, StreamConfig
    from streamfactory.wiring.core.guard import Guard

T = TypeVar("T")
"""What a call of an author's store answers."""

_VERSION: Final = 1
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MEMBERS: Final = frozenset({"version", "position", "generation"})
_SUFFIX: Final = ".json"
_MOST: Final = 64 << 20
"""Bytes that a checkpoint may have."""


@final
class FileCheckpointStore(CheckpointStore):
    """Stores checkpoints in files ``<folder>/<group>/<instance>.json``.

    Written to a temporary name, fsynced, renamed over the old, folder fsynced (rule
    P3). Instances of one group write different files, so they never block each other.

    A store that has loaded a group replaces only checkpoints that it loaded or saved.
    So a run is fenced by the first save of a later one, and by a change of its
    position.

    Args:
        folder: Created when the first checkpoint is saved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, dict[str, set[bytes]]] = {}
        """Digests of checkpoints, by group and instance."""

    def load(self, group: str) -> Mapping[str, Checkpoint]:
        """The checkpoints of a group, by instance."""
        folder = self._group(group)
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - a path's own way hides errors
        except FileNotFoundError:
            return {}
        except OSError as error:
            msg = f"the checkpoints in {folder}"
            raise _unreadable(msg, error) from error
        # Files with a leading dot are incomplete checkpoints that a crash left.
        found = [n for n in names if n.endswith(_SUFFIX) and not n.startswith(".")]
        contents = {n.removesuffix(_SUFFIX): _content(folder / n) for n in found}
        self._known[group] = {name: {_digest(c)} for name, c in contents.items()}
        return {
            name: _parsed(folder / f"{name}{_SUFFIX}", contents[name])
            for name in contents
        }

    def groups(self) -> Sequence[str]:
        """Names of the folders that have checkpoints, sorted."""
        try:
            with os.scandir(self._folder) as entries:
                names = sorted(
                    e.name for e in entries if e.is_dir() and _SAFE.fullmatch(e.name)
                )
            return [name for name in names if has_checkpoints(self._folder / name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            msg = f"the checkpoints in {self._folder}"
            raise _unreadable(msg, error) from error

    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        """Replace an instance's checkpoint.

        Raises:
            WriterFenced: permanent; another store has saved the instance meanwhile.
            CheckpointFailed: permanent; it was not saved, or may not be durable.
            PositionRefused: permanent; it was not saved: the one that it would replace
                cannot be read.
        """
        path = self._group(group) / f"{_safe('instance', instance)}{_SUFFIX}"
        body = {
            "version": _VERSION,
            "generation": checkpoint.generation,
            "position": json.loads(checkpoint.position.to_json()),
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":")) + "\n"
        content = text.encode()
        try:
            make_folder(path.parent)
            replace_file(path, content, self._unchanged(group, instance, path, content))
        except OSError as error:
            msg = f"the checkpoint {path} could not be saved: {_why(error)}"
            raise CheckpointFailed(
                msg, remedy="save it again; the previous one remains valid"
            ) from error
        try:
            sync_folder(path.parent)
        except OSError as error:
            msg = f"the checkpoint {path} may not be durable: {_why(error)}"
            raise CheckpointFailed(msg, remedy="save it again") from error

    @contextmanager
    def _unchanged(
        self, group: str, instance: str, path: Path, content: bytes
    ) -> Iterator[None]:
        """Make the comparison of a known checkpoint and its replacement one step."""
        instances = self._known.get(group)
        if instances is None:
            yield  # this store never loaded the group
            return
        known = instances.setdefault(instance, set())
        with locked_folder(path.parent):
            # A checkpoint that was deleted is saved again.
            if path.exists() and _digest(_content(path)) not in known:
                msg = f"the checkpoint of instance {instance!r} of group {group!r} "
                msg += "was replaced by a later run, or by a change of its position"
                remedy = "run each instance in only one process at a time"
                raise WriterFenced(msg, remedy=remedy)
            known.add(_digest(content))  # also if syncing the folder fails after this
            yield
        known.clear()
        known.add(_digest(content))

    def _group(self, group: str) -> Path:
        return self._folder / _safe("group", group)


def has_checkpoints(folder: Path) -> bool:
    """Whether a folder has checkpoints of the instances of a group."""
    if not folder.is_dir():
        return False
    names = os.listdir(folder)  # noqa: PTH208 - a path's own way hides errors
    return any(n.endswith(_SUFFIX) and not n.startswith(".") for n in names)


def merged(instances: Mapping[str, Checkpoint]) -> Position:
    """The position of a group: the newest checkpoint of each partition."""
    position = Position()
    for one in sorted(instances.values(), key=lambda c: c.generation):
        position = position.merge(one.position)
    return position


@final
class GuardedCheckpointStore(CheckpointStore):
    """A backend's store: errors translated, transient ones retried.

    Args:
        author: The backend's store.
        guard: Translates errors and retries.
        timeout: Seconds for one call with its retries.
    """

    def __init__(self, author: CheckpointStore, guard: Guard, timeout: float) -> None:
        self._author = author
        self._guard = guard
        self._timeout = timeout
        self._closed = threading.Event()

    def claim(self, group: str, instance: str) -> None:
        """See `CheckpointStore`."""
        self._call(
            f"claim instance {instance!r} of group {group!r}",
            lambda: self._author.claim(group, instance),
        )

    def load(self, group: str) -> Mapping[str, Checkpoint]:
        """See `CheckpointStore`."""
        return self._call(
            f"load the checkpoints of group {group!r}", lambda: self._author.load(group)
        )

    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore`."""
        self._call(
            f"save the checkpoint of group {group!r}",
            lambda: self._author.save(group, instance, checkpoint),
        )

    def groups(self) -> Sequence[str]:
        """See `CheckpointStore`."""
        return self._call("list the groups", self._author.groups)

    def delete(self, group: str) -> None:
        """See `CheckpointStore`."""
        self._call(
            f"delete the checkpoints of group {group!r}",
            lambda: self._author.delete(group),
        )

    def close(self) -> None:
        """See `CheckpointStore`."""
        if not self._closed.is_set():
            self._closed.set()
            with self._guard.border():
                self._author.close()

    def _call(self, operation: str, function: Callable[[], T]) -> T:
        return self._guard.call(
            operation, function, closed=self._closed, timeout=self._timeout
        )


def stream_checkpoints(
    factory: ConsumerFactory, guard: Guard, config: StreamConfig
) -> GuardedCheckpointStore | None:
    """Return the stream's own store; None if its type has none."""
    with guard.border():
        made = factory.create_checkpoint_store()
    if made is None:
        return None
    return GuardedCheckpointStore(
        made, guard, config["connection.timeout.millis"] / 1000
    )


def _safe(what: str, name: str) -> str:
    # The name becomes a file name, and must not be a path.
    if _SAFE.fullmatch(name) is None:
        msg = f"the {what} {name!r} cannot name a file"
        raise MisuseError(msg, remedy="use letters, digits, dots, dashes, underscores")
    return name


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _content(path: Path) -> bytes:
    """What a checkpoint's file has: it is regular, and no link."""
    try:
        folders = Folders(path.parent.absolute(), Modes())
        descriptor, status = folders.read(str(path.absolute()))
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            if status.st_size <= _MOST:
                return file.read()
        why = f"it has {status.st_size} bytes, more than {_MOST}"
    except CorruptData as error:
        why = error.what
    except OSError as error:
        msg = f"the checkpoint {path}"
        raise _unreadable(msg, error) from error
    msg = f"the checkpoint {path} cannot be read: {why}"
    raise PositionRefused(msg)


def _unreadable(what: str, error: OSError) -> PositionRefused:
    # Not the usual remedy: what a disk or a permission keeps away may be intact.
    remedy = remedy_of(error) or "check the path"
    return PositionRefused(f"{what} cannot be read: {_why(error)}", remedy=remedy)


def _parsed(path: Path, content: bytes) -> Checkpoint:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        msg = f"the checkpoint {path} is not JSON"
        raise PositionRefused(msg) from error
    version = body.get("version") if isinstance(body, dict) else None
    if type(version) is int and version > _VERSION:
        msg = f"the checkpoint {path} has version {version}, expected {_VERSION}"
        raise PositionRefused(msg, remedy="upgrade streamfactory")
    whole = type(version) is int and version == _VERSION and set(body) == _MEMBERS
    if not whole or type(body["generation"]) is not int or body["generation"] < 0:
        msg = f"{path} is not a checkpoint"
        raise PositionRefused(msg)
    try:
        position = Position.from_json(json.dumps(body["position"]))
    except PositionRefused as error:
        msg = f"the checkpoint {path}: {error.what}"
        raise PositionRefused(msg) from error
    return Checkpoint(position, body["generation"])
