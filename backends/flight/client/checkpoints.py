"""Checkpoints of groups, kept by the server."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from streamfactory.backends.flight.protocol import messages as m
from streamfactory.spi import Checkpoint, CheckpointStore, Position, PositionRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.backends.flight.client.connection import Connection


class RemoteCheckpointStore(CheckpointStore):
    """One run of one instance. The connection belongs to the factory."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._owner = uuid.uuid4().hex

    def claim(self, group: str, instance: str) -> None:
        wanted = m.ClaimCheckpoint(group, instance, self._owner)
        self._connection.call("checkpoints-claim", wanted, m.Done)

    def load(self, group: str) -> Mapping[str, Checkpoint]:
        found = self._connection.call("checkpoints-load", m.Group(group), m.Checkpoints)
        return {
            instance: _checkpoint(group, instance, saved)
            for instance, saved in found.checkpoints.items()
        }

    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        wanted = m.SaveCheckpoint(
            group,
            instance,
            self._owner,
            checkpoint.generation,
            checkpoint.position.to_json(),
        )
        self._connection.call("checkpoints-save", wanted, m.Done)

    def groups(self) -> Sequence[str]:
        return self._connection.call("checkpoints-groups", m.Done(), m.Names).names

    def delete(self, group: str) -> None:
        self._connection.call("checkpoints-delete", m.Group(group), m.Done)


def _checkpoint(group: str, instance: str, saved: m.SavedCheckpoint) -> Checkpoint:
    """The checkpoint of a message.

    Raises:
        PositionRefused: permanent; it is corrupt, foreign or newer (rule P2).
    """
    where = f"the checkpoint of instance {instance[:64]!r} of group {group!r}"
    if saved.generation < 0:
        msg = f"{where}: generation {saved.generation}"
        raise PositionRefused(msg)
    try:
        return Checkpoint(Position.from_json(saved.position), saved.generation)
    except PositionRefused as error:
        msg = f"{where}: {error.what}"
        raise PositionRefused(msg, remedy=error.remedy) from error
