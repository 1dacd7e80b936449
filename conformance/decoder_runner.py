"""Runs the cases of decoders, for the command line and tests."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Any, cast

from streamfactory.conformance import leaks
from streamfactory.conformance.cases import decoding  # noqa: F401  # registers cases
from streamfactory.conformance.decoders import (
    DECODER_CASES,
    DecoderBench,
    DecoderBody,
)
from streamfactory.conformance.expectations import Excluded, require
from streamfactory.conformance.limits import SECONDS, Stuck, run_within
from streamfactory.conformance.runner import Outcome, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.conformance.case import Case
    from streamfactory.spi import Decoder


def decoder_cases() -> list[Case]:
    """Every case of this section."""
    return list(DECODER_CASES.values())


def run_decoder(
    decoder: Decoder,
    harness: Callable[[], Any],
    *,
    cases: Sequence[Case] | None = None,
    quick: bool = False,
    seed: int = 0,
    time_limit: float = SECONDS,
) -> Iterator[Result]:
    """Run cases, one after the other; yields each result when the case has ended.

    Args:
        decoder: Under test.
        harness: Called for each case.
        cases: All, where not given.
        quick: Skip slow cases.
        seed: Seed of the random choices.
        time_limit: Seconds for one case.
    """
    for case in decoder_cases() if cases is None else cases:
        if quick and case.slow:
            yield Result(case, Outcome.SKIPPED, reason="slow: left out by --quick")
        elif decoder.decoder is None:
            reason = f"{decoder.name!r} leaves messages as they are"
            yield Result(case, Outcome.SKIPPED, reason=reason)
        else:
            yield _run_case(case, decoder, harness, seed, time_limit)


def _run_case(
    case: Case,
    decoder: Decoder,
    harness: Callable[[], Any],
    seed: int,
    time_limit: float,
) -> Result:
    started = time.monotonic()
    script: list[str] = []

    def once() -> None:
        before = leaks.take()
        with DecoderBench(decoder, harness(), seed, script) as bench:
            cast("DecoderBody", case.body)(bench)
        left = leaks.left_since(before)
        require(not left, f"rule R10: left open: {'; '.join(left)}")

    try:
        run_within(time_limit, once)
    except Excluded as error:
        return Result(case, Outcome.SKIPPED, reason=str(error))
    except Stuck as stuck:
        seconds = time.monotonic() - started
        return Result(
            case, Outcome.FAILED, seconds, stuck.what, tuple(script), stuck.trace
        )
    except Exception as error:  # noqa: BLE001 - whatever happens is the result
        happened = str(error) or type(error).__name__
        if not isinstance(error, AssertionError):
            happened = f"{type(error).__name__}: {happened}"
        return Result(
            case,
            Outcome.FAILED,
            time.monotonic() - started,
            happened,
            tuple(script),
            traceback.format_exc(),
        )
    seconds = time.monotonic() - started
    return Result(case, Outcome.PASSED, seconds, script=tuple(script))
