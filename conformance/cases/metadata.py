"""M: true bounds, in one call, and nothing consumed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.conformance.harness import Grows, Recreates, Truncates
from streamfactory.spi import (
    IncarnationChanged,
    MetadataProvider,
    PartitionState,
    Position,
)

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench

_TWELVE: Final = 12
"""Ids have one digit, and two."""


@case("M1", hint="ids are made up as 0 to n-1, or a partition is asked for singly")
def every_partition_is_answered(bench: Bench) -> None:
    """fetch_partitions answers exactly the partitions that there are, each once."""
    bench.create(partitions=3, messages=2)
    answer = bench.provider().fetch_partitions([bench.topic], ())
    ids = sorted(info.partition.id for info in answer)
    expect(ids, sorted(bench.written), "partition ids")
    expect({info.partition.topic for info in answer}, {bench.topic}, "topics")


@case(
    "M1",
    claims=("replayable",),
    hint="latest is the last message, not the next",
    needs=ROWS,
)
def bounds_are_true(bench: Bench) -> None:
    """Reading from earliest to latest answers every message, and none is beyond."""
    number = bench.create(messages=25)
    earliest, latest = bench.bounds(number)
    rows = bench.fetch_all(number, earliest, latest)
    expect([n for _, n in rows], bench.written[number], "messages between the bounds")
    bench.write(number, 3)
    _, after = bench.bounds(number)
    more = bench.fetch_all(number, latest, after)
    expect([n for _, n in more], bench.written[number][25:], "messages after latest")


@case("M1", claims=("replayable",), hint="fetch_bounds differs from fetch_partitions")
def bounds_of_a_few_equal_those_of_all(bench: Bench) -> None:
    """fetch_bounds answers the same entries as fetch_partitions."""
    bench.create(partitions=3, messages=4)
    provider, whole = bench.provider(), bench.infos()
    for number in bench.written:
        few = provider.fetch_bounds({bench.partition(number)})
        expect(list(few), [whole[number]], f"bounds of partition {number}")


@case(
    "M1",
    claims=("replayable",),
    hint="partitions are ordered by their names as text, or an id has one digit",
    needs=("every_partition_is_answered", "bounds_are_true"),
)
def each_of_twelve_partitions_has_its_bounds(bench: Bench) -> None:
    """Bounds and messages of twelve partitions are their own, under their ids."""
    bench.create(partitions=_TWELVE)
    for count, number in enumerate(bench.written, 1):
        bench.write(number, count)
    provider, factory = bench.provider(), bench.factory()
    infos = bench.infos(provider)
    expect(sorted(infos), sorted(bench.written), "partition ids")
    for number, wanted in bench.written.items():
        latest = infos[number].latest
        consumer = bench.consumer(number, factory)
        rows = bench.fetch_all(
            number, infos[number].earliest, latest, consumer=consumer
        )
        what = f"messages between the bounds of partition {number}"
        expect([n for _, n in rows], wanted, what)


@case("M3", claims=("replayable",), hint="bounds are read at different moments")
def bounds_never_go_back(bench: Bench) -> None:
    """While messages are written, earliest <= latest, and neither goes back."""
    number, provider = bench.create(), bench.provider()
    earliest, latest = bench.bounds(number, provider)
    for _ in range(8):
        bench.write(number, 5)
        first, last = bench.bounds(number, provider)
        require(first <= last, f"earliest {first}, latest {last}")
        require(last > latest, f"latest stays at {last} after a write")
        require(first >= earliest, "earliest went back")
        earliest, latest = first, last


@case(
    "M3",
    claims=("replayable",),
    abilities=(Truncates,),
    hint="earliest is cached",
    needs=ROWS,
)
def retention_moves_earliest_alone(bench: Bench) -> None:
    """Letting go of the oldest moves earliest on, and latest not."""
    number, provider = bench.create(messages=40), bench.provider()
    before = bench.infos(provider)[number]
    bench.use(Truncates).truncate(number, 15)
    after = bench.infos(provider)[number]
    expect(after.latest, before.latest, "latest after truncation")
    require(after.earliest > before.earliest, "earliest did not move")
    rows = bench.fetch_all(number, after.earliest)
    expect([n for _, n in rows], bench.written[number][15:], "messages still held")


@case("M4", abilities=(Grows,), hint="the number of partitions is cached")
def growth_is_found(bench: Bench) -> None:
    """A provider that was used before finds partitions that were added later."""
    bench.create(partitions=2, messages=3)
    metadata = bench.source().metadata
    expect(len(metadata.partitions()), 2, "partitions before growth")
    bench.note("grow(4)")
    bench.use(Grows).grow(4)
    infos = metadata.partitions()
    expect(len(infos), 4, "partitions after growth")
    states = {info.state for info in infos}
    expect(states, {PartitionState.ACTIVE}, "states after growth")


@case("M5", hint="metadata calls take messages from the reader", needs=ROWS)
def metadata_calls_consume_nothing(bench: Bench) -> None:
    """Fetching partitions and schema removes no message from any reader."""
    number = bench.create(messages=10)
    provider = bench.provider()
    start = bench.infos(provider)[number].earliest
    for _ in range(3):
        provider.fetch_partitions([bench.topic], ())
        bench.source().metadata.schema()
    rows = bench.fetch_all(number, start)
    expect(
        [n for _, n in rows], bench.written[number], "messages after the metadata calls"
    )


@case(
    "M6",
    overrides=(MetadataProvider.fetch_schema,),
    hint="the schema is taken from the first message",
)
def an_empty_stream_has_its_schema(bench: Bench) -> None:
    """The schema is known before the first message, and is that of the rows."""
    number = bench.create()
    schema = bench.provider().fetch_schema(bench.topic)
    bench.write(number, 3)
    expect(bench.provider().fetch_schema(bench.topic), schema, "schema after a write")


@case(
    "M7",
    claims=("replayable",),
    hint="latest is cached while a reader is idle",
    needs=ROWS,
)
def lag_grows_while_the_reader_is_idle(bench: Bench) -> None:
    """Lag is zero at the latest, and grows with what is written."""
    number, source = bench.create(messages=5), bench.source()
    _, latest = bench.bounds(number)
    here = Position({bench.partition(number): latest})
    expect(source.metadata.lag(here), {bench.partition(number): 0}, "lag at the latest")
    bench.write(number, 5)
    lag = source.metadata.lag(here)[bench.partition(number)]
    require(lag is not None and lag > 0, f"lag is {lag} after a write")


@case(
    "R7",
    claims=("replayable",),
    abilities=(Recreates,),
    hint="the incarnation is missing from results",
    needs=ROWS,
)
def a_recreated_topic_has_another_incarnation(bench: Bench) -> None:
    """Offsets of the old incarnation are refused, also if they exist in the new one."""
    number = bench.create(messages=30)
    old = bench.infos()[number]
    require(old.incarnation is not None, "the incarnation is None")
    bench.recreate(number, 30)
    new = bench.infos()[number]
    require(new.incarnation != old.incarnation, "the incarnation did not change")
    source = bench.source()
    reader = source.reader(bench.partition(number), incarnation=old.incarnation)
    bench.closing(reader)
    what = "an offset of the old incarnation"
    expect_error(IncarnationChanged, what, bench.answer, reader, old.earliest)


@case("R11", hint="the provider keeps a connection that one thread may use")
def a_provider_is_thread_safe(bench: Bench) -> None:
    """Eight threads that use one provider at once all get the complete result."""
    bench.create(partitions=3, messages=3)
    provider, topic = bench.provider(), bench.topic

    def count(_: int) -> int:
        return len(provider.fetch_partitions([topic], ()))

    # All eight begin at once: a fast provider would be called by one.
    begin = threading.Barrier(8)
    with ThreadPoolExecutor(8, initializer=begin.wait) as threads:
        answers = list(threads.map(count, range(40)))
    expect(answers, [len(bench.written)] * 40, "partitions answered")
