"""R10, W6: a server that does not answer: errors in time, and nothing is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.bench import BYTES
from streamfactory.conformance.case import case
from streamfactory.conformance.cases.connections import (
    expect_away,
    read_around,
)
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.cases.writing import WRITER, seen, stage, write
from streamfactory.conformance.expectations import Mismatch, expect
from streamfactory.conformance.harness import Freezes, WritesRows
from streamfactory.conformance.limits import Stuck, run_within
from streamfactory.spi import FetchLimits, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import ConsumerFactory, MetadataProvider
    from streamfactory.wiring.reading.source import Source

_LONGEST: Final = 2.0
"""Seconds of ``connection.timeout.millis`` in these cases: some clients count whole
seconds, from 2 on."""
_SEVERAL: Final = 3
"""Requests of a writer that may each wait so long: a write, and its abort."""
_HUNG: Final = 2
"""Times as long as loops wait for progress: then a call will never return."""


def _options(bench: Bench) -> dict[str, str]:
    key = f"stream__{bench.backend.name}__connection__timeout__millis"
    return {key: f"{_timeout(bench) * 1000:.0f}", "retry__max__attempts": "1"}


def _timeout(bench: Bench) -> float:
    """Seconds: fewer where backends answer at once, as those of one process do."""
    return min(_LONGEST, bench.waits.progress / 2)


@contextmanager
def _silence(bench: Bench) -> Iterator[None]:
    """The server answers nothing meanwhile."""
    bench.note("freeze()")
    bench.use(Freezes).freeze()
    try:
        yield
    finally:
        bench.note("thaw()")
        bench.use(Freezes).thaw()


def _unanswered(
    bench: Bench,
    source: Source,
    what: str,
    function: Callable[[], Any],
    *,
    requests: int = 1,
    may_succeed: bool = False,
) -> None:
    """Check that a call ends in time, with the error of a server that is away."""
    limit = requests * _timeout(bench)
    longest = limit + _HUNG * bench.waits.progress

    def attempt() -> StreamError | None:
        try:
            run_within(longest, function)
        except Stuck as error:
            msg = f"{what} did not end within {longest:g} s without an answer"
            raise Mismatch(msg) from error
        except Exception as error:  # noqa: BLE001 - what it is translated to is examined
            return source.guard.translate(error)
        return None

    bench.note(what)
    error = bench.within(limit, what, attempt)
    if error is not None:
        expect_away(error, what)
    elif not may_succeed:
        msg = f"{what} succeeded without an answer of the server"
        raise Mismatch(msg)


@case(
    "R10",
    abilities=(Freezes,),
    hint="the client waits without a limit, repeats the request itself, or connects "
    "without a limit",
    needs=ROWS,
)
def a_server_that_does_not_answer_is_a_timeout(bench: Bench) -> None:
    """The author's calls end in connection.timeout.millis where nothing is answered."""
    number = bench.create(messages=3)
    bench.fetch_all(number)  # what a first call imports takes longer
    source = bench.source(**_options(bench))
    asking, reading, fresh = _factories(bench)
    provider, consumer = bench.provider(asking), bench.consumer(number, reading)
    before = bench.infos(provider)
    start, limits = before[number].earliest, FetchLimits(1, BYTES, 0.1)
    consumer.fetch_messages(start, None, limits)

    def ask(provider: MetadataProvider | None = None) -> object:
        provider = provider or bench.provider(fresh)
        return provider.fetch_partitions([bench.topic], ())

    check = partial(_unanswered, bench, source)
    fetch = partial(consumer.fetch_messages, start + 1, None, limits)
    with _silence(bench), ThreadPoolExecutor() as threads:  # all of them wait at once
        used = partial(ask, provider)
        checks = [
            threads.submit(check, "fetch_partitions of a used factory", used),
            threads.submit(check, "fetch_partitions of a new factory", ask),
            # A client that receives in a separate thread does not notice: no rows.
            threads.submit(check, "fetch_messages", fetch, may_succeed=True),
        ]
    for one in checks:
        one.result()
    found = bench.infos(bench.provider(asking))
    expect({*found}, {*before}, "partitions when it answers again")
    if reading.claims().replayable:
        rows = bench.fetch_all(number)
        expect([n for _, n in rows], bench.written[number], "messages afterwards")


def _factories(bench: Bench) -> list[ConsumerFactory]:
    """Three factories of the author's: one may let its calls wait for each other."""
    made = bench.configured(**_options(bench))
    assert made.backend.consumer_factory is not None
    return [bench.closing(made.backend.consumer_factory(made.config)) for _ in range(3)]


@case(
    "R10",
    abilities=(Freezes,),
    hint="what was received of a request that timed out is kept, or lost",
    needs=ROWS,
)
def reading_continues_after_a_server_hung(bench: Bench) -> None:
    """Readers of a server that hung continue; each message is read once."""
    read_around(bench, _options(bench), _silence)


@case(
    "W6",
    claims=("idempotent", "durable"),
    abilities=(WritesRows, Freezes),
    writing=True,
    hint="a request that timed out is executed later, and its repeat again",
    needs=("a_repeated_epoch_has_no_effect",),
)
def a_commit_without_an_answer_writes_once(bench: Bench) -> None:
    """A write and a commit that time out end in time; the next attempt writes once."""
    bench.create()
    sink = bench.sink(**_options(bench))
    source = bench.source(**_options(bench))
    committer = bench.closing(sink.committer(writer_id=WRITER))
    committer.commit(0, stage(bench, sink, 0, [[1]]))
    messages = stage(bench, sink, 1, [[2], [3]])
    check = partial(_unanswered, bench, source, requests=_SEVERAL)
    with _silence(bench):
        check("commit(1)", partial(committer.commit, 1, messages))
    write(bench, bench.sink(**_options(bench)), 1, [[2], [3]])
    expect(seen(bench), [1, 2, 3], "what is visible of both epochs")
    sink = bench.sink(**_options(bench))
    write(bench, sink, 2, [[4]])
    with _silence(bench):
        # What is kept in memory until the commit is written without an answer.
        stages = partial(stage, bench, sink, 3, [[5]])
        check("a write of epoch 3", stages, may_succeed=True)
    write(bench, bench.sink(**_options(bench)), 3, [[5]])
    expect(seen(bench), [1, 2, 3, 4, 5], "what is visible of all epochs")
