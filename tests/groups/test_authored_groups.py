"""A backend's own group member: shaped, decoded, its losses reported."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.spi import (
    Backend,
    BadMessage,
    BatchState,
    CheckpointFailed,
    ClosedError,
    ConnectionFailed,
    ConsumerFactory,
    ContractBroken,
    DecodeContext,
    Decoded,
    DecodeError,
    Decoder,
    ErrorTable,
    Fetched,
    FetchLimits,
    Finished,
    IncarnationChanged,
    Loss,
    MessageDecoder,
    MetadataProvider,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    Position,
    StreamLevelConsumer,
    UntranslatedError,
    Yields,
    envelope_schema,
    hookimpl,
)
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.streams import authored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.wiring.streams.stream import Stream

SCHEMA = pa.schema({"n": pa.int64()})
ZERO, ONE = Partition("t", 0), Partition("t", 1)


class ClientError(Exception):
    """What the scripted client raises."""


@dataclass
class Script:
    """What the author answers, and what it was asked."""

    schema: pa.Schema = SCHEMA
    answers: list[Any] = field(default_factory=list)
    """Each a partition and what was fetched, an exception, or None."""
    assigned: frozenset[Partition] = frozenset({ZERO, ONE})
    look: Callable[[], frozenset[Partition]] | None = None
    """Answers the assignment, instead of ``assigned``."""
    joined: bool = True
    commits: list[Position] = field(default_factory=list)
    kept: set[Partition] | None = None
    """Of the partitions of a commit; None means all."""
    fails: dict[str, Exception] = field(default_factory=dict)
    limits: list[FetchLimits] = field(default_factory=list)
    bounds: tuple[int, int] = (0, 0)
    """Of every partition."""
    sought: list[tuple[Partition, int]] = field(default_factory=list)
    closed: int = 0

    def check(self, name: str) -> None:
        if name in self.fails:
            raise self.fails[name]


def _plugin(script: Script) -> object:  # noqa: C901 - one class for each interface
    class Member(StreamLevelConsumer):
        def fetch_messages(self, limits: FetchLimits) -> Any:
            script.limits.append(limits)
            found = script.answers.pop(0) if script.answers else None
            if isinstance(found, Exception):
                raise found
            return found

        def assignment(self) -> frozenset[Partition]:
            script.check("assignment")
            return script.assigned if script.look is None else script.look()

        def has_joined(self) -> bool:
            return script.joined

        def seek(self, partition: Partition, offset: int) -> None:
            script.sought.append((partition, offset))

        def commit(self, position: Position) -> None:
            script.check("commit")
            script.commits.append(position)

        def committed(self) -> Position | None:
            kept, last = script.kept, script.commits[-1]
            return None if kept is None else last.only(kept)

        def close(self) -> None:
            script.closed += 1
            script.check("close")

    class Provider(MetadataProvider):
        def fetch_partitions(self, topics: Any, known: Any) -> list[PartitionInfo]:
            return [PartitionInfo(one, *script.bounds) for one in (ZERO, ONE)]

        def fetch_schema(self, topic: str) -> pa.Schema:
            return script.schema

    class Factory(ConsumerFactory):
        def create_partition_level_consumer(
            self, client_id: Any, partition: Any, fields_to_read: Any = None
        ) -> PartitionLevelConsumer:
            raise AssertionError

        def create_metadata_provider(self, client_id: str) -> MetadataProvider:
            return Provider()

        def create_stream_level_consumer(self, client_id: str, group_id: str) -> Member:
            assert (client_id, group_id) == ("streamfactory-g", "g")
            return Member()

    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            return Backend(
                name="grouped",
                doc="Has groups.",
                spi_level=1,
                consumer_factory=Factory,
                yields=Yields.EITHER,
                translate=ErrorTable({ClientError: ConnectionFailed}),
            )

    return Plugin()


class Halves(MessageDecoder):
    """Even numbers become two rows, odd ones are bad."""

    def schema(self) -> pa.Schema:
        return SCHEMA

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        numbers = [int(value) for value in values.to_pylist()]
        good = [i for i, n in enumerate(numbers) for _ in (0, 1) if n % 2 == 0]
        bad = [
            BadMessage(i, "odd", "it is odd") for i, n in enumerate(numbers) if n % 2
        ]
        rows = {"n": [numbers[i] for i in good]}
        return Decoded(
            pa.RecordBatch.from_pydict(rows, schema=SCHEMA),
            pa.array(good, pa.int32()),
            bad,
        )


class HalvesPlugin:
    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        return Decoder(name="halves", doc="Halves.", spi_level=1, decoder=Halves)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def member(script: Script, tmp_path: Any) -> Iterator[Callable[..., Stream]]:
    plugins = PluginManager()
    plugins.register(_plugin(script))
    plugins.register(HalvesPlugin())
    opened: list[Stream] = []

    def make(**options: str) -> Stream:
        given = {
            "streamType": "grouped",
            "stream.grouped.topic.name": "t",
            "stream.grouped.consumer.type": "highlevel",
            "group.id": "g",
            "checkpoint.location": str(tmp_path),
            "batch.rows": "100",
            "batch.bytes": "1000",
        }
        opened.append(streamfactory.open({**given, **options}, plugins=plugins))
        return opened[-1]

    yield make
    script.fails.clear()
    for stream in opened:
        stream.close()


def typed(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA)


def envelopes(start: int, *values: bytes | None) -> pa.RecordBatch:
    rows = [
        {
            "value": value,
            "topic": "t",
            "partition": 0,
            "offset": start + index,
            "timestampType": -1,
        }
        for index, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=envelope_schema())


def test_batches_say_where_they_are_and_limits_are_the_users(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member()
    loss = Loss(ONE, 1, 2, "retention")
    script.answers = [
        (ZERO, Fetched(typed(1, 2), 12, latest=20, incarnation="a", size=16)),
        None,
        (
            ONE,
            Fetched(
                typed(3, 4), 9, offsets=pa.array([5, 7], pa.int64()), losses=[loss]
            ),
        ),
        (ZERO, Fetched(None, 15, state=BatchState.CAUGHT_UP)),
    ]
    first, nothing, other, empty = (stream.next_batch(1.5) for _ in range(4))
    assert nothing is None
    assert first is not None
    assert other is not None
    assert empty is not None
    assert first.rows == typed(1, 2)
    assert (first.start_offset, first.first_offset, first.next_offset) == (10, 10, 12)
    assert (first.latest, first.incarnation, first.lag) == (20, "a", 8)
    assert (other.start_offset, other.first_offset, other.next_offset) == (5, 5, 9)
    assert other.losses == (loss,)
    assert (empty.start_offset, empty.next_offset, empty.state) == (
        12,
        15,
        BatchState.CAUGHT_UP,
    )
    assert stream.position == Position({ZERO: 15, ONE: 9}, {ZERO: "a"})
    counters = stream.counters
    assert (counters.rows, counters.messages, counters.batches) == (4, 4, 2)
    assert (counters.fetches, counters.bytes, counters.losses) == (4, 32, [loss])
    assert script.limits[0] == FetchLimits(100, 1000, 1.5)


def test_messages_are_decoded_and_bad_ones_counted(
    member: Callable[..., Stream], script: Script
) -> None:
    script.schema = envelope_schema()
    options = {
        "stream.grouped.decoder.class.name": "halves",
        "decode.on.error": "skip",
        "metadata.columns": "true",
    }
    stream = member(**options)
    script.answers = [(ZERO, Fetched(envelopes(7, b"1", b"2", None), 10))]
    batch = stream.next_batch(1)
    assert batch is not None
    assert batch.rows.select(["n", "_partition", "_offset"]).to_pydict() == {
        "n": [2, 2, None],
        "_partition": [0, 0, 0],
        "_offset": [8, 8, 9],
    }
    assert (batch.start_offset, batch.first_offset, batch.next_offset) == (7, 8, 10)
    assert batch.offsets is not None
    assert batch.offsets.to_pylist() == [8, 8, 9]
    assert batch.unfiltered_count == 3
    counters = stream.counters
    assert (counters.rows, counters.messages, counters.bad_messages) == (3, 3, 1)


def test_partition_that_was_taken_away_is_left_out_of_a_commit(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member()
    script.answers = [(ZERO, Fetched(typed(1), 1)), (ONE, Fetched(typed(2), 5))]
    stream.next_batch(1)
    stream.next_batch(1)
    script.assigned = frozenset({ONE})
    assert stream.commit() == Position({ONE: 5})
    assert script.commits == [Position({ONE: 5})]


def test_a_rate_limits_a_member(member: Callable[..., Stream], script: Script) -> None:
    stream = member(**{"max.rows.per.second": "2"})
    script.answers = [(ZERO, Fetched(typed(1, 2, 3, 4), 4)), (ZERO, Fetched(None, 9))]
    first = stream.next_batch(1)
    assert first is not None
    assert first.num_rows == script.limits[0].max_rows == 2
    assert stream.next_batch(0.1) is None  # the rest of the answer waits, too
    rest = stream.next_batch(5)
    assert rest is not None
    assert rest.rows == typed(3, 4)
    assert len(script.limits) == 1


def test_a_commit_returns_what_the_author_has_saved(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member()
    script.answers = [(ZERO, Fetched(typed(1), 1)), (ONE, Fetched(typed(2), 5))]
    stream.next_batch(1)
    stream.next_batch(1)
    script.kept = {ONE}
    assert stream.commit() == Position({ONE: 5})
    # Of the other one, which was assigned again, nothing is read since then.
    script.kept = None
    assert stream.commit() == Position({ONE: 5})
    assert script.commits[-1] == Position({ONE: 5})


def test_partition_that_came_back_is_not_committed_at_its_old_place(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member()
    script.answers = [(ZERO, Fetched(typed(1), 1))]
    stream.next_batch(1)
    script.assigned = frozenset({ONE})
    assert stream.next_batch(0) is None
    # meanwhile another member read and committed up to 100
    script.assigned = frozenset({ZERO, ONE})
    assert stream.commit() == Position()
    script.answers = [(ZERO, Fetched(typed(2), 101))]
    batch = stream.next_batch(1)
    assert batch is not None
    assert batch.start_offset == 100
    assert stream.commit() == Position({ZERO: 101})


def test_end_of_a_partition_is_reported_with_its_kind(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member()
    script.answers = [(ZERO, Fetched(None, 3, state=BatchState.END_OF_PARTITION))]
    batch = stream.next_batch(1)
    assert batch is not None
    assert (batch.state, batch.end) == (BatchState.END_OF_PARTITION, Finished())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientError("gone"), ConnectionFailed),
        (TimeoutError("late"), TimeoutError),
        (KeyError("x"), UntranslatedError),
        (CheckpointFailed("full"), CheckpointFailed),
    ],
)
def test_errors_are_translated_whatever_was_asked(
    member: Callable[..., Stream],
    script: Script,
    error: Exception,
    kind: type[Exception],
) -> None:
    stream = member()
    script.answers = [error]
    with pytest.raises(kind) as caught:
        stream.next_batch(1)
    assert getattr(caught.value, "stream", None) == "grouped:t"
    for name, use in (
        ("commit", stream.commit),
        ("assignment", lambda: stream.position),
        ("close", stream.close),
    ):
        script.fails = {name: error}
        with pytest.raises(kind):
            use()
        script.fails = {}


def test_closed_member_refuses_everything_but_its_last_position(
    member: Callable[..., Stream], script: Script
) -> None:
    with closing(member()) as stream:
        script.answers = [(ZERO, Fetched(typed(1), 1))]
        stream.next_batch(1)
    stream.close()
    assert script.closed == 1
    assert stream.position == Position({ZERO: 1})
    for use in (lambda: stream.next_batch(1), stream.commit):
        with pytest.raises(ClosedError) as caught:
            use()
        assert caught.value.stream == "grouped:t"
    assert script.commits == []


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "rule R5: fetch_messages returned a NoneType"),
        (typed(1), "rule R5: fetch_messages returned a RecordBatch"),
        (
            Fetched(typed(1, 2), 9, offsets=pa.array([5], pa.int64())),
            "rule R1: 2 rows with 1 offsets",
        ),
        (
            Fetched(typed(1, 2), 6, offsets=pa.array([5, 6], pa.int64())),
            "rule R1: rows from 5 to 6, but 6 is next",
        ),
    ],
)
def test_answers_that_break_the_contract_are_refused(
    member: Callable[..., Stream], script: Script, answer: object, what: str
) -> None:
    stream = member()
    script.answers = [(ZERO, answer)]
    with pytest.raises(ContractBroken) as caught:
        stream.next_batch(1)
    assert caught.value.what == what
    assert stream.position == Position()


def test_batches_keep_to_the_limits_and_messages_stay_whole(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member(**{"batch.rows": "3"})
    offsets = pa.array([4, 5, 5, 5, 6], pa.int64())
    script.answers = [(ZERO, Fetched(typed(1, 2, 3, 4, 5), 7, offsets=offsets))]
    batches = [stream.next_batch(1) for _ in range(3)]
    found = [(b.rows[0].to_pylist(), b.next_offset) for b in batches if b is not None]
    assert found == [([1], 5), ([2, 3, 4], 6), ([5], 7)]
    assert len(script.limits) == 1


def test_what_waits_of_a_partition_that_was_taken_away_is_dropped(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member(**{"batch.rows": "1"})
    script.answers = [(ZERO, Fetched(typed(1, 2), 2))]
    stream.next_batch(1)
    script.assigned = frozenset({ONE})
    assert stream.next_batch(0) is None
    assert stream.position == Position()


def test_loss_is_an_error_unless_the_policy_continues(
    member: Callable[..., Stream], script: Script
) -> None:
    script.bounds = (10, 20)
    loss = OffsetOutOfRange("expired", partition=ZERO, offset=4)
    script.answers = [loss]
    with pytest.raises(OffsetOutOfRange) as caught:
        member().next_batch(1)
    assert (
        caught.value.what
        == "offset 4 is out of range: available are 10 to 20 (retention)"
    )
    assert (caught.value.stream, caught.value.partition) == ("grouped:t", ZERO)
    assert script.sought == []


@pytest.mark.parametrize(
    ("policy", "offset", "target", "end"),
    [("earliest", 4, 10, 10), ("latest", 4, 20, 20), ("earliest", 30, 10, None)],
)
def test_member_continues_after_a_loss_by_the_policy(
    member: Callable[..., Stream],
    script: Script,
    policy: str,
    offset: int,
    target: int,
    end: int | None,
) -> None:
    script.bounds = (10, 20)
    script.answers = [OffsetOutOfRange("expired", partition=ZERO, offset=offset)]
    stream = member(**{"out.of.range": policy})
    batch = stream.next_batch(1)
    assert batch is not None
    cause = "truncated" if end is None else "retention"
    assert batch.losses == (Loss(ZERO, offset, end, cause),)
    assert stream.counters.losses == list(batch.losses)
    assert script.sought == [(ZERO, target)]
    assert stream.position == Position({ZERO: target})


def test_recreated_topic_is_reported_by_a_member_too(
    member: Callable[..., Stream], script: Script
) -> None:
    stream = member()
    script.answers = [
        (ZERO, Fetched(typed(1), 7, incarnation="a")),
        (ZERO, Fetched(None, 0, incarnation="b")),
    ]
    stream.next_batch(1)
    with pytest.raises(IncarnationChanged) as caught:
        stream.next_batch(1)
    assert caught.value.what == "topic 't' was recreated: expected id 'a', found 'b'"


def test_batch_that_failed_comes_again(
    member: Callable[..., Stream], script: Script
) -> None:
    script.schema = envelope_schema()
    stream = member(**{"stream.grouped.decoder.class.name": "halves"})
    script.answers = [
        (ZERO, Fetched(envelopes(0, b"1"), 1)),
        (ZERO, Fetched(envelopes(1, b"2"), 2)),
    ]
    for _ in range(2):  # or what is committed later would pass over it
        with pytest.raises(DecodeError):
            stream.next_batch(1)
    assert stream.commit() == Position({ZERO: 0})


def test_a_loop_ends_where_the_assigned_partitions_are_read_to_their_latest(
    member: Callable[..., Stream], script: Script
) -> None:
    script.bounds, script.assigned = (10, 12), frozenset({ZERO})
    stream = member()
    script.bounds = (10, 20)
    script.answers = [
        None,
        (ZERO, Fetched(typed(1), 11)),
        (ZERO, Fetched(typed(2), 12)),
        (ZERO, Fetched(typed(3), 13)),
    ]
    assert [batch.next_offset for batch in stream] == [11, 12]
    assert len(script.answers) == 1


def test_a_loop_without_partitions_ends_when_the_group_has_assigned_none(
    member: Callable[..., Stream], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authored, "_SETTLED", 0.05)
    script.bounds, script.assigned, script.joined = (10, 12), frozenset(), False
    stream, began = member(), time.monotonic()

    def look() -> frozenset[Partition]:
        script.joined = time.monotonic() - began > 0.2
        return frozenset()

    script.look = look
    assert list(stream) == []
    assert time.monotonic() - began > 0.2


def test_a_loop_goes_on_with_partitions_that_others_give_up_late(
    member: Callable[..., Stream], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authored, "_SETTLED", 30.0)
    script.bounds, script.assigned = (10, 12), frozenset({ZERO})
    script.answers = [None, None, (ZERO, Fetched(typed(1, 2), 12))]
    script.look = lambda: script.assigned if len(script.answers) < 2 else frozenset()
    assert [batch.next_offset for batch in member()] == [12]
