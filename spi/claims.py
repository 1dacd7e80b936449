"""Claims of a backend, and the delivery guarantee that follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from streamfactory.spi.notebook import html_of


class EpochVisibility(Enum):
    """When the rows of an epoch can be read (rule W2)."""

    NONE = "none"
    """There are no epochs: rows can be read as they are written."""
    TASK = "task"
    """A task's rows become visible when that task commits."""
    WHOLE = "whole"
    """No row before the commit, all rows after it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Properties that a backend claims; all default to no.

    The conformance kit tests them.

    Abilities (offsets by time, topic lists, ...) are not claimed: they are shown by
    overriding the method.

    Args:
        replayable: The same range gives identical rows again, while retained (rule R2).
        durable: Committed rows survive the end of every streamfactory process, servers
            too.
        shared: Other processes with the same configuration read the same stream.
        idempotent: The same (writer, epoch) twice has the effect of once (rule W3).
        epoch_visibility: When the rows of an epoch become visible to readers.
        redelivers: Messages beyond the last acknowledged position are delivered again,
            to any consumer made later, under the same offsets and incarnation (rule
            R12).
    """

    replayable: bool = False
    durable: bool = False
    shared: bool = False
    idempotent: bool = False
    epoch_visibility: EpochVisibility = EpochVisibility.NONE
    redelivers: bool = False


class Guarantee(IntEnum):
    """A delivery guarantee; a larger value is a stronger guarantee."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")

    @classmethod
    def parse(cls, text: str) -> Guarantee:
        """Return the guarantee with that name: ``exactly-once`` and so on.

        Raises:
            ValueError: No guarantee has that name.
        """
        try:
            return cls[text.strip().upper().replace("-", "_")]
        except KeyError:
            msg = f"{text!r} is not one of at-most-once, at-least-once, exactly-once"
            raise ValueError(msg) from None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A guarantee, with the reasons why it is not stronger, ready to be printed.

    Args:
        guarantee: The guarantee that follows from the claims and options.
        reasons: What limits it, one sentence each.
    """

    guarantee: Guarantee
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.reasons:
            return str(self.guarantee)
        return f"{self.guarantee}: {'; '.join(self.reasons)}"

    def __repr__(self) -> str:
        return f"<Verdict {self}>"

    def _repr_html_(self) -> str:
        return html_of(str(self.guarantee), (), notes=self.reasons)


def source_guarantee(claims: Claims, *, out_of_range: str = "fail") -> Verdict:
    """Return the guarantee of a source for a reader that stores its positions.

    Args:
        claims: The factory's claims, as narrowed by its configuration.
        out_of_range: The policy of rule R7; anything but ``fail`` continues after a
            loss.
    """
    if not claims.replayable and claims.redelivers:
        return Verdict(
            Guarantee.AT_LEAST_ONCE,
            ("messages that were not acknowledged are delivered again",),
        )
    if not claims.replayable:
        return Verdict(
            Guarantee.AT_MOST_ONCE,
            ("the source cannot be read again after a failure (not replayable)",),
        )
    if out_of_range != "fail":
        return Verdict(
            Guarantee.AT_MOST_ONCE,
            (
                (
                    f"out.of.range={out_of_range} continues, with a loss record, "
                    "after messages that retention removed"
                ),
            ),
        )
    return Verdict(Guarantee.EXACTLY_ONCE)


def sink_guarantee(claims: Claims, *, writer_id: bool) -> Verdict:
    """Return the guarantee of a sink for a writer that repeats failed epochs.

    Args:
        claims: The factory's claims, as narrowed by its configuration.
        writer_id: Whether the writer has an id that survives a restart; without one no
            idempotence is claimed.
    """
    if not claims.durable:
        return Verdict(
            Guarantee.AT_MOST_ONCE,
            ("accepted rows may be lost when the sink's process ends (not durable)",),
        )
    reasons = []
    if not claims.idempotent:
        reasons.append("a repeated epoch is written again (not idempotent)")
    if not writer_id:
        reasons.append(
            "there is no writer id, so a repeated epoch cannot be recognised"
        )
    if claims.epoch_visibility is EpochVisibility.TASK:
        reasons.append("a reader may see part of an epoch (task visibility)")
    if claims.epoch_visibility is EpochVisibility.NONE:
        reasons.append("rows of a failed attempt stay visible (no epochs)")
    if reasons:
        return Verdict(Guarantee.AT_LEAST_ONCE, tuple(reasons))
    return Verdict(Guarantee.EXACTLY_ONCE)


def combine(*verdicts: Verdict) -> Verdict:
    """Return the weakest of several guarantees, with the reasons of all."""
    guarantee = min(verdict.guarantee for verdict in verdicts)
    reasons = tuple(reason for verdict in verdicts for reason in verdict.reasons)
    return Verdict(guarantee, reasons)
