"""M3, M4: creation, growth, truncation and deletion of topics by the backend."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.writing import WRITER, stage
from streamfactory.conformance.expectations import (
    Excluded,
    expect,
    expect_error,
    require,
)
from streamfactory.conformance.harness import WritesRows
from streamfactory.spi import (
    MisuseError,
    StreamError,
    TopicAdmin,
    TopicNotFound,
    Unsupported,
    Yields,
)
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyarrow import Schema

    from streamfactory.conformance.bench import Bench

ADMINISTRATION: Final = "topics_are_created_grown_and_deleted"
_MESSAGES: Final = 30
_WRITE: Final = 10
"""Messages of one of several writes."""


@case(
    "M4",
    hint="a topic is created lazily, or an existing one is accepted as the new one",
)
def topics_are_created_grown_and_deleted(bench: Bench) -> None:
    """The topic administration creates, refuses twice, grows and deletes a topic."""
    check_deletes(bench)
    bench.create()
    name = f"{bench.topic}-made"
    with administration(bench, name) as (call, source):
        schema = new_schema(bench)
        count = 1 if bench.traits.single_partition else 2
        call("create", name, schema, count)
        expect(len(source.metadata.partitions()), count, "partitions of the new topic")
        what = "the creation of an existing topic"
        expect_error(MisuseError, what, call, "create", name, schema, count)
        try:
            call("grow", name, 5)
        except Unsupported:
            bench.note("grow is not supported")
        else:
            expect(len(source.metadata.partitions()), 5, "partitions after growth")
        call("delete", name)
        what = "metadata of a deleted topic"
        error = expect_error(StreamError, what, source.metadata.partitions)
        require(isinstance(error, TopicNotFound), f"a deleted topic is {error!r}")


@case(
    "M4",
    hint="an operation on a topic that is not there does nothing, or makes it",
    needs=(ADMINISTRATION,),
)
def operations_on_an_unknown_topic_are_refused(bench: Bench) -> None:
    """What is done to a topic that is not there, or was deleted, is TopicNotFound."""
    check_deletes(bench)
    bench.create()
    name = f"{bench.topic}-made"
    operations = {"grow": (5,), "facts": (), "truncate": ({0: 1},), "delete": ()}
    with administration(bench, name) as (call, _):
        found: dict[str, type[StreamError]] = {}
        call("create", name, new_schema(bench), 1)
        for operation, arguments in operations.items():
            try:
                call(operation, name, *arguments)
            except Unsupported:
                found[operation] = Unsupported
            except StreamError as error:  # an offset that an empty topic has not
                bench.note(f"{operation}: {error.code}")
        for _ in range(2):
            for operation, arguments in operations.items():
                what = f"{operation} of a topic that is not there"
                wanted = found.get(operation, TopicNotFound)
                raised = expect_error(
                    StreamError, what, call, operation, name, *arguments
                )
                refused = isinstance(raised, TopicNotFound | wanted)
                require(refused, f"{what} is {raised!r}")
            call("create", name, new_schema(bench), 1)
            call("delete", name)


@case(
    "M4",
    hint="growth sets the number of partitions that it is given",
    needs=(ADMINISTRATION,),
)
def topics_do_not_shrink(bench: Bench) -> None:
    """Growth to fewer partitions is a MisuseError, and all partitions are left."""
    bench.create(partitions=4)
    before = {*bench.written}
    with administration(bench, bench.topic) as (call, source):
        arguments = ("grow", bench.topic, len(before) - 1)
        error = expect_error(
            StreamError, "growth to fewer partitions", call, *arguments
        )
        refused = isinstance(error, MisuseError | Unsupported)
        require(refused, f"growth to fewer partitions is {error!r}")
        with suppress(Unsupported):
            call("grow", bench.topic, len(before))
        found = {info.partition.id for info in source.metadata.partitions()}
    expect(found, before, "partitions afterwards")


@case(
    "W3",
    claims=("epoch_visibility",),
    abilities=(WritesRows,),
    writing=True,
    hint="commit does not look whether the topic is still there",
    needs=(ADMINISTRATION,),
)
def a_commit_into_a_deleted_topic_is_no_success(bench: Bench) -> None:
    """Rows written into a topic that was deleted are not reported as stored."""
    check_deletes(bench)
    if bench.backend.consumer_factory is None:
        msg = "the type cannot be read"
        raise Excluded(msg)
    for claimed in (False, True):
        _commit_into_deleted(bench, claimed=claimed)


def _commit_into_deleted(bench: Bench, *, claimed: bool) -> None:
    """Commit into a topic that was deleted, before or after the writer was claimed."""
    bench.create()
    sink = bench.sink()
    messages = stage(bench, sink, 0, [[1, 2, 3]])
    committer = bench.closing(sink.committer(writer_id=WRITER))
    if claimed:
        committer.last()
    with administration(bench, bench.topic) as (call, source):
        call("delete", bench.topic)
        try:
            committer.commit(0, messages)
        except StreamError as error:
            bench.note(f"the commit is refused: {error.code}")
            return
        # A type that makes topics on demand has made it again, with the rows.
        infos = source.metadata.partitions()
        held = sum((info.latest or 0) - info.earliest for info in infos)
        expect(held, 3, "rows of a commit that was reported as successful")


@case(
    "W3",
    claims=("epoch_visibility", "idempotent"),
    abilities=(WritesRows,),
    writing=True,
    hint="the reply for a missing topic is treated as that of an empty one",
    needs=(ADMINISTRATION,),
)
def writers_find_no_unknown_topic(bench: Bench) -> None:
    """A sink of an unknown topic raises TopicNotFound, or creates the topic on demand.

    A committer that found no commit there has claimed the writer id: once the topic is
    created, it commits.
    """
    if bench.backend.consumer_factory is None:
        msg = "the columns of its topics are not known: it has no reading half"
        raise Excluded(msg)
    check_deletes(bench)
    bench.create()
    schema = new_schema(bench)
    with administration(bench, bench.topic) as (call, _):
        call("delete", bench.topic)
        sink = bench.sink()
        _ask_for_missing("the count of partitions", sink.partition_count)
        committer = bench.closing(sink.committer(writer_id=WRITER))
        if not _ask_for_missing("the last commit of a claim", committer.last):
            return
        with suppress(MisuseError):  # it was created on demand
            call("create", bench.topic, schema, 1)
        messages = stage(bench, sink, 0, [[1, 2, 3]])
        committer.commit(0, messages)
        last = sink.factory.fetch_last_commit(WRITER)
        expect(last and last.epoch, 0, "the epoch that is remembered")


def _ask_for_missing(what: str, ask: Callable[[], object]) -> bool:
    """Whether a call for an unknown topic succeeds; False if it is TopicNotFound."""
    try:
        ask()
    except StreamError as error:
        found = isinstance(error, TopicNotFound)
        require(found, f"{what} of an unknown topic is {error!r}")
        return False
    return True


@case(
    "M4",
    claims=("replayable",),
    hint="deletion removes by a pattern that matches other topics",
    needs=(ADMINISTRATION,),
)
def deleting_a_topic_leaves_the_others(bench: Bench) -> None:
    """Messages of a topic are there after another one was created and deleted."""
    check_deletes(bench)
    number = bench.create(messages=_MESSAGES)
    before = bench.fetch_all(number)
    # The one is the beginning of the other's name, in both ways.
    for name in (f"{bench.topic}-made", bench.topic[:-1]):
        with administration(bench, name) as (call, _):
            call("create", name, new_schema(bench), 1)
            call("delete", name)
    expect(bench.fetch_all(number), before, "messages of the topic that was left")


@case(
    "M4",
    hint="deletion leaves messages behind, which belong to the next topic of the name",
    needs=(ADMINISTRATION,),
)
def a_topic_that_is_created_again_is_empty(bench: Bench) -> None:
    """A topic that was deleted and created again has no message of the first."""
    check_deletes(bench)
    number = bench.create(messages=_MESSAGES)
    schema = new_schema(bench)
    # A topic of what is there begins with it again, such as the rows of a table.
    name = f"{bench.topic}-made"
    with administration(bench, name) as (call, _):
        call("create", name, schema, 1)
        call("delete", name)
    with administration(bench, bench.topic) as (call, source):
        before = source.metadata.partitions()
        call("delete", bench.topic)
        call("create", bench.topic, schema, len(before))
        found = {info.partition.id: info for info in source.metadata.partitions()}
        expect(sorted(found), [i.partition.id for i in before], "its partitions")
        info = found[number]
        expect(info.latest, info.earliest, "the latest offset of an empty partition")


@case(
    "M3",
    claims=("replayable",),
    hint="truncation counts messages instead of offsets, or includes the offset itself",
    needs=(ADMINISTRATION,),
)
def truncation_deletes_what_lies_before(bench: Bench) -> None:
    """After a truncation the topic has exactly the messages from its offset on.

    Or from the beginning of the write that has it, where writes are kept whole.
    """
    bench.create(partitions=2, messages=_WRITE)
    *others, number = bench.written
    for _ in range(2):
        bench.write(number, _WRITE)
    before, left = bench.fetch_all(number), [bench.fetch_all(n) for n in others]
    whole, exact = before[_WRITE][0], before[_WRITE + _WRITE // 3][0]
    with administration(bench, bench.topic) as (call, _):
        try:
            call("truncate", bench.topic, {number: exact})
        except Unsupported:
            msg = "truncation is not supported"
            raise Excluded(msg) from None
    earliest = bench.bounds(number)[0]
    require(earliest > before[0][0], "earliest has not moved")
    moved = f"earliest is {earliest}, expected {exact}, or {whole} of a whole write"
    require(earliest in (whole, exact), moved)
    kept = [message for message in before if message[0] >= earliest]
    expect(bench.fetch_all(number, earliest), kept, "messages after the truncation")
    found = [bench.fetch_all(n) for n in others]
    expect(found, left, "messages of the other partition")


@case(
    "M4",
    hint="a property is None, or an object that cannot be shown",
    needs=(ADMINISTRATION,),
)
def facts_and_settings_can_be_shown(bench: Bench) -> None:
    """Facts and settings of a topic are texts and numbers by name."""
    bench.create(messages=1)
    with administration(bench, bench.topic) as (call, _):
        for operation in ("facts", "settings"):
            try:
                found = call(operation, bench.topic)
            except Unsupported:
                bench.note(f"{operation} is not supported")
                continue
            shown = isinstance(found, Mapping) and all(
                isinstance(name, str) and isinstance(value, str | int)
                for name, value in found.items()
            )
            require(shown, f"{operation} returned {found!r}")


def check_deletes(bench: Bench) -> None:
    """Exclude types that administer what is there, such as tables of other programs."""
    if bench.backend.topic_admin is None:
        msg = "no ability: topic_admin"
        raise Excluded(msg)
    made = bench.configured()
    assert made.backend.topic_admin is not None
    with closing(made.backend.topic_admin(made.config)) as admin:
        if type(admin).delete is TopicAdmin.delete:
            msg = "topics are not deleted"
            raise Excluded(msg)


@contextmanager
def administration(
    bench: Bench, topic: str, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Callable[..., Any], Source]]:
    """A function that calls operations by name, and the source of a topic.

    Args:
        bench: Of the case.
        topic: Its name.
        options: Properties over those of the harness.
    """
    if bench.backend.topic_admin is None:
        msg = "no ability: topic_admin"
        raise Excluded(msg)
    key = f"stream__{bench.backend.name}__topic__name"
    made = bench.configured(**{key: topic}, **options)
    assert made.backend.topic_admin is not None
    source = bench.closing(Source(made))
    with closing(made.backend.topic_admin(made.config)) as admin:

        def call(operation: str, *arguments: Any) -> Any:
            bench.note(f"admin.{operation}({', '.join(map(repr, arguments))})")
            makes = operation == "create"
            with made_from_nothing() if makes else nullcontext(), source.guard.border():
                return getattr(admin, operation)(*arguments)

        yield call, source


@contextmanager
def made_from_nothing() -> Iterator[None]:
    """Exclude types whose topics are of what is there, such as changes of a table."""
    try:
        yield
    except Unsupported as error:
        msg = f"topics are not made from nothing: {error.what}"
        raise Excluded(msg) from error


def new_schema(bench: Bench) -> Schema | None:
    """What topics are created with."""
    if bench.backend.yields is Yields.ENVELOPE:
        return None
    return bench.provider().fetch_schema(bench.topic)
