"""R10, R11, R12, W: factories that went through pickle, and calls that are woken."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.conformance.bench import BYTES
from streamfactory.conformance.case import case
from streamfactory.conformance.cases.acknowledging import acknowledge, read, released
from streamfactory.conformance.cases.envelopes import envelopes
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.cases.writing import WRITER
from streamfactory.conformance.children import elsewhere
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import ShowsAcknowledged, WritesRows
from streamfactory.conformance.spark import ship
from streamfactory.spi import (
    ConsumerFactory,
    FetchLimits,
    Partition,
    PartitionLevelConsumer,
    Unsupported,
    Yields,
)
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.conformance.bench import Bench

_MESSAGES: Final = 20
_KEYS: Final = [b"k", None, b"", b"l"]
_LONG: Final = 6.0
"""Seconds that a fetch may wait: only ``wake`` ends it sooner."""


@case(
    "R12",
    abilities=(ShowsAcknowledged,),
    overrides=(ConsumerFactory.acknowledge,),
    hint="what acknowledge needs is not pickled, and its absence is ignored",
    needs=("only_what_is_acknowledged_is_released",),
)
def a_pickled_factory_acknowledges(bench: Bench) -> None:
    """A factory that was used and pickled releases what it acknowledges."""
    number, factory = bench.create(messages=_MESSAGES), bench.factory()
    bench.provider(factory).fetch_partitions([bench.topic], ())
    factory_again = bench.closing(ship(factory))
    factory.close()
    bench.note("the factory goes through pickle")
    rows = read(bench, number, factory_again)
    expect([n for _, n in rows], bench.written[number], "messages read")
    middle = rows[_MESSAGES // 2][0]
    acknowledge(bench, factory_again, number, middle)
    wanted = {number: middle}
    expect(released(bench, wanted), wanted, "released by the pickled factory")


@case(
    "R11",
    claims=("replayable", "shared"),
    slow=True,
    hint="a part of the factory is not pickled, and its methods go on without it",
    needs=(*ROWS, "another_process_reads_the_same"),
)
def another_process_gets_the_same_metadata(bench: Bench) -> None:
    """Schema, topics and offsets by time of a pickled factory are those of this one."""
    number, factory = bench.create(messages=_MESSAGES), bench.factory()
    partition = bench.partition(number)
    mine = _metadata(factory, partition)
    expect(_metadata(bench.closing(ship(factory)), partition), mine, "after pickle")
    bench.note("in another process")
    expect(elsewhere(_metadata, factory, partition), mine, "in another process")


def _metadata(factory: ConsumerFactory, partition: Partition) -> dict[str, Any]:
    """What a provider answers, by method; without those that it does not support."""
    provider = factory.create_metadata_provider("metadata")
    calls: dict[str, Callable[[], Any]] = {
        "fetch_schema": lambda: provider.fetch_schema(partition.topic),
        "fetch_topics": lambda: partition.topic in provider.fetch_topics(),
        "fetch_offsets_at": lambda: dict(provider.fetch_offsets_at(0, {partition})),
    }
    found: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            found[name] = call()
        except Unsupported as error:
            found[name] = type(error).__name__
    provider.close()
    return found


@case(
    "R10",
    overrides=(PartitionLevelConsumer.wake,),
    hint="wake sets what a blocked fetch does not look at",
    needs=ROWS,
)
def a_fetch_of_the_authors_ends_by_wake(bench: Bench) -> None:
    """A blocked `fetch_messages` of a pickled factory returns soon after wake."""
    number = bench.create()
    start = bench.infos()[number].earliest
    consumer = bench.consumer(number, bench.closing(ship(bench.factory())))
    limits = FetchLimits(100, BYTES, _LONG)
    ended: list[float] = []

    def fetch() -> None:
        consumer.fetch_messages(start, None, limits)
        ended.append(time.monotonic())

    thread = threading.Thread(target=fetch, name="conformance-woken")
    thread.start()
    time.sleep(0.3)  # so that it waits: this is about waiting, not about starting
    if ended:
        bench.narrow("a fetch without messages returned before it could be woken")
    woken = time.monotonic()
    consumer.wake()
    thread.join(_LONG)
    took = (ended[0] if ended else time.monotonic()) - woken
    require(took < _LONG / 4, f"a fetch returned {took:.1f} s after wake")


@case(
    "R11",
    abilities=(WritesRows,),
    writing=True,
    hint="what writers need is not pickled, and they go on without it",
    needs=("rows_go_to_the_partition_they_name",),
)
def a_pickled_factory_writes_the_same(bench: Bench) -> None:
    """Epochs of a factory that went through pickle are whole, with what they carry."""
    bench.create(partitions=2)
    sink = bench.closing(Sink(bench.configured("write"), wrap=ship, crashes=True))
    carried = "_key" in sink.factory.CARRIES
    partitions = sorted(bench.written)
    count = len(partitions)  # one, of a type whose streams have one
    for epoch in range(2):
        numbers = list(range(10 * epoch, 10 * epoch + 4))
        rows = bench.use(WritesRows).rows(numbers)
        places = pa.array([partitions[at % count] for at in range(4)], pa.int32())
        rows = rows.append_column("_partition", places)
        if carried:
            rows = rows.append_column("_key", pa.array(_KEYS, pa.binary()))
        bench.note(f"write(epoch={epoch}) by a factory that went through pickle")
        writer = bench.closing(sink.writer(rows.schema, writer_id=WRITER, epoch=epoch))
        for at in (0, 2):
            writer.write(rows.slice(at, 2))
        committer = bench.closing(sink.committer(writer_id=WRITER))
        committer.commit(epoch, [writer.commit()])
    visible = bench.use(WritesRows).visible()
    both = [[0, 1, 2, 3], [10, 11, 12, 13]]
    wanted = {
        number: [one for epoch in both for one in epoch[at::count]]
        for at, number in enumerate(partitions)
    }
    expect({n: [*visible[n]] for n in wanted}, wanted, "rows by partition")
    if carried and bench.backend.yields is Yields.ENVELOPE:
        found = [
            envelopes(bench, number, len(numbers))["key"].to_pylist()
            for number, numbers in wanted.items()
        ]
        keys = [_KEYS[at::count] * 2 for at in range(count)]
        expect(found, keys, "keys by partition")
