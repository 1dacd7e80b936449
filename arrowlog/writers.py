"""What a log remembers of its writers, and what follows from it for their epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streamfactory.spi import WriterFenced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.arrowlog.values import Epoch
    from streamfactory.spi import LastCommit


class RememberedWriter(Protocol):
    """One writer, as a log has stored it."""

    @property
    def owner(self) -> str:
        """The instance that has claimed it."""

    @property
    def at(self) -> float:
        """Milliseconds: its last commit or claim."""

    @property
    def epoch(self) -> int | None:
        """Its last epoch; None before the first one."""

    def last(self) -> LastCommit | None:
        """Its last commit; None before the first one."""


def committed_before(epoch: Epoch, known: RememberedWriter | None) -> LastCommit | None:
    """Return the commit that a repeated epoch meets; None of a new epoch (rule W3).

    The owner is looked at before the number, which the other instance may have taken,
    with other rows.

    Raises:
        WriterFenced: permanent; another instance has claimed the writer.
    """
    if known is None:
        return None
    if known.owner != epoch.instance:
        msg = f"epoch {epoch.number}: another instance has claimed writer "
        raise WriterFenced(msg + repr(epoch.writer))
    if known.epoch is None or epoch.number > known.epoch:
        return None
    return known.last()  # only now: it parses the position, which may be long


def idle_writers(
    writers: Mapping[str, RememberedWriter], oldest: float, keep: str | None
) -> list[str]:
    """Return the writers that have not committed since a time.

    Args:
        writers: By name.
        oldest: Milliseconds since the epoch.
        keep: A writer that is never idle.
    """
    found = [name for name, known in writers.items() if known.at < oldest]
    return [name for name in found if name != keep]
