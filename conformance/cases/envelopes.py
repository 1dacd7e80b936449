"""M1, R1, W8: what undecoded messages carry, and offsets by time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.expectations import (
    Excluded,
    expect,
    require,
)
from streamfactory.conformance.harness import (
    SAMPLE_HEADERS,
    HasSinkProperties,
    Message,
    WritesMessages,
    WritesRows,
)
from streamfactory.spi import (
    MetadataProvider,
    Yields,
    envelope_schema,
    headers_type,
)
from streamfactory.spi.envelope import TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.conformance.bench import Bench

_NOON: Final = 1_700_000_000_000
"""Milliseconds since the epoch, of some day."""
_CLOCKS: Final = 600.0
"""Seconds by which the clocks of two machines differ at most."""
_KINDS: Final = {0, 1, TIMESTAMP_UNKNOWN}
"""Types of timestamps: created, appended, unknown."""
LONG: Final = 65_536
"""Bytes of a long key."""
_TICK: Final = 0.05
"""Seconds that every clock can resolve."""


def envelopes(bench: Bench, number: int, count: int) -> pa.Table:
    """The author's own answers, as one table."""
    if bench.backend.yields is not Yields.ENVELOPE:
        msg = "consumers answer typed rows, not envelopes"
        raise Excluded(msg)
    batches: list[pa.RecordBatch] = []
    earliest = bench.infos()[number].earliest
    for _, fetched in bench.answers(bench.consumer(number), earliest, max_rows=100):
        if fetched.rows is not None:
            expect(fetched.rows.schema, envelope_schema(), "schema of an answer")
            kinds = {*fetched.rows["timestampType"].to_pylist()}
            expect(kinds - _KINDS, set(), "unknown types of timestamps")
            batches.append(fetched.rows)
        if sum(batch.num_rows for batch in batches) >= count:
            break
    return pa.Table.from_batches(batches, envelope_schema())


def _write(bench: Bench, number: int, messages: Sequence[Message]) -> None:
    bench.note(f"write_messages({number}, {', '.join(map(str, messages))})")
    bench.use(WritesMessages).write_messages(number, messages)


def _require_timestamps(bench: Bench) -> None:
    """Exclude the case where the medium sets the times of messages."""
    if not bench.traits.sets_timestamps:
        reason = bench.reason(["sets_timestamps"])
        msg = f"the medium sets the times of messages{reason}"
        raise Excluded(msg)


@case("R1", hint="topic and partition are constants, or those of the harness")
def envelopes_say_where_they_come_from(bench: Bench) -> None:
    """Envelopes have the topic, the partition and the offset of their message."""
    bench.create(partitions=2, messages=5)
    for number in bench.written:
        found = envelopes(bench, number, 5)
        expect(set(found["topic"].to_pylist()), {bench.topic}, "topics")
        expect(set(found["partition"].to_pylist()), {number}, "partitions")
        offsets = found["offset"].to_pylist()
        expect(offsets, bench.offsets(number), "offsets")


@case(
    "R1",
    abilities=(WritesMessages,),
    hint="an empty key is null, headers are a map, or their values are text",
    needs=ROWS,
)
def keys_and_headers_arrive_as_they_were_sent(bench: Bench) -> None:
    """Null and empty keys differ; headers keep order, repeats, bytes and nulls."""
    number = bench.create()
    samples = bench.traits.sample_headers
    if samples != SAMPLE_HEADERS:
        bench.narrow("headers are those of sample_headers", "sample_headers")
    keys = (None, b"", b"\x00\xff", long_key(bench))
    messages = [Message(n, key=key) for n, key in enumerate(keys)]
    messages += [
        Message(n, headers=tuple(sample)) for n, sample in enumerate(samples, len(keys))
    ]
    _write(bench, number, messages)
    found = envelopes(bench, number, len(messages))
    expect(found["key"].to_pylist(), [m.key for m in messages], "keys")
    headers = [
        [(header["key"], header["value"]) for header in row or []]
        for row in found["headers"].to_pylist()
    ]
    expect(headers, [list(m.headers) for m in messages], "headers")


def long_key(bench: Bench) -> bytes:
    """The longest key that the medium stores, of at most 64 KiB."""
    length = min(LONG, bench.traits.largest_key)
    if length < LONG:
        bench.narrow(f"keys of more than {length} bytes are not tried", "largest_key")
    return b"k" * length


@case(
    "R1",
    abilities=(WritesMessages,),
    hint="milliseconds are taken for microseconds, or local time for UTC",
    needs=ROWS,
)
def timestamps_are_those_of_the_messages(bench: Bench) -> None:
    """A message's time is in microseconds and UTC; one without is null, of type -1."""
    _require_timestamps(bench)
    number = bench.create()
    times = [_NOON, _NOON + 1, _NOON + 3_600_000]
    _write(bench, number, [Message(n, timestamp_ms=ms) for n, ms in enumerate(times)])
    found = envelopes(bench, number, len(times))
    micros = found["timestamp"].cast(pa.int64()).to_pylist()
    expect(micros, [1000 * ms for ms in times], "timestamps in microseconds")
    kinds = found["timestampType"].to_pylist()
    require(TIMESTAMP_UNKNOWN not in kinds, "the type of a known timestamp is -1")
    _write(bench, number, [Message(9)])
    _check_unknown(envelopes(bench, number, len(times) + 1))
    bench.create()  # where an earlier message has a time, a medium may use it
    _write(bench, bench.first(), [Message(9)])
    _check_unknown(envelopes(bench, bench.first(), 1))


def _check_unknown(found: pa.Table) -> None:
    stamps, kinds = found["timestamp"].to_pylist(), found["timestampType"].to_pylist()
    unknown = [kind == TIMESTAMP_UNKNOWN for kind in kinds]
    expect([stamp is None for stamp in stamps], unknown, "no timestamp, of type -1")


@case("R1", hint="times are in milliseconds or seconds, or local", needs=ROWS)
def timestamps_are_close_to_the_time_of_writing(bench: Bench) -> None:
    """A message's time, where it has one, is when it was written, within minutes."""
    number = bench.create()
    now = time.time()
    bench.write(number, 3)
    stamps = envelopes(bench, number, 3)["timestamp"].cast(pa.int64()).to_pylist()
    wrong = [us for us in stamps if us is not None and abs(us / 1e6 - now) > _CLOCKS]
    require(
        not wrong,
        f"timestamps of messages written at {now:.0f} s are {wrong}, in microseconds",
    )


@case(
    "M1",
    abilities=(WritesMessages,),
    overrides=(MetadataProvider.fetch_offsets_at,),
    hint="the last message before the time is answered, or the one after it",
    needs=ROWS,
)
def offsets_by_time_are_the_first_at_or_after_it(bench: Bench) -> None:
    """Exact, between, before the first and equal times answer the first message."""
    _require_timestamps(bench)
    number = bench.create()
    later = (0, 1000, 1000, 1000, 3000)
    messages = [Message(n, timestamp_ms=_NOON + ms) for n, ms in enumerate(later)]
    _write(bench, number, messages)
    offsets = bench.offsets(number)
    provider, partition = bench.provider(), bench.partition(number)
    for ms, wanted in ((-5, 0), (0, 0), (1, 1), (1000, 1), (1001, 4), (3000, 4)):
        found = provider.fetch_offsets_at(_NOON + ms, {partition})
        what = f"the offset at {ms} ms after the first message"
        expect(found, {partition: offsets[wanted]}, what)
    found = provider.fetch_offsets_at(_NOON + 3001, {partition})
    expect(found, {partition: None}, "the offset after the last message")


@case(
    "M1",
    claims=("replayable",),
    overrides=(MetadataProvider.fetch_offsets_at,),
    hint="offsets by time are those of the last file, segment or look-up",
    needs=ROWS,
)
def offsets_by_time_follow_the_clock(bench: Bench) -> None:
    """Between two writes the offset by time is that of the second one."""
    bench.create(partitions=2)
    numbers = list(bench.written)
    wanted: dict[Any, int | None] = {}
    for number in numbers:
        bench.write(number, 5)
    time.sleep(_TICK)
    between = int(time.time() * 1000)
    time.sleep(_TICK)
    bench.write(numbers[0], 5)
    for number in numbers:
        offsets = bench.offsets(number)
        later = offsets[5] if len(offsets) > 5 else None
        wanted[bench.partition(number)] = later
    found = bench.provider().fetch_offsets_at(between, wanted.keys())
    expect(dict(found), wanted, "offsets between the writes")
    early = bench.provider().fetch_offsets_at(0, wanted.keys())
    first = {bench.partition(n): bench.offsets(n)[0] for n in numbers}
    expect(dict(early), first, "offsets at the epoch")


@case(
    "M1",
    overrides=(MetadataProvider.fetch_topics,),
    hint="topics are those of the configuration, or keys of the medium",
)
def topics_are_listed(bench: Bench) -> None:
    """fetch_topics lists an existing topic once, and nothing of what it is made of."""
    before = {*bench.provider().fetch_topics()}
    bench.create(messages=1)
    listed = list(bench.provider().fetch_topics())
    expect(listed.count(bench.topic), 1, f"entries of {bench.topic} in the list")
    parts = {name for name in listed if bench.topic in name} - before - {bench.topic}
    expect(parts, set(), f"entries of what {bench.topic} is made of")


@case(
    "W8",
    abilities=(WritesRows,),
    writing=True,
    hint="CARRIES names a column that the writer does not store",
)
def carried_columns_come_back(bench: Bench) -> None:
    """What CARRIES names is read back from the messages as it was written."""
    require_one_medium(bench)
    sink = bench.sink()
    carried = sink.factory.CARRIES & {"_key", "_headers", "_timestamp"}
    if bench.backend.yields is not Yields.ENVELOPE or not carried:
        msg = "CARRIES names nothing, or consumers answer typed rows"
        raise Excluded(msg)
    bench.create()
    sink = bench.sink()
    rows = bench.use(WritesRows).rows([1, 2])
    values = {
        "_key": pa.array([b"k", None], pa.binary()),
        "_headers": pa.array([[{"key": "h", "value": b"v"}], None], headers_type()),
        "_timestamp": pa.array([_NOON * 1000] * 2, pa.timestamp("us", tz="UTC")),
    }
    for name in sorted(carried):
        rows = rows.append_column(name, values[name])
    bench.note(f"write(rows with {', '.join(sorted(carried))})")
    writer = bench.closing(sink.writer(rows.schema, writer_id="carried", epoch=0))
    writer.write(rows)
    bench.closing(sink.committer(writer_id="carried")).commit(0, [writer.commit()])
    found = envelopes(bench, bench.first(), 2)
    for name in sorted(carried):
        column = found[name.removeprefix("_")]
        got, wanted = column.to_pylist(), values[name].to_pylist()
        if name == "_headers":  # a message without headers may have an empty list
            got, wanted = ([row or None for row in rows_] for rows_ in (got, wanted))
        expect(got, wanted, f"{name} read back")


def require_one_medium(bench: Bench) -> None:
    """Exclude a case that reads what it wrote, where a sink writes elsewhere."""
    if bench.has(HasSinkProperties):
        msg = "readers and writers use the two ends of a wire"
        raise Excluded(msg)
