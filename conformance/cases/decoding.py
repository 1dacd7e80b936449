"""D1 to D4: hostile payloads, evidence, policies, schema."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.conformance.case import decoder_case
from streamfactory.conformance.decoders import MARK, PARTITION_0, DecoderBench, sources
from streamfactory.conformance.expectations import (
    Excluded,
    Mismatch,
    expect,
    expect_error,
    require,
)
from streamfactory.conformance.harness import (
    HasBadMessages,
    WritesMisfits,
    WritesUndeclared,
)
from streamfactory.spi import (
    DecodeContext,
    DecodeError,
    ErrorBudgetExceeded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import MessageDecoder
    from streamfactory.wiring.decoding.stage import DecodeStage

_MANY: Final = 100_000
_TRIES: Final = 3
"""Measurements of which the best counts, unless the first is good enough."""
_TIMES: Final = 8
"""How much longer a batch with one bad message may take: it may be decoded again, and
the machine may be busy, but its other messages must not be decoded one by one."""
_AT_LEAST: Final = 0.04
"""Seconds below which the ratio is not checked."""


# --- D1 ---------------------------------------------------------------------------


@decoder_case("D1", hint="the harness and the decoder disagree on options or columns")
def good_messages_become_their_rows(bench: DecoderBench) -> None:
    """Good messages are not bad, and have their rows, in their order."""
    numbers = list(range(200))
    decoded = bench.decode(bench.decoder(), bench.good(numbers))
    expect(list(decoded.errors), [], "bad messages among good ones")
    expect(bench.harness.numbers(decoded.rows), numbers, "numbers of the rows")
    expect(sources(decoded), numbers, "messages of the rows")


@decoder_case("D1", hint="the library raises what the decoder does not catch")
def hostile_messages_never_raise(bench: DecoderBench) -> None:
    """Whatever a message contains, decode returns and accounts for it."""
    for name, payload in bench.hostile().items():
        bench.note(f"decode({name}, {len(payload)} bytes)")
        bench.decode(bench.decoder(), [payload])
        bench.script.pop()


@decoder_case("D1", hint="one bad message spoils its batch, or shifts what follows")
def neighbours_of_bad_messages_survive(bench: DecoderBench) -> None:
    """Among hostile messages, every good one has its row, from the right message."""
    hostile = list(bench.hostile().values())
    good = bench.good(range(len(hostile)))
    payloads = [payload for pair in zip(hostile, good, strict=True) for payload in pair]
    decoded = bench.decode(bench.decoder(), payloads)
    rows = [row for row, message in enumerate(sources(decoded)) if message % 2]
    kept = decoded.rows.take(pa.array(rows, pa.int64()))
    expect(bench.harness.numbers(kept), list(range(len(good))), "good messages' rows")
    bad = [error.message for error in decoded.errors if error.message % 2]
    expect(bad, [], "good messages reported as bad")


@decoder_case(
    "D1",
    abilities=(HasBadMessages,),
    hint="what the author calls bad is taken for good, or dropped",
)
def bad_messages_are_reported(bench: DecoderBench) -> None:
    """Each message that the author calls bad is exactly one error."""
    for name, payload in bench.bad().items():
        decoded = bench.decode(bench.decoder(), [payload])
        expect(len(decoded.errors), 1, f"errors of {name!r}")
        expect(decoded.rows.num_rows, 0, f"rows of {name!r}")


@decoder_case("D1", hint="values of a column are taken from other messages")
def a_batch_is_decoded_as_its_messages_are_alone(bench: DecoderBench) -> None:
    """A batch, shuffled and with bad messages between, has the rows of each alone."""
    decoder, good = bench.decoder(), bench.good(range(40))
    alone = [bench.decode(decoder, [payload]).rows.to_pylist() for payload in good]
    messages = list(zip(good, alone, strict=True))
    shuffled = bench.random.sample(messages, len(messages))
    mixed = [*shuffled, *((payload, []) for payload in bench.bad().values())]
    bench.random.shuffle(mixed)
    for what, batch in (
        ("in order", messages),
        ("shuffled", shuffled),
        ("shuffled, with bad messages between", mixed),
    ):
        decoded = bench.decode(decoder, [payload for payload, _ in batch])
        wanted = [row for _, rows in batch for row in rows]
        expect(decoded.rows.to_pylist(), wanted, f"rows of a batch {what}")


@decoder_case("D1", hint="codes hold a position, a number, or part of the message")
def codes_are_stable(bench: DecoderBench) -> None:
    """The same message has the same code, alone or in company, by any decoder."""
    payloads = list(bench.hostile().values())
    together = _codes(bench, bench.decoder(), payloads)
    expect(_codes(bench, bench.decoder(), payloads), together, "codes, again")
    turned = _codes(bench, bench.decoder(), payloads[::-1])
    expect(turned[::-1], together, "codes in another order")
    decoder = bench.decoder()
    alone = [_codes(bench, decoder, [payload])[0] for payload in payloads]
    expect(alone, together, "codes of single messages")
    kinds = {code for code in together if code is not None}
    require(len(kinds) <= 16, f"{len(kinds)} codes: they identify more than a kind")


@decoder_case("D1", hint="an error quotes what it could not read")
def errors_contain_no_payload(bench: DecoderBench) -> None:
    """Neither an error nor what the framework makes of it holds a part of a message."""
    for name, payload in bench.hostile().items():
        if MARK not in payload:
            continue
        stage = bench.stage("fail")
        try:
            stage.apply(bench.envelopes([payload]))
        except DecodeError as error:
            text = f"{error} {error.to_dict()} {error.cause_text}"
            require(MARK.decode() not in text, f"the error of {name!r} quotes it")


# --- D2 ---------------------------------------------------------------------------


@decoder_case("D2", hint="a message is taken for a row, or rows change their order")
def messages_have_any_number_of_rows(bench: DecoderBench) -> None:
    """One message may have several rows: in order, each with its message."""
    if not bench.traits.several:
        msg = f"no ability: several{bench.reason(['several'])}"
        raise Excluded(msg)
    groups = [[1], [2, 3, 4], [5, 6], [7]]
    payloads = [bench.harness.message(group) for group in groups]
    decoded = bench.decode(bench.decoder(), payloads)
    expect(bench.harness.numbers(decoded.rows), list(range(1, 8)), "numbers")
    expect(sources(decoded), [0, 1, 1, 1, 2, 2, 3], "messages of the rows")


@decoder_case("D2", hint="a column that may not be null is filled by the decoder")
def tombstones_are_rows_of_nulls(bench: DecoderBench) -> None:
    """A tombstone between messages is one row of nulls, in its place."""
    one, other = bench.good([1, 2])
    stage = bench.stage("fail")
    rows, source = stage.apply(bench.envelopes([None, one, None, other, None]))
    assert source is not None
    expect(source.to_pylist(), [0, 1, 2, 3, 4], "envelopes of the rows")
    nulls = [
        index
        for index, row in enumerate(rows.to_pylist())
        if all(value is None for value in row.values())
    ]
    expect(nulls, [0, 2, 4], "rows of nulls")
    kept = rows.take(pa.array([1, 3], pa.int64()))
    expect(bench.harness.numbers(kept), [1, 2], "numbers between tombstones")


# --- D3 ---------------------------------------------------------------------------


@decoder_case("D3", hint="errors are raised, or name another message")
def error_policies_are_applied(bench: DecoderBench) -> None:
    """Under fail it raises with the offset; skip leaves out, null keeps the place."""
    bad, (one, other) = bench.one_bad(), bench.good([1, 2])
    envelopes = bench.envelopes([one, bad, other])
    what = "a bad message under `fail`"
    error = expect_error(DecodeError, what, bench.stage("fail").apply, envelopes)
    expect(error.offset, 7, "offset in the error")
    rows, source = bench.stage("skip").apply(envelopes)
    assert source is not None
    expect(source.to_pylist(), [0, 2], "envelopes of the rows under skip")
    expect(bench.harness.numbers(rows), [1, 2], "numbers under skip")
    rows, source = bench.stage("null").apply(envelopes)
    assert source is not None
    expect(source.to_pylist(), [0, 1, 2], "envelopes of the rows under null")
    [blank] = rows.slice(1, 1).to_pylist()
    expect(set(blank.values()), {None}, "the row of a bad message under null")


@decoder_case("D3", hint="errors are counted by batch, or once")
def error_budgets_are_enforced(bench: DecoderBench) -> None:
    """The budget's number of bad messages passes, over all batches, and no more."""
    bad, [good] = bench.one_bad(), bench.good([1])
    stage = bench.stage("skip", max_errors=3)
    for _ in range(3):
        stage.apply(bench.envelopes([good, bad]))
    _exceeds(bench, stage, [bad])
    stage = bench.stage("skip", max_ratio=0.01)
    stage.apply(bench.envelopes([bad] * 10 + [good] * 990))
    _exceeds(bench, stage, [bad] * 20)


def _exceeds(bench: DecoderBench, stage: DecodeStage, values: Sequence[bytes]) -> None:
    what = "reading beyond the budget"
    expect_error(ErrorBudgetExceeded, what, stage.apply, bench.envelopes(values))


# --- D4 ---------------------------------------------------------------------------


@decoder_case(
    "D4", hint="the schema is read off the rows, or differs when there are none"
)
def every_result_has_the_declared_schema(bench: DecoderBench) -> None:
    """The rows have the schema of `schema()` for no message, good and bad messages."""
    decoder = bench.decoder()
    schema = decoder.schema()
    hostile = list(bench.hostile().values())
    for payloads in ([], bench.good([1]), hostile, bench.good(range(1000)), []):
        decoded = bench.decode(decoder, payloads)
        require(decoded.rows.schema.equals(schema), "the schema of the rows changes")
        require(decoder.schema().equals(schema), "schema() changes")
    large = pa.array(bench.good([1, 2]), pa.large_binary())
    sliced = pa.array(bench.good(range(5)), pa.binary())[2:4]
    for values, numbers in ((large, [1, 2]), (sliced, [2, 3])):
        decoded = decoder.decode(values, DecodeContext(PARTITION_0))
        expect(
            bench.harness.numbers(decoded.rows), numbers, f"numbers of {values.type}"
        )


@decoder_case(
    "D4",
    abilities=(WritesUndeclared,),
    hint="a field that the schema lacks is left out without a report",
)
def undeclared_fields_are_reported_on_request(bench: DecoderBench) -> None:
    """On request a row whose message has an undeclared field is kept and reported."""
    [one, other], odd = bench.good([1, 3]), bench.use(WritesUndeclared).undeclared(2)
    payloads = [one, odd, other]
    for asked in (True, False):
        decoded = bench.decode(bench.decoder(), payloads, undeclared=asked)
        expect(list(decoded.errors), [], f"bad messages, with undeclared={asked}")
        expect(bench.harness.numbers(decoded.rows), [1, 2, 3], "numbers of the rows")
        reported = [misfit.rows.to_pylist() for misfit in decoded.misfits]
        expect(reported, [[1]] * asked, f"misfits, with undeclared={asked}")
    _contracts_hold(bench, payloads, {"evolve", "discard_value"})


@decoder_case(
    "D4",
    abilities=(WritesMisfits,),
    hint="a value that does not fit makes its message bad, or is kept",
)
def misfitting_values_are_reported_on_request(bench: DecoderBench) -> None:
    """On request a value that does not fit is null, and its row is reported."""
    [one, other], odd = bench.good([1, 3]), bench.use(WritesMisfits).misfit(2)
    payloads = [one, odd, other]
    decoded = bench.decode(bench.decoder(), payloads)
    expect([error.message for error in decoded.errors], [1], "bad messages, unasked")
    decoded = bench.decode(bench.decoder(), payloads, salvage=True)
    expect(list(decoded.errors), [], "bad messages, with salvage=True")
    expect(bench.harness.numbers(decoded.rows), [1, 2, 3], "numbers of the rows")
    require(decoded.misfits, "nothing is reported, with salvage=True")
    for misfit in decoded.misfits:
        expect(misfit.rows.to_pylist(), [1], "rows that are reported")
        value = decoded.rows.column(misfit.column)[1].as_py()
        expect(value, None, f"the value in column {misfit.column!r}")
    _contracts_hold(bench, payloads, {"discard_value"})


def _contracts_hold(
    bench: DecoderBench, payloads: Sequence[bytes], keeping: set[str]
) -> None:
    """Of three messages the second does not fit: what becomes of its row."""
    envelopes = bench.envelopes(payloads)
    for contract in ("freeze", "evolve", "discard_row", "discard_value"):
        stage = bench.stage("fail", contract=contract)
        try:
            rows, _ = stage.apply(envelopes)
        except DecodeError as error:
            refused = contract not in keeping and contract != "discard_row"
            require(refused, f"under {contract} reading fails")
            expect(error.offset, 7, "offset in the error")
            continue
        wanted = [1, 2, 3] if contract in keeping else [1, 3]
        expect(bench.harness.numbers(rows), wanted, f"numbers under {contract}")


@decoder_case("D4", hint="no schema before the first message, or a null in its place")
def the_framework_accepts_every_result(bench: DecoderBench) -> None:
    """With the framework's checks around it, hostile messages pass under skip."""
    stage = bench.stage("skip")
    hostile = list(bench.hostile().values())
    rows, _ = stage.apply(bench.envelopes([None, *hostile, *bench.good([1])]))
    last = rows.slice(rows.num_rows - 1)
    expect(bench.harness.numbers(last), [1], "number of the last message")


@decoder_case("D1", hint="something is kept in the class, or in the module")
def decoders_share_nothing(bench: DecoderBench) -> None:
    """Two decoders, used in turn, and one closed, do not disturb each other."""
    one, other = bench.decoder(), bench.decoder()
    hostile = list(bench.hostile().values())
    for round_ in range(3):
        bench.decode(one, hostile)
        decoded = bench.decode(other, bench.good([round_]))
        expect(bench.harness.numbers(decoded.rows), [round_], "number in turn")
    one.close()
    decoded = bench.decode(other, bench.good([9]))
    expect(bench.harness.numbers(decoded.rows), [9], "number after the other's closing")


@decoder_case("R11", hint="an option has a lambda, or the class is local")
def the_descriptor_pickles(bench: DecoderBench) -> None:
    """What names the decoder crosses a process: its class, and its name."""
    decoder = bench.descriptor.decoder
    try:
        copied = pickle.loads(pickle.dumps(decoder))  # noqa: S301 - our own
    except Exception as error:
        msg = f"the class does not pickle: {type(error).__name__}: {error}"
        raise Mismatch(msg) from error
    require(copied is decoder, "another class comes out of a pickle")


@decoder_case("D1", slow=True, hint="one bad message sends its batch to a Python loop")
def a_bad_message_costs_little(bench: DecoderBench) -> None:
    """One bad message among 100,000 costs at most a few times what good ones cost."""
    bad, decoder = bench.one_bad(), bench.decoder()
    payloads = bench.good(range(1000)) * (_MANY // 1000)
    all_good = pa.array(payloads, pa.binary())
    payloads[_MANY // 3] = bad
    one_bad = pa.array(payloads, pa.binary())
    _seconds(decoder, all_good[:1000])  # the first call may compile what others use
    good = mixed = float("inf")
    for _ in range(_TRIES):
        good = min(good, _seconds(decoder, all_good))
        mixed = min(mixed, _seconds(decoder, one_bad))
        if mixed <= max(_AT_LEAST, _TIMES * good):
            break
    bench.note(
        f"good {good * 1e3:.1f} ms, with a bad one {mixed * 1e3:.1f} ms: "
        f"{mixed / good:.1f} times"
    )
    dear = mixed > max(_AT_LEAST, _TIMES * good)
    require(not dear, f"one bad message made {_MANY} {mixed / good:.1f} times dearer")


def _seconds(decoder: MessageDecoder, values: pa.Array) -> float:
    """Processor time of decoding: the clock of a busy machine fails good decoders."""
    started = time.process_time()
    decoder.decode(values, DecodeContext(PARTITION_0))
    return time.process_time() - started


def _codes(
    bench: DecoderBench, decoder: MessageDecoder, payloads: Sequence[bytes]
) -> list[str | None]:
    codes: list[str | None] = [None] * len(payloads)
    for error in bench.decode(decoder, payloads).errors:
        codes[error.message] = error.code
    return codes
