"""A generation of a pipeline that runs without Spark: an identity, and a position.

Its sinks store the position with their rows, for a writer whose id begins with the
identity. The position here is saved after each of their commits.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final

from streamfactory.spark.checkpoints.documents import read_document
from streamfactory.spi import PositionRefused
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore, merged

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.spark.checkpoints.places import Place
    from streamfactory.spi import Position

_FILE: Final = "copy.json"
_POSITIONS: Final = "positions"
_VERSION: Final = 1
_WHAT: Final = "the identity of a pipeline that runs without Spark"


def is_copied(generation: Place) -> bool:
    """Whether a generation is of a pipeline that runs without Spark."""
    return generation.is_file(_FILE)


def local_folder(generation: Place) -> Path:
    """The folder of a generation.

    Raises:
        PositionRefused: permanent; it is not on a file system of this machine.
    """
    folder = generation.local
    if folder is None:
        msg = f"{generation.text} is no folder of this machine, which a pipeline "
        msg += "without Spark needs"
        raise PositionRefused(msg, remedy='name a folder, or set engine = "spark"')
    return folder


def identity(generation: Place, first: str) -> str:
    """The identity of a generation, which is made for its first run.

    Args:
        generation: Of a checkpoint.
        first: Name of the first sink of the pipeline.

    Raises:
        PositionRefused: permanent; its file cannot be read, or is of another sink.
        CheckpointFailed: permanent; it cannot be saved.
    """
    found = read_identity(generation, first)
    if found is None:
        found = str(uuid.uuid4())
        body = {"id": found, "first": first, "version": _VERSION}
        generation.replace(_FILE, (json.dumps(body) + "\n").encode())
    return found


def read_identity(generation: Place, first: str) -> str | None:
    """The identity of a generation; None before its first run.

    Args:
        generation: Of a checkpoint.
        first: Name of the first sink of the pipeline, which has its position: that of
            another one may be before or behind it.

    Raises:
        PositionRefused: permanent; its file cannot be read, or is of another sink.
    """
    remedy = "restore it from a backup, or begin again with --reset"
    body = read_document(generation, _FILE, _VERSION, _WHAT, remedy)
    if body is None:
        return None
    try:
        found = str(uuid.UUID(body.get("id")))
    except (ValueError, AttributeError, TypeError) as error:
        msg = f"{generation.text}/{_FILE} is not {_WHAT}"
        raise PositionRefused(msg, remedy=remedy) from error
    before = body.get("first")
    if before != first:
        msg = f"the sink {before!r} has the position, and {first!r} is the first now"
        remedy = f"make {before!r} the first sink, or begin again with --reset"
        raise PositionRefused(msg, remedy=remedy)
    return found


def position_store(generation: Place) -> FileCheckpointStore:
    """Where the positions of a generation are saved."""
    return FileCheckpointStore(local_folder(generation) / _POSITIONS)


def saved_position(generation: Place) -> Position | None:
    """The saved position of a generation; None if there is none.

    Raises:
        PositionRefused: permanent; it cannot be read.
    """
    if not is_copied(generation):
        return None
    store = position_store(generation)
    found = [merged(store.load(group)) for group in store.groups()]
    return found[0] if found else None
