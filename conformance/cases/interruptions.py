"""M4: creation and deletion of topics while their server goes away."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.administration import (
    ADMINISTRATION,
    administration,
    check_deletes,
    new_schema,
)
from streamfactory.conformance.cases.connections import expect_away, options
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.conformance.harness import Stops
from streamfactory.conformance.moments import Moment, Moments
from streamfactory.spi import (
    MisuseError,
    StreamError,
    TopicNotFound,
    TransientError,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.conformance.bench import Bench

_MOST: Final = 8
"""Places at which one call is interrupted."""
_ATTEMPTS: Final = 10
"""Calls after an interruption, of which one reaches the server that is up again."""
_MESSAGES: Final = 5


@case(
    "M4",
    abilities=(Stops,),
    hint="a topic is made by several requests, or an error of one is ignored",
    needs=(ADMINISTRATION,),
)
def a_creation_that_loses_its_server_can_be_repeated(bench: Bench) -> None:
    """A creation that was interrupted, and its repeat, make one whole topic."""
    check_deletes(bench)
    bench.create()
    schema = new_schema(bench)
    count = 1 if bench.traits.single_partition else 3
    with Moments() as moments:
        for number, moment in enumerate(_moments(bench, moments)):
            name = f"{bench.topic}-made{number}"
            with administration(bench, name, options(bench)) as (call, source):
                _connect(partial(call, "facts", bench.topic))
                create = partial(call, "create", name, schema, count)
                _interrupt(bench, moments, moment, create, done=MisuseError)
                infos = source.metadata.partitions()
                expect(len(infos), count, "partitions of the topic")
                held = [i for i in infos if i.latest not in (None, i.earliest)]
                expect(held, [], "partitions of a new topic with messages")
                _repeat(bench, partial(call, "delete", name), TopicNotFound)


@case(
    "M4",
    abilities=(Stops,),
    hint="what marks the topic is deleted first, and a repeat does not find the rest",
    needs=("a_topic_that_is_created_again_is_empty",),
)
def a_deletion_that_loses_its_server_can_be_repeated(bench: Bench) -> None:
    """A topic whose deletion was interrupted and repeated is not found, then empty."""
    check_deletes(bench)
    bench.create()
    schema = new_schema(bench)
    # Not of what is there, such as the changes of a table.
    with administration(bench, f"{bench.topic}-made") as (call, _):
        call("create", f"{bench.topic}-made", schema, 1)
        call("delete", f"{bench.topic}-made")
    with Moments() as moments:
        for moment in _moments(bench, moments):
            bench.create(partitions=2, messages=_MESSAGES)
            count, name = len(bench.written), bench.topic
            with administration(bench, name, options(bench)) as (call, source):
                _connect(partial(call, "facts", name))
                delete = partial(call, "delete", name)
                _interrupt(bench, moments, moment, delete, done=TopicNotFound)
                what = "metadata of a deleted topic"
                error = expect_error(StreamError, what, source.metadata.partitions)
                gone = isinstance(error, TopicNotFound)
                require(gone, f"{what} is {error!r}")
                create = partial(call, "create", name, schema, count)
                _repeat(bench, create, MisuseError)
                infos = source.metadata.partitions()
                held = [i for i in infos if i.latest not in (None, i.earliest)]
                expect(held, [], "partitions with messages of the deleted topic")
                call("delete", name)


def _connect(look: Callable[[], object]) -> None:
    """Let an administration connect: what is interrupted is the operation alone."""
    with suppress(Unsupported):
        look()


def _moments(bench: Bench, moments: Moments) -> Iterator[Moment | None]:
    """Never, and in front of each request of the call before; of many some."""
    yield None
    places = moments.places
    chosen = bench.chance().sample(places, min(_MOST, len(places)))
    yield from (Moment(place, outside=True) for place in sorted(chosen))


def _interrupt(
    bench: Bench,
    moments: Moments,
    moment: Moment | None,
    function: Callable[[], Any],
    *,
    done: type[StreamError],
) -> None:
    """Make a call whose server goes away meanwhile, and repeat it until it is done.

    Args:
        bench: Of the case.
        moments: That have counted such a call.
        moment: When; None for never.
        function: The call.
        done: What it raises where it was done before.
    """
    server, stopped = bench.use(Stops), []

    def stop() -> None:
        stopped.append(moment)
        server.stop()

    try:
        moments.run(function, moment, stop)
    except done as error:
        if moment is None:
            raise
        bench.note(f"done before: {error.code}")
    except TransientError as error:
        expect_away(error, "a call that was interrupted")
        bench.note(f"interrupted: {error.code}")
    else:
        return
    finally:
        # A later call may need fewer requests than the one that was counted.
        if stopped:
            bench.note(f"stop() before {moment}, start()")
            server.start()
    _repeat(bench, function, done)


def _repeat(bench: Bench, function: Callable[[], Any], done: type[StreamError]) -> None:
    """Call until it is done: one of the calls reaches the server that is up again."""
    for _ in range(_ATTEMPTS):
        try:
            function()
        except done as error:
            bench.note(f"done before: {error.code}")
        except TransientError as error:
            bench.note(f"not up again: {error.code}")
            continue
        return
    require(False, f"the call failed {_ATTEMPTS} times after an interruption")
