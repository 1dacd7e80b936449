"""Checkpoints in files: whole or not at all, and never silently replaced."""

from __future__ import annotations

import json
import os
import re
import uuid
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    Checkpoint,
    CheckpointFailed,
    CheckpointStore,
    MisuseError,
    Position,
    PositionRefused,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_VERSION: Final = 1
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MEMBERS: Final = frozenset({"version", "position", "generation", "applied"})


@final
class FileCheckpointStore(CheckpointStore):
    """One file an instance: ``<folder>/<group>/<instance>.json``.

    Written to a temporary name, fsynced, renamed over the old, folder fsynced (rule
    P3). Instances of one group write different files, so they never wait.

    Args:
        folder: Made when the first checkpoint is saved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, group: str) -> Sequence[Checkpoint]:
        """The checkpoints of a group, in the order of their files' names."""
        folder = self._group(group)
        if not folder.is_dir():
            return []
        return [_read(path) for path in sorted(folder.glob("*.json"))]

    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        """Replace an instance's checkpoint."""
        path = self._group(group) / f"{_safe('instance', instance)}.json"
        body = {
            "version": _VERSION,
            "generation": checkpoint.generation,
            "applied": list(checkpoint.applied),
            "position": json.loads(checkpoint.position.to_json()),
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":")) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, text.encode())
        except OSError as error:
            msg = f"the checkpoint {path} could not be saved: {error.strerror}"
            raise CheckpointFailed(
                msg, remedy="the previous one still holds"
            ) from error

    def _group(self, group: str) -> Path:
        return self._folder / _safe("group", group)


def _safe(what: str, name: str) -> str:
    # A name becomes a file's name: it cannot be a path.
    if _SAFE.fullmatch(name) is None:
        msg = f"the {what} {name!r} cannot name a file"
        raise MisuseError(msg, remedy="use letters, digits, dots, dashes, underscores")
    return name


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> Checkpoint:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"the checkpoint {path} cannot be read: {error.strerror}"
        raise PositionRefused(msg) from error
    except ValueError as error:
        msg = f"the checkpoint {path} is not JSON"
        raise PositionRefused(msg) from error
    if not isinstance(body, dict) or set(body) != _MEMBERS:
        msg = f"{path} is not a checkpoint"
        raise PositionRefused(msg)
    version, generation, applied = body["version"], body["generation"], body["applied"]
    if type(version) is not int or version > _VERSION:
        msg = f"the checkpoint {path} has version {version!r}, this reads {_VERSION}"
        raise PositionRefused(msg, remedy="upgrade streamfactory")
    sound = type(generation) is int and isinstance(applied, list)
    if not sound or not all(isinstance(token, str) for token in applied):
        msg = f"{path} is not a checkpoint"
        raise PositionRefused(msg)
    try:
        position = Position.from_json(json.dumps(body["position"]))
    except PositionRefused as error:
        msg = f"the checkpoint {path}: {error.what}"
        raise PositionRefused(msg) from error
    return Checkpoint(position, generation, tuple(applied))
