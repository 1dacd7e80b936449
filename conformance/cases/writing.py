"""W: whole epochs, each once."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.spi import (
    CommitMessage,
    EpochMarkerLost,
    EpochMismatch,
    EpochVisibility,
    LastCommit,
    Position,
    Skipped,
    Summary,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.conformance.bench import Bench
    from streamfactory.wiring.writing.committer import Committer
    from streamfactory.wiring.writing.sink import Sink

WRITER = "conformance/sink"
EPOCHS = (
    "nothing_is_visible_before_the_decision",
    "a_repeated_epoch_has_no_effect",
    "the_last_epoch_and_its_position_are_remembered",
)


def stage(
    bench: Bench,
    sink: Sink,
    epoch: int,
    tasks: Sequence[Sequence[int]],
    writer_id: str = WRITER,
) -> list[CommitMessage]:
    """Run the tasks of an epoch up to their messages, which cross a process."""
    messages = []
    for task, numbers in enumerate(tasks):
        bench.note(f"write(epoch={epoch}, task={task}, rows={len(numbers)})")
        rows = bench.use(WritesRows).rows(numbers)
        writer = sink.writer(rows.schema, writer_id=writer_id, epoch=epoch, task=task)
        bench.closing(writer)
        writer.write(rows)
        message = pickle.loads(pickle.dumps(writer.commit()))  # noqa: S301 - our own
        messages.append(message)
    return messages


def write(
    bench: Bench,
    sink: Sink,
    epoch: int,
    tasks: Sequence[Sequence[int]],
    writer_id: str = WRITER,
) -> bool:
    """Write an epoch by a new committer; whether this committed it."""
    committer = bench.closing(sink.committer(writer_id=writer_id))
    return committer.commit(epoch, stage(bench, sink, epoch, tasks, writer_id))


def seen(bench: Bench) -> list[int]:
    """All numbers that a reader of the medium sees, sorted."""
    partitions = bench.use(WritesRows).visible().values()
    return sorted(number for partition in partitions for number in partition)


def is_fenced(
    committer: Committer, epoch: int, messages: Sequence[CommitMessage]
) -> bool:
    """Commit; whether it was refused because another instance writes."""
    try:
        committer.commit(epoch, messages)
    except WriterFenced:
        return True
    return False


@case(
    "W1",
    claims=("epoch_visibility",),
    abilities=(WritesRows,),
    writing=True,
    hint="abort leaves staged rows visible",
)
def an_aborted_attempt_leaves_nothing(bench: Bench) -> None:
    """Rows of an attempt that was aborted are never seen."""
    bench.create(partitions=2)
    sink = bench.sink()
    rows = bench.use(WritesRows).rows([1, 2, 3])
    writer = sink.writer(rows.schema, writer_id=WRITER, epoch=0)
    writer.write(rows)
    writer.abort()
    writer.close()
    expect(seen(bench), [], "what is visible after an abort")


@case(
    "W2",
    claims=("epoch_visibility=whole",),
    abilities=(WritesRows,),
    writing=True,
    hint="rows become visible when a task commits",
)
def nothing_is_visible_before_the_decision(bench: Bench) -> None:
    """Before the epoch is committed nothing of it is seen, afterwards all of it."""
    bench.create(partitions=2)
    sink = bench.sink()
    messages = stage(bench, sink, 0, [[1, 2], [3, 4, 5]])
    expect(seen(bench), [], "what is visible before the decision")
    committer = bench.closing(sink.committer(writer_id=WRITER))
    require(committer.commit(0, messages), "the commit says that it was there already")
    expect(seen(bench), [1, 2, 3, 4, 5], "what is visible after the decision")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="epochs are remembered in the process only, or by attempt",
)
def a_repeated_epoch_has_no_effect(bench: Bench) -> None:
    """The same epoch, written again by new objects with other tasks, is seen once."""
    bench.create(partitions=2)
    for tasks in ([[1, 2], [3]], [[1, 2, 3]], [[3], [2], [1]]):
        write(bench, bench.sink(), 0, tasks)
    expect(seen(bench), [1, 2, 3], "what is visible after three tries")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="LastCommit.summary is not the sum of the messages' summaries",
    needs=("a_repeated_epoch_has_no_effect",),
)
def different_content_is_detected_on_request(bench: Bench) -> None:
    """With `epoch.mismatch=fail` the content of a repeated epoch is compared."""
    bench.create(partitions=2)
    for tasks, differs in (
        ([[1, 2], [3]], False),
        ([[3, 2, 1]], False),
        ([[1, 1], [4]], True),  # as many rows, with the same sum
        ([[1, 2]], True),
    ):
        try:
            made = write(bench, bench.sink(epoch__mismatch="fail"), 0, tasks)
        except EpochMismatch:
            require(
                differs, f"the same content, as {tasks}, is taken for other content"
            )
        else:
            # A commit that was made is compared with nothing: other cases judge that.
            unnoticed = differs and not made
            require(not unnoticed, f"other content, {tasks}, passes unnoticed")
    expect(seen(bench), [1, 2, 3], "what is visible after four tries")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="last() is kept in memory, or forgets the position",
)
def the_last_epoch_and_its_position_are_remembered(bench: Bench) -> None:
    """A new committer returns the last epoch and the source position stored with it."""
    bench.create()
    sink = bench.sink()
    committer = bench.closing(sink.committer(writer_id=WRITER))
    expect(committer.last(), None, "what is remembered of a new writer")
    here = Position({bench.partition(bench.first()): 42}, {})
    committer.commit(0, stage(bench, sink, 0, [[1]]), here)
    other = bench.sink()
    last = bench.closing(other.committer(writer_id=WRITER)).last()
    require(last is not None, "nothing is remembered")
    assert last is not None
    expect((last.epoch, last.source_position), (0, here), "epoch and position")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="a field is stored late, from the epoch before, or taken from a cache",
    needs=("the_last_epoch_and_its_position_are_remembered",),
)
def each_of_five_epochs_is_remembered_whole(bench: Bench) -> None:
    """After each epoch of one committer, number, position and summary are its own."""
    number, sink = bench.create(), bench.sink()
    partition = bench.partition(number)
    committer = bench.closing(sink.committer(writer_id=WRITER))
    fetch = sink.factory.fetch_last_commit
    wanted: LastCommit | None = None
    for epoch in range(5):
        messages = stage(bench, sink, epoch, [list(range(3 * epoch + 1)), [epoch]])
        here = Position({partition: 10 * epoch}, {partition: f"incarnation {epoch}"})
        if epoch > 1:
            here = here.skipping([Skipped(partition, epoch, 10, "incarnation 0")])
        committer.commit(epoch, messages, here)
        summary = sum((message.summary for message in messages), Summary())
        wanted = LastCommit(epoch, here, summary)
        expect(fetch(WRITER), wanted, f"what is fetched after epoch {epoch}")
        expect(committer.last(), wanted, f"last() after epoch {epoch}")
    again = pickle.loads(pickle.dumps(sink.factory))  # noqa: S301 - our own
    found = bench.closing(again).fetch_last_commit(WRITER)
    expect(found, wanted, "what a pickled factory fetches")
    other = bench.closing(bench.sink().committer(writer_id=WRITER))
    expect(other.last(), wanted, "last() of a new committer")


@case(
    "W3",
    claims=("idempotent", "epoch_visibility=whole"),
    abilities=(WritesRows,),
    writing=True,
    hint="last() claims nothing, or claims again for an instance that was fenced",
    needs=EPOCHS,
)
def a_later_instance_fences_an_earlier_one(bench: Bench) -> None:
    """Once a later instance has asked for the last epoch, no earlier one commits."""
    for committed in (0, 1, 3):
        bench.create()
        sink, other = bench.sink(), bench.sink()
        early = bench.closing(sink.committer(writer_id=WRITER))
        late = bench.closing(other.committer(writer_id=WRITER))
        bench.note("an instance asks for the last epoch")
        early.last()
        for epoch in range(committed):
            early.commit(epoch, stage(bench, sink, epoch, [[1]]))
        bench.note("a later instance asks for the last epoch")
        late.last()
        epoch, before = committed, [1] * committed
        messages = stage(bench, sink, epoch, [[2]])
        for again in ("", " when it tried again"):
            bench.note(f"the earlier instance commits epoch {epoch}{again}")
            fenced = is_fenced(early, epoch, messages)
            require(fenced, f"the earlier instance could commit{again}")
            expect(seen(bench), before, "what is visible of the fenced epoch")
        made = late.commit(epoch, stage(bench, other, epoch, [[3]]))
        require(made, "the commit of the later instance says that it was there already")
        expect(seen(bench), [*before, 3], "what is visible of the later instance")


@case(
    "W3",
    claims=("idempotent", "epoch_visibility=whole"),
    abilities=(WritesRows,),
    writing=True,
    hint="instances are ordered by when they were made, not by their first question",
    needs=EPOCHS,
)
def the_last_instance_to_claim_is_the_writer(bench: Bench) -> None:
    """The first call of an instance claims the writer and fences all others."""
    bench.create()
    sink, other = bench.sink(), bench.sink()
    unused = bench.closing(sink.committer(writer_id=WRITER))
    asked = bench.closing(other.committer(writer_id=WRITER))
    bench.note("the instance that was made later asks for the last epoch")
    asked.last()
    bench.note("the other begins, with a commit")
    made = unused.commit(0, stage(bench, sink, 0, [[1]]))
    require(made, "the commit of the last to begin says that it was there already")
    fenced = is_fenced(asked, 1, stage(bench, other, 1, [[2]]))
    require(fenced, "the instance that began before it could commit")
    unused.commit(1, stage(bench, sink, 1, [[3]]))
    expect(seen(bench), [1, 3], "what is visible")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="fetch_last_commit claims the writer, or a committer does when it is made",
)
def fetching_the_last_commit_fences_no_instance(bench: Bench) -> None:
    """Tasks that ask for the last epoch, and unused committers, disturb no writer."""
    bench.create()
    sink, other = bench.sink(), bench.sink()
    committer = bench.closing(sink.committer(writer_id=WRITER))
    for epoch in range(2):
        messages = stage(bench, sink, epoch, [[epoch]])
        bench.note("a task elsewhere asks, and a committer is made and not used")
        other.producer.ask("look", lambda: other.factory.fetch_last_commit(WRITER))
        other.committer(writer_id=WRITER).close()
        fenced = is_fenced(committer, epoch, messages)
        require(not fenced, f"the writer was fenced before it could commit {epoch}")
    expect(seen(bench), [0, 1], "what is visible")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="one writer's epochs are taken for another's",
)
def writers_do_not_share_epochs(bench: Bench) -> None:
    """Epoch 0 of two writers are two epochs, however alike their ids are."""
    bench.create()
    sink = bench.sink()
    long = "0fb5c1e4-6d0e-4f0a-8d4b-5f7a4b1f2c3d/" * 4
    writers = ("one", "other", "One", "one ", "one/", "öne", f"{long}a", f"{long}b")
    for number, writer_id in enumerate(writers):
        made = write(bench, sink, 0, [[number]], writer_id)
        require(made, f"epoch 0 of {writer_id!r} is taken for that of another writer")
    expect(seen(bench), [*range(len(writers))], "what is visible of all writers")
    for writer_id in writers:
        last = sink.factory.fetch_last_commit(writer_id)
        require(last is not None, f"nothing is remembered of {writer_id!r}")


@case(
    "W4",
    abilities=(WritesRows,),
    writing=True,
    hint="abort needs every message, or fails twice",
)
def abort_tolerates_missing_messages_and_repetition(bench: Bench) -> None:
    """Aborting with missing messages, and twice, is fine, and nothing is seen."""
    bench.create()
    sink = bench.sink()
    # Without epochs rows cannot be taken back; the next try has to come through.
    isolated = sink.factory.claims().epoch_visibility is not EpochVisibility.NONE
    messages = stage(bench, sink, 0, [[1], [2]])
    committer = bench.closing(sink.committer(writer_id=WRITER))
    for _ in range(2):
        committer.abort(0, [messages[0], None])
        committer.abort(0, [None, messages[1]])
    if isolated:
        expect(seen(bench), [], "what is visible after aborts")
    committer.commit(0, stage(bench, sink, 0, [[3]]))
    found = [number for number in seen(bench) if isolated or number == 3]
    expect(found, [3], "what is visible after the next try")


@case("W2", abilities=(WritesRows,), writing=True, hint="an epoch without rows fails")
def an_empty_epoch_commits(bench: Bench) -> None:
    """An epoch whose tasks had no rows is committed and remembered."""
    bench.create()
    sink = bench.sink()
    committer = bench.closing(sink.committer(writer_id=WRITER))
    committer.commit(0, stage(bench, sink, 0, [[], []]))
    committer.commit(1, stage(bench, sink, 1, [[7]]))
    expect(seen(bench), [7], "what is visible")


@case(
    "W7",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="an unknown writer's epoch is taken for new",
)
def an_epoch_without_predecessor_is_refused(bench: Bench) -> None:
    """A later epoch of a writer without a stored commit is refused, unless adopted."""
    bench.create()
    sink = bench.sink()
    what = "epoch 5 of an unknown writer"
    expect_error(EpochMarkerLost, what, write, bench, sink, 5, [[1]])
    expect(seen(bench), [], "what is visible of the refused epoch")
    write(bench, bench.sink(epoch__adopt="5"), 5, [[2]])
    expect(seen(bench), [2], "what is visible of the adopted epoch")


@case(
    "W8",
    abilities=(WritesRows,),
    writing=True,
    hint="the writer chooses a partition itself",
)
def rows_go_to_the_partition_they_name(bench: Bench) -> None:
    """Rows land in the partition of their `_partition` column, in their order."""
    bench.create(partitions=3)
    partitions = sorted(bench.harness.partitions())
    rows = bench.use(WritesRows).rows(list(range(12)))
    count = len(partitions)  # one, where a stream of the type has no more
    column = pa.array([index % count for index in range(12)], pa.int32())
    routed = rows.append_column("_partition", column)
    sink = bench.sink()
    writer = sink.writer(routed.schema, writer_id=WRITER, epoch=0)
    bench.closing(writer)
    writer.write(routed)
    bench.closing(sink.committer(writer_id=WRITER)).commit(0, [writer.commit()])
    visible = bench.use(WritesRows).visible()
    wanted = {
        partition: list(range(at, 12, count)) for at, partition in enumerate(partitions)
    }
    expect(
        {partition: list(visible[partition]) for partition in partitions},
        wanted,
        "rows by partition",
    )
