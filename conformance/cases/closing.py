"""R10, W1, W4, M4: closing and aborting leave everything else as it was."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.administration import (
    ADMINISTRATION,
    check_deletes,
    made_from_nothing,
    new_schema,
)
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.cases.writing import EPOCHS, WRITER, seen, stage, write
from streamfactory.conformance.expectations import (
    expect,
    expect_error,
    require,
)
from streamfactory.conformance.harness import WritesRows
from streamfactory.spi import ClosedError, Position
from streamfactory.wiring.topics.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.conformance.bench import Bench

_MESSAGES: Final = 20


def _expect_closed(calls: Mapping[str, Callable[[], object]]) -> None:
    """Calls, by what they are made on, that have to raise ClosedError."""
    for what, call in calls.items():
        expect_error(ClosedError, f"{what} after close", call)


@case(
    "R10",
    claims=("replayable",),
    hint="factories of a process share what the first of them closes",
    needs=ROWS,
)
def closing_a_source_leaves_the_others(bench: Bench) -> None:
    """A closed source refuses calls; another one of the same stream reads on."""
    number = bench.create(messages=_MESSAGES)
    partition, start = bench.partition(number), bench.infos()[number].earliest
    closed, other = bench.source(), bench.source()
    reader = bench.closing(other.reader(partition))
    early = bench.closing(closed.reader(partition))
    for one in (early, reader):
        # So that both have connected.
        bench.answer(one, start, max_rows=1)
    metadata = closed.metadata
    metadata.partitions()
    bench.note("one of two sources is closed, twice")
    closed.close()
    closed.close()
    _expect_closed(
        {
            "the partitions": metadata.partitions,
            "the lag": partial(metadata.lag, Position({partition: start})),
            "a reader from before": partial(early.fetch, start),
            "another reader": partial(closed.reader, partition),
        }
    )
    latest = other.metadata.partitions()[0].latest
    assert latest is not None
    rows = bench.rows_of_batches(bench.batches(reader, start, latest))
    expect([n for _, n in rows], bench.written[number], "messages of the other source")


@case(
    "W1",
    claims=("epoch_visibility=whole",),
    abilities=(WritesRows,),
    writing=True,
    hint="close writes what is buffered, or removes what other factories staged",
    needs=("an_aborted_attempt_leaves_nothing",),
)
def closing_a_sink_commits_nothing(bench: Bench) -> None:
    """Rows without a commit are dropped by close; those of another sink are kept."""
    bench.create(partitions=2)
    closed, other = bench.sink(), bench.sink()
    rows = bench.use(WritesRows).rows([1, 2, 3])
    make = partial(closed.writer, rows.schema, writer_id=WRITER, epoch=0)
    attempt, staged = make(task=0), make(task=1)
    attempt.write(rows)
    messages = stage(bench, closed, 0, [[4, 5]])
    theirs = stage(bench, other, 0, [[6]], "other")
    committer = closed.committer(writer_id=WRITER)
    bench.note("writers, the committer and the sink are closed, each twice")
    for one in (attempt, staged, committer, closed):
        one.close()
        one.close()
    expect(seen(bench), [], "what is visible of rows without a commit")
    _expect_closed(
        {
            "write": partial(attempt.write, rows),
            "commit of a writer": staged.commit,
            "commit of an epoch": partial(committer.commit, 0, messages),
            "another writer": make,
            "another committer": partial(closed.committer, writer_id=WRITER),
        }
    )
    expect(seen(bench), [], "what is visible after calls that were refused")
    again = bench.closing(other.committer(writer_id="other"))
    require(again.commit(0, theirs), "the other sink committed nothing")
    expect(seen(bench), [6], "what is visible of rows that the other sink had staged")


@case(
    "M4",
    hint="close undoes what was done, or closes what other objects use",
    needs=(ADMINISTRATION,),
)
def closing_an_administration_leaves_its_topics(bench: Bench) -> None:
    """A closed administration refuses calls; topics that it created stay."""
    check_deletes(bench)
    bench.create(messages=1)
    name, schema = f"{bench.topic}-made", new_schema(bench)
    options = {f"stream__{bench.backend.name}__topic__name": name}
    closed, other = (bench.closing(Admin(bench.configured(**options))) for _ in "ab")
    bench.note(f"create({name!r}), and close, twice")
    count = 1 if bench.traits.single_partition else 2
    with made_from_nothing():
        closed.create(schema, count)
    facts = other.facts()
    closed.close()
    closed.close()
    _expect_closed(
        {
            "creation": partial(closed.create, schema, count),
            "deletion": closed.delete,
            "facts": closed.facts,
            "the partitions": closed.partitions,
        }
    )
    expect(len(other.partitions()), count, "partitions of the topic")
    expect(sorted(other.facts()), sorted(facts), "names of its facts")
    bench.note("the other administration deletes it")
    other.delete()


@case(
    "W4",
    claims=("idempotent", "epoch_visibility=whole"),
    abilities=(WritesRows,),
    writing=True,
    hint="abort removes the writer's record, or rows by a pattern that others match",
    needs=(*EPOCHS, "abort_tolerates_missing_messages_and_repetition"),
)
def an_abort_leaves_what_is_not_its_own(bench: Bench) -> None:
    """Epochs that were committed, and rows of other attempts, outlive an abort."""
    bench.create(partitions=2)
    sink = bench.sink()
    first = stage(bench, sink, 0, [[1], [2]])
    write(bench, sink, 0, [[1], [2]])
    bench.note("another writer stages rows, then epoch 1 of this one is aborted")
    theirs = stage(bench, sink, 0, [[3], [4]], "other")
    attempt, again = (stage(bench, sink, 1, [[5], [6]]) for _ in "ab")
    committer = bench.closing(sink.committer(writer_id=WRITER))
    committer.abort(1, attempt)
    expect(seen(bench), [1, 2], "what is visible after the abort")
    last = sink.factory.fetch_last_commit(WRITER)
    expect(None if last is None else last.epoch, 0, "the last epoch after the abort")
    require(not committer.commit(0, first), "epoch 0 was committed again")
    other = bench.closing(sink.committer(writer_id="other"))
    require(other.commit(0, theirs), "the commit of the other writer was there already")
    expect(seen(bench), [1, 2, 3, 4], "what is visible of the other writer")
    require(committer.commit(1, again), "another attempt of epoch 1 was not committed")
    expect(seen(bench), [*range(1, 7)], "what is visible in the end")
