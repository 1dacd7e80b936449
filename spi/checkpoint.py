"""Checkpoint stores: they keep positions between runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamfactory.spi.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi.positions import Position


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The saved position of one instance of a group; saved only on request.

    Args:
        position: The next offset of each partition.
        generation: Increases with every save of the group's instances. If two
            checkpoints contain the same partition (after the number of instances
            changed), the higher generation wins.
    """

    position: Position
    generation: int = 0


class CheckpointStore(ABC):
    """Stores checkpoints, one per (group, instance). Thread-safe.

    Created by `ConsumerFactory.create_checkpoint_store`, or by the framework for the
    folder of ``checkpoint.location``. One store serves one run of one instance.

    Called by groups, when a member is created and with each commit, and by commands
    that show and set positions. If the caller is in the main thread, a call is made in
    a thread of its own; it is repeated after transient errors.
    """

    def claim(self, group: str, instance: str) -> None:  # noqa: B027 - see below
        """Fence earlier runs of an instance: their saves fail from here on.

        Called once, before ``load``. A store that cannot fence keeps this default,
        which does nothing: the last save of two runs wins, and of two changes of a
        position at once both may be reported as done.
        """

    @abstractmethod
    def load(self, group: str) -> Mapping[str, Checkpoint]:
        """Return the checkpoints of a group by instance; empty for a new group.

        Called once when a member is created, for the checkpoints of all members.

        Raises:
            PositionRefused: permanent; one is corrupt, foreign or newer (rule P2).
        """

    @abstractmethod
    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint of an instance atomically (rule P3).

        Called by each commit of a member, after its dead letters are committed.

        Raises:
            CheckpointFailed: permanent; the previous checkpoint remains valid.
            WriterFenced: permanent; a later run has claimed the instance.
            TransientError: The outcome is unknown; the framework repeats the call.
                Saving the same checkpoint again is not an error.
        """

    def groups(self) -> Sequence[str]:
        """Return the names of all groups that have checkpoints here, sorted.

        For commands.

        Raises:
            Unsupported: misuse; a store that cannot list them keeps this default.
        """
        msg = "this checkpoint store cannot list its groups"
        raise Unsupported(msg)

    def delete(self, group: str) -> None:
        """Remove all checkpoints of a group.

        A group without checkpoints is not an error.

        Stop the members of the group first: a running member may save again.

        Raises:
            Unsupported: misuse; a store that cannot delete keeps this default.
        """
        msg = "this checkpoint store cannot delete the checkpoints of a group"
        raise Unsupported(msg)

    def close(self) -> None:  # noqa: B027 - a store that holds nothing may keep this
        """Release all resources. Called once."""
