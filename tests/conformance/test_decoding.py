"""Decoders with one defect each, caught by the case meant for it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from streamfactory.conformance import DecoderSubject, Outcome
from streamfactory.conformance.harness import DecoderHarness
from streamfactory.conformance.runner import Result, all_cases, decoder_cases, run
from streamfactory.conformance.specimens.upper import (
    UpperDecoder,
    UpperHarness,
    streamfactory_decoder,
)
from streamfactory.decoders.json import streamfactory_decoder as json_decoder
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.harness import JsonHarness
from streamfactory.spi import BadMessage, DecodeContext, Decoded, MessageDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping


def failures(decoder: type[MessageDecoder], harness: Any = UpperHarness) -> list[str]:
    """Names of the cases that fail on the specimen with another decoder."""
    results = run(
        DecoderSubject(replace(streamfactory_decoder(), decoder=decoder), harness)
    )
    return [r.case.name for r in results if r.outcome is Outcome.FAILED]


class Raising(UpperDecoder):
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        values.cast(pa.string())
        return super().decode(values, context)


class Spoiling(UpperDecoder):
    """One bad message makes its whole batch bad."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        if not decoded.errors:
            return decoded
        error = decoded.errors[0]
        errors = [BadMessage(n, error.code, error.what) for n in range(len(values))]
        return Decoded(decoded.rows[:0], pa.array([], pa.int32()), errors)


class Dropping(UpperDecoder):
    """Bad messages are nobody's business."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        return Decoded(decoded.rows, decoded.source)


class Quoting(UpperDecoder):
    """Says what it could not read."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        errors = [
            BadMessage(e.message, e.code, f"cannot read {values[e.message].as_py()!r}")
            for e in decoded.errors
        ]
        return replace(decoded, errors=errors)


class Numbering(UpperDecoder):
    """Its codes say where."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        errors = [replace(e, code=f"bad_{e.message}") for e in decoded.errors]
        return replace(decoded, errors=errors)


class Twice(UpperDecoder):
    """Tells each bad message twice."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        return replace(decoded, errors=[*decoded.errors, *decoded.errors])


class Nullable(UpperDecoder):
    """Its rows are not of its schema."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        schema = pa.schema([pa.field("text", pa.string())])
        return replace(decoded, rows=decoded.rows.cast(schema))


class Sharing(UpperDecoder):
    """Counts in its class, and tires."""

    seen: ClassVar[int] = 0

    def close(self) -> None:
        Sharing.seen = -1

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        if Sharing.seen == -1:
            Sharing.seen = 0
            return Decoded(decoded.rows[:0], pa.array([], pa.int32()))
        return decoded


class Looping(UpperDecoder):
    """Looks at message by message where one is bad."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        if decoded.errors and len(values) > 1:
            for value in [*values, *values]:
                value.as_py().decode(errors="replace").split("|")
        return decoded


@pytest.mark.parametrize(
    ("decoder", "case"),
    [
        (Raising, "hostile_messages_never_raise"),
        (Spoiling, "neighbours_of_bad_messages_survive"),
        (Dropping, "bad_messages_are_reported"),
        (Quoting, "errors_contain_no_payload"),
        (Numbering, "codes_are_stable"),
        (Twice, "bad_messages_are_reported"),
        (Nullable, "every_result_has_the_declared_schema"),
        (Sharing, "decoders_share_nothing"),
        (Looping, "a_bad_message_costs_little"),
    ],
)
def test_defect_is_caught_by_its_case(decoder: type[MessageDecoder], case: str) -> None:
    assert case in failures(decoder)


class Silent(JsonDecoder):
    """Leaves fields and values out without a report."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        return replace(super().decode(values, context), misfits=())


class Deaf(JsonDecoder):
    """Does what its options say, whatever the contract is."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        return super().decode(values, DecodeContext(context.partition))


class Swapping(JsonDecoder):
    """Swaps the values of two rows in one column of large batches."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        decoded = super().decode(values, context)
        rows = decoded.rows
        if rows.num_rows < 10:
            return decoded
        order = [0, 2, 1, *range(3, rows.num_rows)]
        index = rows.schema.get_field_index("text")
        column = rows.column(index).take(pa.array(order))
        return replace(decoded, rows=rows.set_column(index, rows.field(index), column))


class Talkative(JsonDecoder):
    """Reports what nobody asks for."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        return super().decode(values, replace(context, undeclared=True))


@pytest.mark.parametrize(
    ("decoder", "cases"),
    [
        (Silent, {"undeclared_fields", "misfitting_values"}),
        (Deaf, {"undeclared_fields", "misfitting_values"}),
        (Talkative, {"undeclared_fields"}),
    ],
)
def test_defect_of_reporting_is_caught(
    decoder: type[MessageDecoder], cases: set[str]
) -> None:
    failed = failures_of_json(decoder)
    assert failed >= {f"{case}_are_reported_on_request" for case in cases}


def failures_of_json(decoder: type[MessageDecoder]) -> set[str]:
    broken = replace(json_decoder(), decoder=decoder)
    results = run(DecoderSubject(broken, JsonHarness), quick=True)
    return {r.case.name for r in results if r.outcome is Outcome.FAILED}


def test_values_of_other_rows_are_caught() -> None:
    case = "a_batch_is_decoded_as_its_messages_are_alone"
    assert failures_of_json(Swapping) == {case}


def test_local_class_is_caught() -> None:
    class Local(UpperDecoder):
        pass

    assert failures(Local) == ["the_descriptor_pickles"]


def test_harness_without_abilities_is_skipped_by_their_names() -> None:
    class Plain:
        several = False

        def options(self) -> Mapping[str, str]:
            return {}

        def message(self, numbers: Any) -> bytes:
            [number] = numbers
            return f"number {number}".encode()

        def numbers(self, rows: pa.RecordBatch) -> list[int]:
            return UpperHarness().numbers(rows)

    assert isinstance(Plain(), DecoderHarness)
    results = list(run(DecoderSubject(streamfactory_decoder(), Plain)))
    assert [r.case.name for r in results if r.outcome is Outcome.FAILED] == []
    skipped = {r.case.name: r.reason for r in results if r.outcome is Outcome.SKIPPED}
    assert skipped == {
        "bad_messages_are_reported": "no ability: bad",
        "messages_have_any_number_of_rows": "no ability: several",
        "misfitting_values_are_reported_on_request": "no ability: misfit",
        "undeclared_fields_are_reported_on_request": "no ability: undeclared",
    }


def test_quick_leaves_out_what_is_slow_and_reports_it() -> None:
    results = run(DecoderSubject(streamfactory_decoder(), UpperHarness), quick=True)
    slow: list[Result] = [r for r in results if r.case.slow]
    assert [(r.outcome, r.reason) for r in slow] == [
        (Outcome.SKIPPED, "slow: left out by --quick")
    ]


class Hanging(UpperDecoder):
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        threading.Event().wait(30)
        return super().decode(values, context)


def test_a_decoder_that_does_not_return_fails_its_case_in_time() -> None:
    decoder = replace(streamfactory_decoder(), decoder=Hanging)
    case = next(
        c for c in decoder_cases() if c.name == "good_messages_become_their_rows"
    )
    (result,) = run(DecoderSubject(decoder, UpperHarness), cases=[case], time_limit=0.2)
    assert result.outcome is Outcome.FAILED
    assert result.seconds < 20
    assert "0.2" in str(result.reason)


def test_seed_makes_the_same_mutants() -> None:
    from streamfactory.conformance.decoders import DecoderBench

    made = [
        DecoderBench(streamfactory_decoder(), UpperHarness(), seed).hostile()
        for seed in (1, 1, 2)
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_cases_of_decoders_are_none_of_backends() -> None:
    names = {case.name for case in all_cases()}
    assert names.isdisjoint(case.name for case in decoder_cases())
