"""R10: unreachable servers and refused logins: typed errors, in time."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.cases.writing import WRITER, seen, stage, write
from streamfactory.conformance.expectations import (
    Excluded,
    expect,
    expect_error,
    require,
)
from streamfactory.conformance.harness import (
    RefusesCertificates,
    RefusesLogins,
    Stops,
    WritesRows,
)
from streamfactory.conformance.moments import Moments, pick, spread
from streamfactory.spi import (
    ConnectionFailed,
    ErrorClass,
    NotAuthorized,
    StreamError,
    StreamTimeout,
    TransientError,
)
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.moments import Moment
    from streamfactory.wiring.reading.reader import Reader

_TIMEOUT: Final = 1500
"""Milliseconds: ``connection.timeout.millis`` in these cases."""
_SLACK: Final = 3.0
"""Seconds over it that a busy machine may take."""
_OUTAGES: Final = 6
_ROWS: Final = 4
"""Of an epoch, by two tasks."""


def options(bench: Bench) -> dict[str, str]:
    """Those that bound how long a client waits for its server."""
    key = f"stream__{bench.backend.name}__connection__timeout__millis"
    # Few attempts: that failures to connect are retried by time is the framework's.
    return {key: str(_TIMEOUT), "retry__max__attempts": "3"}


def refused(bench: Bench, what: str, function: Callable[[], Any]) -> StreamError:
    """The error of a call that has to fail within its timeout."""
    began = time.monotonic()
    error = expect_error(StreamError, what, function)
    took = time.monotonic() - began
    limit = _TIMEOUT / 1000 + _SLACK
    require(took <= limit, f"{what} took {took:.1f} s, allowed were {limit:.1f} s")
    bench.note(f"{what}: {type(error).__name__}")
    return error


@contextmanager
def _outage(bench: Bench) -> Iterator[None]:
    """The server is stopped meanwhile."""
    bench.note("stop()")
    bench.use(Stops).stop()
    try:
        yield
    finally:
        bench.note("start()")
        bench.use(Stops).start()


def expect_away(error: StreamError, what: str) -> None:
    """Check that an error says that the server is away."""
    away = (ConnectionFailed, StreamTimeout)
    require(
        isinstance(error, away),
        f"{what} raised {type(error).__name__}: {error}; "
        "wanted ConnectionFailed or StreamTimeout",
    )


@case(
    "R10",
    abilities=(Stops,),
    hint="the client waits without a limit, or its error has no translation",
    needs=ROWS,
)
def an_unreachable_server_is_a_connection_error(bench: Bench) -> None:
    """Without its server metadata is a connection error, in time; later it works."""
    bench.create(messages=3)
    source = bench.source(**options(bench))
    with _outage(bench):
        error = refused(bench, "metadata.partitions()", source.metadata.partitions)
        expect_away(error, "metadata.partitions()")
    expect(len(source.metadata.partitions()), 1, "partitions when it is up again")


@case(
    "R10",
    abilities=(Stops,),
    hint="a broken connection is kept, or its end is treated as the end of the stream",
    needs=ROWS,
)
def reading_continues_after_a_server_outage(bench: Bench) -> None:
    """After an outage readers continue, also idle ones; each message is read once."""
    read_around(bench, options(bench), _outage)


def read_around(
    bench: Bench,
    given: Mapping[str, str],
    interruption: Callable[[Bench], AbstractContextManager[None]],
) -> None:
    """Check that readers read each message once around an interruption.

    Args:
        bench: Of the case.
        given: Options of the readers.
        interruption: Within it the server does not answer.
    """
    number, source = bench.create(messages=40), bench.source(**given)
    claims = source.factory.claims()
    if not (claims.replayable or claims.redelivers):
        msg = "not claimed: replayable or redelivers"
        raise Excluded(msg)
    reader = bench.closing(source.reader(bench.partition(number)))
    batch = bench.answer(reader, bench.infos()[number].earliest, max_rows=10)
    numbers, at = bench.harness.numbers(batch.rows), batch.next_offset
    idle = bench.closing(source.reader(bench.partition(number)))
    batch = bench.answer(idle, bench.infos()[number].earliest, max_rows=10)
    half, begin = bench.harness.numbers(batch.rows), batch.next_offset
    with interruption(bench):
        for _ in range(3):
            try:
                batch = reader.fetch(at, timeout=0.2, max_rows=10)
            except StreamError as error:
                expect_away(error, "a fetch")
                break
            # What was received before may still be answered.
            numbers, at = numbers + bench.harness.numbers(batch.rows), batch.next_offset
    wanted = bench.written[number]
    numbers += _rest(bench, reader, at, len(wanted) - len(numbers))
    expect(numbers, wanted, "messages read around the interruption")
    # What it shares with the other reader was opened again meanwhile.
    half += _rest(bench, idle, begin, len(wanted) - len(half))
    expect(half, wanted, "messages read by a reader that was idle meanwhile")


def _rest(bench: Bench, reader: Reader, at: int, count: int) -> list[int]:
    """So many messages from an offset on, read through passing trouble."""
    found: list[int] = []
    patience = bench.patience()
    while len(found) < count and not patience.over(1.0):
        try:
            batch = reader.fetch(at, timeout=1.0, max_rows=10)
        except TransientError:
            continue
        found, at = found + bench.harness.numbers(batch.rows), batch.next_offset
    return found


@case(
    "W6",
    claims=("idempotent", "durable"),
    abilities=(WritesRows, Stops),
    writing=True,
    hint="the result is not awaited, or the next attempt is another epoch",
    needs=("a_repeated_epoch_has_no_effect",),
)
def committing_continues_after_a_server_outage(bench: Bench) -> None:
    """A commit during an outage is a connection error; the next attempt writes once."""
    bench.create()
    sink = bench.sink(**options(bench))
    committer = bench.closing(sink.committer(writer_id=WRITER))
    committer.commit(0, stage(bench, sink, 0, [[1]]))
    messages = stage(bench, sink, 1, [[2], [3]])
    with _outage(bench):
        error = refused(bench, "commit(1)", partial(committer.commit, 1, messages))
        expect_away(error, "commit(1)")
    write(bench, bench.sink(**options(bench)), 1, [[2], [3]])
    expect(seen(bench), [1, 2, 3], "what is visible of both epochs")


def _commit_interrupted(
    bench: Bench, moment: Moment, moments: Moments, epoch: int, *, back: bool
) -> None:
    """Commit an epoch whose server goes away meanwhile, and comes ``back`` at once.

    What was returned as committed is visible then.
    """
    sink = bench.sink(**options(bench))
    committer = bench.closing(sink.committer(writer_id=WRITER))
    messages = stage(bench, sink, epoch, _tasks(epoch))
    committer.last()

    def interrupt() -> None:
        moments.stay()
        bench.use(Stops).stop()
        if back:
            bench.use(Stops).start()

    what = f"commit({epoch}), held before {moment}: stop(){', start()' * back}"
    bench.note(what)
    raised: StreamError | None = None
    try:
        commit = partial(committer.commit, epoch, messages)
        moments.held_at(moment, commit, interrupt, longest=_SLACK)
    except StreamError as error:
        raised = error
        expect_away(error, what)
        bench.note(f"raised {type(error).__name__}")
    finally:
        if not back:
            bench.note("start()")
            bench.use(Stops).start()
    if raised is None:
        found = [n for n in seen(bench) if n // _ROWS == epoch]
        wanted = [number for task in _tasks(epoch) for number in task]
        expect(found, wanted, "rows of an epoch that was committed without an error")


def _tasks(epoch: int) -> list[list[int]]:
    """Rows of the two tasks of an epoch."""
    numbers = list(range(_ROWS * epoch, _ROWS * (epoch + 1)))
    return [numbers[: _ROWS // 2], numbers[_ROWS // 2 :]]


@case(
    "W6",
    claims=("idempotent", "durable"),
    abilities=(WritesRows, Stops),
    writing=True,
    slow=True,
    hint="a request whose reply was lost is sent again without a condition",
    needs=("committing_continues_after_a_server_outage",),
)
def a_commit_that_loses_its_server_writes_once(bench: Bench) -> None:
    """A commit that is interrupted by an outage, and its repeat, write once."""
    bench.create(partitions=2)
    with Moments() as moments:
        sink = bench.sink(**options(bench))
        committer = bench.closing(sink.committer(writer_id=WRITER))
        for epoch in range(2):
            messages = stage(bench, sink, epoch, _tasks(epoch))
            moments.run(partial(committer.commit, epoch, messages))
        calls, outside = moments.calls, moments.outside
        for at, way in enumerate(spread(_OUTAGES, bench.chance())):
            epoch, moment = 2 + at, pick(way, calls, range(outside))
            _commit_interrupted(bench, moment, moments, epoch, back=at % 2 == 0)
            bench.note(f"commit({epoch}) by another instance")
            again = bench.sink(**options(bench))
            committer = bench.closing(again.committer(writer_id=WRITER))
            messages = stage(bench, again, epoch, _tasks(epoch))
            moments.run(partial(committer.commit, epoch, messages))
            if moments.outside >= outside:
                calls, outside = moments.calls, moments.outside
            wanted = list(range(_ROWS * (epoch + 1)))
            expect(seen(bench), wanted, f"rows visible after epoch {epoch}")


def _open(bench: Bench, properties: dict[str, str]) -> StreamError:
    given = {**options(bench), **properties}
    source = bench.closing(Source(bench.configured(**given)))
    return refused(bench, "metadata.partitions()", source.metadata.partitions)


@case(
    "R10",
    abilities=(RefusesLogins,),
    hint="a refused login is tried again, or is a connection error",
    needs=ROWS,
)
def a_refused_login_is_not_authorized(bench: Bench) -> None:
    """A login that the server refuses is NotAuthorized, and is not tried again."""
    bench.create(messages=1)
    error = _open(bench, dict(bench.use(RefusesLogins).refused_login()))
    require(isinstance(error, NotAuthorized), f"a refused login is {error!r}")


@case(
    "R10",
    abilities=(RefusesCertificates,),
    hint="the certificate is not checked, or its refusal has no translation",
    needs=ROWS,
)
def a_refused_certificate_is_an_error_in_time(bench: Bench) -> None:
    """A server whose certificate is not trusted is a typed error, within its time."""
    bench.create(messages=1)
    error = _open(bench, dict(bench.use(RefusesCertificates).refused_certificate()))
    kinds = (ErrorClass.PERMANENT, ErrorClass.CONFIG, ErrorClass.TRANSIENT)
    require(error.error_class in kinds, f"a refused certificate is {error!r}")


@case("R10", hint="translate examines the outermost error only")
def wrapped_connection_errors_are_translated_alike(bench: Bench) -> None:
    """A connection error that the client has wrapped is translated as the bare one."""
    bench.create()
    source = bench.source()
    for bare in (ConnectionResetError("reset"), TimeoutError("late")):
        wrapped = RuntimeError("the request failed")
        wrapped.__cause__ = bare
        wanted, found = map(source.guard.translate, (bare, wrapped))
        what = f"the class of {type(bare).__name__} within RuntimeError"
        expect(found.error_class, wanted.error_class, what)
