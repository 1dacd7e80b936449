"""The committed position of a copy: in its sink, or in a checkpoint beside it."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import Checkpoint, EpochMarkerLost, PositionRefused

if TYPE_CHECKING:
    from streamfactory.spi import CheckpointStore, LastCommit, Position
    from streamfactory.wiring.writing.sink import Sink

_INSTANCE: Final = "0-of-1"


@final
class CopyPositions:
    """Loads and saves the position of one copy. One thread.

    Args:
        sink: The sink of the copy.
        writer_id: Writer id of the copy.
        store: Stores positions apart from the sink; closed with this. None for none.
    """

    def __init__(
        self, sink: Sink, writer_id: str, store: CheckpointStore | None
    ) -> None:
        self._sink, self._writer_id, self._store = sink, writer_id, store
        self._group = _file_name(writer_id)
        self._generation = 0
        """Of the checkpoint that was loaded or saved last."""

    @property
    def remembered(self) -> bool:
        """Whether the sink stores the position of its writer."""
        return self._sink.claims.idempotent

    @property
    def stored(self) -> bool:
        """Whether a new run continues where this one ends."""
        return self.remembered or self._store is not None

    def load(self, last: LastCommit | None, known: Position | None) -> Position | None:
        """Return the committed position; None for the first run.

        Args:
            last: The writer's last commit in the sink.
            known: The position that this run has committed; None before the first.

        Raises:
            PositionRefused: permanent; the writer id was used by another command.
            EpochMarkerLost: data_loss; the sink no longer remembers the writer, but a
                position was committed.
        """
        name = self._sink.config.name
        saved = None
        if self._store is not None:
            saved = self._store.load(self._group).get(_INSTANCE)
        if saved is not None:
            self._generation = max(self._generation, saved.generation)
        if last is not None:
            if last.source_position is None:
                who = "a writer other than copy"
                msg = f"writer id {self._writer_id!r} was used by {who}"
                raise PositionRefused(msg, stream=name, remedy="use another writer id")
            return last.source_position
        if self.remembered and (saved is not None or known is not None):
            msg = f"the sink has forgotten writer id {self._writer_id!r}"
            remedy = (
                "check the rows in the sink, then use another writer id, or "
                "delete the checkpoint to copy again from the start"
            )
            raise EpochMarkerLost(msg, stream=name, remedy=remedy)
        return known if saved is None else saved.position

    def save(self, position: Position) -> None:
        """Save a checkpoint, if there is a store.

        Raises:
            StreamError: Of the store.
        """
        if self._store is not None:
            checkpoint = Checkpoint(position, self._generation + 1)
            self._store.save(self._group, _INSTANCE, checkpoint)
            self._generation += 1

    def close(self) -> None:
        """Close the store; may be called twice."""
        if self._store is not None:
            self._store.close()


def _file_name(writer_id: str) -> str:
    """Return a folder name that is unique to the writer."""
    readable = re.sub("[^A-Za-z0-9._-]+", "-", writer_id).strip("-._")[:80]
    return f"w-{readable}-{zlib.crc32(writer_id.encode()):08x}"
