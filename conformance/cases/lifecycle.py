"""R10, R11: closing, pickling, and leaving nothing behind."""

from __future__ import annotations

import pickle
import threading
import time
from typing import TYPE_CHECKING

from streamfactory.conformance import leaks
from streamfactory.conformance.bench import BYTES
from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.spi import ClosedError, FetchLimits

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench
    from streamfactory.wiring.reading.reader import Reader


@case("R10", hint="close waits for a fetch that has nothing to answer")
def closing_wakes_a_blocked_fetch(bench: Bench) -> None:
    """A fetch that waits is woken by close within 500 ms, with ClosedError."""
    number = bench.create()
    start, source = bench.infos()[number].earliest, bench.source()
    readers: list[Reader] = []
    threads: list[threading.Thread] = []
    outcome: list[object] = []

    def fetch(reader: Reader) -> None:
        try:
            outcome.append(reader.fetch(start, timeout=30.0).state)
        except ClosedError as error:
            outcome.append(type(error))

    def block() -> None:
        readers.append(bench.closing(source.reader(bench.partition(number))))
        threads.append(threading.Thread(target=fetch, args=(readers[-1],)))
        threads[-1].start()
        time.sleep(0.3)  # so that it waits: this is about waiting, not about starting

    def close() -> None:
        readers[-1].close()

    bench.within(0.5, "closing during a fetch", close, before=block)
    for thread in threads:
        thread.join(10)
        require(not thread.is_alive(), "the fetch did not come back")
    expect(outcome, [ClosedError] * len(threads), "what the blocked fetch raised")


@case("R10", hint="a second close uses what the first one closed", needs=ROWS)
def closing_twice_is_fine(bench: Bench) -> None:
    """All can be closed twice; use afterwards is ClosedError."""
    number = bench.create(messages=3)
    source = bench.source()
    reader = source.reader(bench.partition(number))
    start = bench.infos()[number].earliest
    reader.fetch(start, timeout=1.0)
    for thing in (reader, source.metadata, source):
        thing.close()
        thing.close()
    expect_error(ClosedError, "a closed reader", reader.fetch, start)


@case("R10", hint="something is opened before what can fail", first=True)
def unused_objects_leave_nothing_open(bench: Bench) -> None:
    """Objects that are made and closed, never used, leave nothing behind."""
    number, factory = bench.create(messages=3), bench.factory()
    for _ in range(3):
        bench.consumer(number, factory)
        bench.provider(factory)


@case(
    "R10",
    claims=("replayable",),
    hint="close leaves a connection to the garbage collector",
    needs=(*ROWS, "unused_objects_leave_nothing_open"),
)
def closed_consumers_keep_no_connection(bench: Bench) -> None:
    """Consumers that were used and closed hold nothing, while the factory is held."""
    number, factory = bench.create(messages=3), bench.factory()
    start = bench.infos()[number].earliest
    kept: list[object] = []
    left: list[str] = []
    # What the factory itself opens, in its own time, it opens once: another three
    # consumers leave nothing more.
    for count in (1, 3, 3):
        before = leaks.take()
        for _ in range(count):
            consumer = factory.create_partition_level_consumer(
                "conformance", bench.partition(number)
            )
            consumer.fetch_messages(start, None, FetchLimits(10, BYTES, 0.0))
            consumer.close()
            kept.append(consumer)  # so that only close can release what it has
        if count > 1 and not (left := leaks.left_since(before, waits=bench.waits)):
            return
    require(not left, f"3 closed consumers hold {'; '.join(left)}")


@case("R11", hint="the factory keeps a connection, a lock or a lambda")
def a_factory_pickles(bench: Bench) -> None:
    """A factory that was used pickles, and the copy reads the same stream."""
    number, factory = bench.create(messages=10), bench.factory()
    bench.consumer(number, factory)
    bench.provider(factory).fetch_partitions([bench.topic], ())
    copy = bench.closing(pickle.loads(pickle.dumps(factory)))  # noqa: S301 - our own
    expect(copy.config, factory.config, "configuration of the copy")
    answer = copy.create_metadata_provider("copy").fetch_partitions([bench.topic], ())
    expect(len(answer), 1, "partitions that the copy sees")


@case("R11", hint="a batch holds on to the consumer that made it", needs=ROWS)
def batches_outlive_their_consumer(bench: Bench) -> None:
    """Rows stay readable after the consumer, the factory and the source are closed."""
    number = bench.create(messages=50)
    source = bench.source()
    reader = source.reader(bench.partition(number))
    start = bench.infos()[number].earliest
    batch = bench.answer(reader, start)
    before = bench.harness.numbers(batch.rows)
    reader.close()
    source.close()
    expect(bench.harness.numbers(batch.rows), before, "rows after closing")
