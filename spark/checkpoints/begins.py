"""Where a generation in real time began, with the ids of its topics.

Offsets of Spark's Kafka connector have no incarnations, and its first batch has no
start. ``<generation>/begin.json`` has both, as a position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import Position, PositionRefused

if TYPE_CHECKING:
    from streamfactory.spark.checkpoints.places import Place

_FILE: Final = "begin.json"


def read_begin(generation: Place) -> Position:
    """Where a generation began; empty if that is not recorded.

    Raises:
        PositionRefused: permanent; the file is corrupt, foreign or newer (rule P2).
    """
    content = generation.read(_FILE)
    if content is None:
        return Position()
    try:
        return Position.from_json(content.decode())
    except (PositionRefused, UnicodeDecodeError) as error:
        what = error.what if isinstance(error, PositionRefused) else "it is not text"
        msg = f"{generation.text}/{_FILE}: {what}"
        remedy = "restore it from a copy; or begin again with --reset"
        raise PositionRefused(msg, remedy=remedy) from error


def save_begin(generation: Place, begin: Position) -> None:
    """Record where a generation began, if that is not recorded yet.

    Raises:
        CheckpointFailed: permanent; it cannot be saved.
        PositionRefused: permanent; as `read_begin`.
    """
    if begin != read_begin(generation):
        generation.replace(_FILE, f"{begin.to_json()}\n".encode())
