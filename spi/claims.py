"""What code cannot show about a backend, and the guarantee that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class EpochVisibility(Enum):
    """When the rows of an epoch can be read (rule W2)."""

    NONE = "none"
    """There are no epochs: rows can be read as they are written."""
    TASK = "task"
    """A task's rows become visible when that task commits."""
    WHOLE = "whole"
    """Nothing before the decision, everything for whoever asks after it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Promises of a backend; all default to no. The conformance kit holds them to it.

    Abilities (offsets by time, topic lists, ...) are not claimed: they are shown by
    overriding the method.
    """

    replayable: bool = False
    """The same range gives identical rows again, while retained (rule R2)."""
    durable: bool = False
    """What was committed survives the end of every process of ours."""
    shared: bool = False
    """Other processes, given the same configuration, see the same stream."""
    idempotent: bool = False
    """The same (writer, epoch) twice has the effect of once (rule W3)."""
    epoch_visibility: EpochVisibility = EpochVisibility.NONE
    redelivers: bool = False
    """Messages beyond the last acknowledged position are delivered again, to any
    consumer made later, under the same offsets and incarnation (rule R12)."""


class Guarantee(IntEnum):
    """Delivery, ordered: a larger one is a stronger promise."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")

    @classmethod
    def parse(cls, text: str) -> Guarantee:
        """The guarantee of that name: ``exactly-once`` and so on.

        Raises:
            ValueError: There is none of that name.
        """
        try:
            return cls[text.strip().upper().replace("-", "_")]
        except KeyError:
            msg = f"{text!r} is not one of at-most-once, at-least-once, exactly-once"
            raise ValueError(msg) from None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A guarantee with the reasons that hold it down, to be printed as they are."""

    guarantee: Guarantee
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.reasons:
            return str(self.guarantee)
        return f"{self.guarantee}: {'; '.join(self.reasons)}"


def source_guarantee(claims: Claims, *, out_of_range: str = "fail") -> Verdict:
    """What a reader that keeps its positions can promise of this source.

    Args:
        claims: The factory's claims, as narrowed by its configuration.
        out_of_range: The policy of rule R7; anything but ``fail`` goes on after a loss.
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
                    f"out.of.range={out_of_range} goes on, with a loss record, "
                    "after what retention took away"
                ),
            ),
        )
    return Verdict(Guarantee.EXACTLY_ONCE)


def sink_guarantee(claims: Claims, *, writer_id: bool) -> Verdict:
    """What a writer that repeats failed epochs can promise of this sink.

    Args:
        claims: The factory's claims, as narrowed by its configuration.
        writer_id: Whether the writer has a name that survives a restart; without one
            no idempotence is claimed.
    """
    if not claims.durable:
        return Verdict(
            Guarantee.AT_MOST_ONCE,
            ("what the sink accepted may be gone with its process (not durable)",),
        )
    reasons = []
    if not claims.idempotent:
        reasons.append("a repeated epoch is written again (not idempotent)")
    if not writer_id:
        reasons.append("there is no writer id, so a repeat cannot be recognised")
    if claims.epoch_visibility is EpochVisibility.TASK:
        reasons.append("a reader may see part of an epoch (task visibility)")
    if claims.epoch_visibility is EpochVisibility.NONE:
        reasons.append("rows of a failed attempt stay visible (no epochs)")
    if reasons:
        return Verdict(Guarantee.AT_LEAST_ONCE, tuple(reasons))
    return Verdict(Guarantee.EXACTLY_ONCE)


def combine(*verdicts: Verdict) -> Verdict:
    """The guarantee of a path: its weakest part, with the reasons of every part."""
    guarantee = min(verdict.guarantee for verdict in verdicts)
    reasons = tuple(reason for verdict in verdicts for reason in verdict.reasons)
    return Verdict(guarantee, reasons)
