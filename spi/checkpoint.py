"""Where positions are kept between runs."""

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
    """A position of one instance of a group, saved only when the caller asked."""

    position: Position
    generation: int = 0
    """Rises with every save of the group's instances: where two checkpoints have one
    partition (the number of instances has changed), the higher generation holds."""


class CheckpointStore(ABC):
    """Keeps checkpoints, one per (group, instance). Thread-safe.

    Made by `ConsumerFactory.create_checkpoint_store`, or by the framework for the
    folder of ``checkpoint.location``. One store serves one run of one instance.
    """

    def claim(self, group: str, instance: str) -> None:  # noqa: B027 - see below
        """Fence earlier runs of an instance: their saves fail from here on.

        Called once, before ``load``. A store that cannot fence keeps this default,
        which does nothing: then the last save of two runs wins.
        """

    @abstractmethod
    def load(self, group: str) -> Mapping[str, Checkpoint]:
        """The checkpoints of a group by instance; empty for a new group.

        Raises:
            PositionRefused: permanent; one is corrupt, foreign or newer (rule P2).
        """

    @abstractmethod
    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        """Replace an instance's checkpoint, whole or not at all (rule P3).

        Raises:
            CheckpointFailed: permanent; the previous one still holds.
            WriterFenced: permanent; a later run has claimed the instance.
            TransientError: The outcome is unknown; the framework repeats the call,
                and a checkpoint that was saved already is no error then.
        """

    def groups(self) -> Sequence[str]:
        """Names of all groups that have checkpoints here, sorted; for commands.

        Raises:
            Unsupported: misuse; a store that cannot list them keeps this default.
        """
        msg = "this store of checkpoints cannot list its groups"
        raise Unsupported(msg)

    def delete(self, group: str) -> None:
        """Remove all checkpoints of a group; one without any is no error.

        Members that still run may save again: they are stopped first.

        Raises:
            Unsupported: misuse; a store that cannot delete keeps this default.
        """
        msg = "this store of checkpoints cannot delete those of a group"
        raise Unsupported(msg)

    def close(self) -> None:  # noqa: B027 - a store that holds nothing may keep this
        """Give back all that was opened."""
