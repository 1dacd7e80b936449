"""Guarantees: computed from claims and options, with what holds them down."""

from __future__ import annotations

import itertools

import pytest

from streamfactory.spi import Claims, EpochVisibility, Guarantee, Verdict
from streamfactory.spi.claims import combine, sink_guarantee, source_guarantee

NONE, TASK, WHOLE = EpochVisibility.NONE, EpochVisibility.TASK, EpochVisibility.WHOLE
MOST, LEAST, ONCE = Guarantee

NOT_REPLAYABLE = "the source cannot be read again after a failure (not replayable)"
NOT_DURABLE = "accepted rows may be lost when the sink's process ends (not durable)"
NOT_IDEMPOTENT = "a repeated epoch is written again (not idempotent)"
NO_WRITER = "there is no writer id, so a repeated epoch cannot be recognised"
PARTLY_VISIBLE = "a reader may see part of an epoch (task visibility)"
NO_EPOCHS = "rows of a failed attempt stay visible (no epochs)"


def test_no_claim_is_made_by_default() -> None:
    assert Claims() == Claims(
        replayable=False,
        durable=False,
        shared=False,
        idempotent=False,
        epoch_visibility=NONE,
    )


@pytest.mark.parametrize(
    ("claims", "out_of_range", "text"),
    [
        (Claims(), "fail", f"at-most-once: {NOT_REPLAYABLE}"),
        (Claims(durable=True, shared=True), "fail", f"at-most-once: {NOT_REPLAYABLE}"),
        (Claims(replayable=True), "fail", "exactly-once"),
        (
            Claims(replayable=True),
            "earliest",
            (
                "at-most-once: out.of.range=earliest continues, with a loss record, "
                "after messages that retention removed"
            ),
        ),
        (Claims(), "latest", f"at-most-once: {NOT_REPLAYABLE}"),
    ],
)
def test_guarantee_of_a_source(claims: Claims, out_of_range: str, text: str) -> None:
    assert str(source_guarantee(claims, out_of_range=out_of_range)) == text


@pytest.mark.parametrize(
    ("durable", "idempotent", "visibility", "writer", "text"),
    [
        (False, True, WHOLE, True, f"at-most-once: {NOT_DURABLE}"),
        (True, True, WHOLE, True, "exactly-once"),
        (True, False, WHOLE, True, f"at-least-once: {NOT_IDEMPOTENT}"),
        (True, True, WHOLE, False, f"at-least-once: {NO_WRITER}"),
        (True, True, TASK, True, f"at-least-once: {PARTLY_VISIBLE}"),
        (True, True, NONE, True, f"at-least-once: {NO_EPOCHS}"),
        (
            True,
            False,
            NONE,
            False,
            f"at-least-once: {NOT_IDEMPOTENT}; {NO_WRITER}; {NO_EPOCHS}",
        ),
    ],
)
def test_guarantee_of_a_sink(
    *,
    durable: bool,
    idempotent: bool,
    visibility: EpochVisibility,
    writer: bool,
    text: str,
) -> None:
    claims = Claims(durable=durable, idempotent=idempotent, epoch_visibility=visibility)
    assert str(sink_guarantee(claims, writer_id=writer)) == text


def test_exactly_once_needs_every_claim_of_a_sink() -> None:
    every = itertools.product((True, False), (True, False), EpochVisibility)
    for durable, idempotent, visibility in every:
        claims = Claims(
            durable=durable, idempotent=idempotent, epoch_visibility=visibility
        )
        verdict = sink_guarantee(claims, writer_id=True)
        full = durable and idempotent and visibility is WHOLE
        assert (verdict.guarantee is ONCE) == full
        assert bool(verdict.reasons) != full


def test_a_path_has_its_weakest_guarantee_and_every_reason() -> None:
    source = Verdict(MOST, ("the source forgets",))
    sink = Verdict(LEAST, ("the sink repeats",))
    assert str(combine(source, sink, Verdict(ONCE))) == (
        "at-most-once: the source forgets; the sink repeats"
    )
    assert combine(Verdict(ONCE), Verdict(ONCE)) == Verdict(ONCE)


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_guarantee_comes_back_from_its_name(guarantee: Guarantee) -> None:
    assert Guarantee.parse(f" {str(guarantee).upper()} ") is guarantee


def test_guarantees_are_ordered() -> None:
    assert MOST < LEAST < ONCE
    assert [str(g) for g in Guarantee] == [
        "at-most-once",
        "at-least-once",
        "exactly-once",
    ]


@pytest.mark.parametrize("text", ["", "once", "exactly once", "2"])
def test_a_guarantee_that_is_none_lists_the_three(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Guarantee.parse(text)
    assert str(caught.value) == (
        f"{text!r} is not one of at-most-once, at-least-once, exactly-once"
    )
