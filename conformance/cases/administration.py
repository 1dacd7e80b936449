"""M1, M4: creation, growth and deletion of topics by the backend."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import (
    Excluded,
    expect,
    expect_error,
    require,
)
from streamfactory.spi import (
    MisuseError,
    StreamError,
    TopicNotFound,
    Unsupported,
    Yields,
)
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


@case(
    "M4",
    hint="a topic is created lazily, or an existing one is accepted as the new one",
)
def topics_are_created_grown_and_deleted(bench: Bench) -> None:
    """The topic administration creates, refuses twice, grows and deletes a topic."""
    if bench.backend.topic_admin is None:
        msg = "no ability: topic_admin"
        raise Excluded(msg)
    bench.create()
    name = f"{bench.topic}-made"
    key = f"stream__{bench.backend.name}__topic__name"
    made = bench.configured(**{key: name})
    schema = None
    if bench.backend.yields is not Yields.ENVELOPE:
        schema = bench.provider().fetch_schema(bench.topic)
    assert made.backend.topic_admin is not None
    source = bench.closing(Source(made))
    with closing(made.backend.topic_admin(made.config)) as admin:

        def call(operation: str, *arguments: Any) -> None:
            bench.note(f"admin.{operation}({', '.join(map(repr, arguments))})")
            with source.guard.border():
                getattr(admin, operation)(*arguments)

        call("create", name, schema, 2)
        expect(len(source.metadata.partitions()), 2, "partitions of the new topic")
        what = "the creation of an existing topic"
        expect_error(MisuseError, what, call, "create", name, schema, 2)
        try:
            call("grow", name, 3)
        except Unsupported:
            bench.note("grow is not supported")
        else:
            expect(len(source.metadata.partitions()), 3, "partitions after growth")
        call("delete", name)
        what = "metadata of a deleted topic"
        error = expect_error(StreamError, what, source.metadata.partitions)
        require(isinstance(error, TopicNotFound), f"a deleted topic is {error!r}")
