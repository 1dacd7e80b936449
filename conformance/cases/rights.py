"""R10: users whose rights do not suffice: NotAuthorized, at once."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.administration import (
    administration,
    new_schema,
)
from streamfactory.conformance.cases.connections import options, refused
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.cases.writing import WRITER, seen, write
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import (
    RefusesAdministration,
    RefusesUsers,
    RefusesWriting,
    WritesRows,
)
from streamfactory.spi import NotAuthorized, Unsupported
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.conformance.bench import Bench

_HINT: Final = "the refusal of a request has no translation, or is repeated or ignored"
_MESSAGES: Final = 5


def _expect_refused(bench: Bench, what: str, function: Callable[[], Any]) -> None:
    """Check that a call is refused for its user, in time, or not supported at all."""
    error = refused(bench, what, function)
    fine = isinstance(error, NotAuthorized | Unsupported)
    require(fine, f"{what} without the right is {error!r}")


@case("R10", abilities=(RefusesUsers,), hint=_HINT, needs=ROWS)
def a_user_without_rights_is_not_authorized(bench: Bench) -> None:
    """A user who may not read the stream gets NotAuthorized from all of its readers."""
    number = bench.create(messages=_MESSAGES)
    earliest = bench.infos()[number].earliest
    login = {**options(bench), **bench.use(RefusesUsers).login_without_rights()}
    source = bench.closing(Source(bench.configured(**login)))
    calls: dict[str, Callable[[], Any]] = {
        "metadata.partitions()": source.metadata.partitions,
        "fetch()": partial(_read, bench, source, number, earliest),
    }
    for what, function in calls.items():
        error = refused(bench, what, function)
        found = f"{what} without the right is {error!r}"
        require(isinstance(error, NotAuthorized), found)


def _read(bench: Bench, source: Source, number: int, at: int) -> object:
    return bench.closing(source.reader(bench.partition(number))).fetch(at, timeout=1.0)


@case(
    "W6",
    claims=("epoch_visibility",),
    abilities=(WritesRows, RefusesWriting),
    writing=True,
    hint=_HINT,
    needs=("the_harness_sees_what_it_writes",),
)
def a_user_who_may_only_read_writes_nothing(bench: Bench) -> None:
    """A write of a user who may only read is NotAuthorized, and nothing is visible."""
    bench.create()
    login = {**options(bench), **bench.use(RefusesWriting).login_that_reads()}
    sink = bench.sink(**login)
    _expect_refused(bench, "a write", partial(write, bench, sink, 0, [[1, 2]]))
    expect(seen(bench), [], "rows of a user who may only read")
    committer = bench.closing(sink.committer(writer_id=WRITER))
    _expect_refused(bench, "a claim of a writer id", committer.last)
    require(write(bench, bench.sink(), 0, [[1, 2]]), "epoch 0 was committed before")
    expect(seen(bench), [1, 2], "rows of a user who may write")


@case(
    "W6",
    claims=("epoch_visibility",),
    abilities=(WritesRows, RefusesAdministration),
    writing=True,
    hint="a writer asks for settings, or makes a topic, without being allowed to",
    needs=("the_harness_sees_what_it_writes",),
)
def a_user_who_may_read_and_write_writes(bench: Bench) -> None:
    """A user who may read and write the stream, and nothing else, writes epochs."""
    bench.create(partitions=2)
    login = dict(bench.use(RefusesAdministration).login_that_writes())
    sink = bench.sink(**login)
    write(bench, sink, 0, [[1, 2], [3]])
    write(bench, sink, 1, [[4]])
    expect(seen(bench), [1, 2, 3, 4], "rows of a user who may write")


@case("R10", abilities=(RefusesWriting,), hint=_HINT, needs=ROWS)
def a_user_who_may_only_read_reads(bench: Bench) -> None:
    """A user who may read, and nothing else, reads all messages."""
    number = bench.create(messages=_MESSAGES)
    login = {**options(bench), **bench.use(RefusesWriting).login_that_reads()}
    source = bench.closing(Source(bench.configured(**login)))
    [info] = source.metadata.partitions()
    reader = bench.closing(source.reader(info.partition))
    found: list[int] = []
    for batch in bench.batches(reader, info.earliest):
        found += bench.harness.numbers(batch.rows)
        if len(found) >= _MESSAGES:
            break
    expect(found, bench.written[number], "messages that the user reads")


@case(
    "M4",
    abilities=(RefusesWriting,),
    hint=_HINT,
    needs=("a_user_who_may_only_read_reads",),
)
def a_user_who_may_only_read_administers_nothing(bench: Bench) -> None:
    """Operations on topics are NotAuthorized for a user who may only read."""
    number = bench.create(messages=_MESSAGES)
    topic = bench.topic
    login = {**options(bench), **bench.use(RefusesWriting).login_that_reads()}
    made, last = f"{topic}-made", bench.offsets(number)[-1]
    with administration(bench, topic, login) as (call, source):
        for operation, *arguments in (
            ("grow", topic, 3),
            ("truncate", topic, {number: last}),
            ("delete", topic),
            ("create", made, new_schema(bench), 1),
        ):
            what = f"the operation {operation}"
            _expect_refused(bench, what, partial(call, operation, *arguments))
        for operation in ("facts", "settings"):
            with suppress(NotAuthorized, Unsupported):
                call(operation, topic)
        expect(len(source.metadata.partitions()), 1, "partitions afterwards")
    rows = [n for _, n in bench.fetch_all(number)]
    expect(rows, bench.written[number], "messages afterwards")
