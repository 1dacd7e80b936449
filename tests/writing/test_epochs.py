"""Rules W3, W4 and W7: each epoch once, whatever happens in between."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.spi import (
    ClosedError,
    CommitMessage,
    ContractBroken,
    EpochInThePast,
    EpochMarkerLost,
    EpochMismatch,
    LastCommit,
    MisuseError,
    Partition,
    Position,
    StreamTimeout,
    Summary,
    WriteKind,
)
from streamfactory.wiring.testing.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.wiring.writing.sink import Sink

SCHEMA = pa.schema({"n": pa.int64()})


def staged(
    sink: Sink, *numbers: int, epoch: int = 0, task: int = 0, **context: Any
) -> CommitMessage:
    """Write rows as one task of writer w; answers its message."""
    context = {"writer_id": "w", **context}
    with closing(sink.writer(SCHEMA, epoch=epoch, task=task, **context)) as writer:
        writer.write(pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA))
        return writer.commit()


def commit(sink: Sink, epoch: int, *messages: Any, **more: Any) -> bool:
    """Decide an epoch with a committer of its own, as after a restart."""
    kind = more.pop("kind", WriteKind.STREAMING)
    with closing(sink.committer(writer_id="w", kind=kind)) as committer:
        return committer.commit(epoch, messages, **more)


def forget(topics: MemoryLogStore) -> None:
    """Time passes, and the writer does not write."""
    topics.open("clicks").forget(-1)


def test_epoch_of_many_tasks_is_visible_whole_after_the_decision(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory({"stream.memory.partitions": "3"})
    messages = [staged(sink, task, task + 10, task=task) for task in range(4)]
    assert contents() == {0: [], 1: [], 2: []}
    assert commit(sink, 0, *messages)
    assert contents() == {0: [0, 10, 3, 13], 1: [1, 11], 2: [2, 12]}


def test_repeat_is_a_no_op_also_after_a_restart(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    first = sink_factory()
    assert commit(first, 0, staged(first, 1, 2))
    first.close()
    second = sink_factory()
    assert not commit(second, 0, staged(second, 1, 2))
    # by one writer instead of two, and the other way round
    assert not commit(second, 0, staged(second, 2), staged(second, 1, task=1))
    assert contents() == {0: [1, 2]}


def test_attempt_staged_before_another_one_won_is_not_committed_a_second_time(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory()
    slow, quick = staged(sink, 1, 2), staged(sink, 1, 2)
    assert commit(sink, 0, quick)
    assert not commit(sink, 0, slow)
    assert contents() == {0: [1, 2]}


def test_repeat_with_another_number_of_rows_is_reported_and_counted(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = sink_factory()
    commit(sink, 0, staged(sink, 1, 2))
    with closing(sink.committer(writer_id="w")) as committer:
        assert not committer.commit(0, [staged(sink, 1, 3)])
        assert committer.counters.mismatches == 0
        assert not committer.commit(0, [staged(sink, 1)])
        assert committer.counters.mismatches == 1
    assert [record.getMessage() for record in caplog.records] == [
        (
            "stream 'memory:clicks': epoch 0 was repeated with 1 rows instead of 2; "
            "the first commit is kept"
        )
    ]
    assert contents() == {0: [1, 2]}


def test_repeat_with_other_content_can_be_made_an_error(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory({"epoch.mismatch": "fail"})
    commit(sink, 0, staged(sink, 1, 2))
    with pytest.raises(EpochMismatch) as caught:
        commit(sink, 0, staged(sink, 1))
    assert str(caught.value) == (
        "epoch 0 was repeated with 1 rows instead of 2; the first commit is kept "
        "(stream 'memory:clicks')"
    )
    assert contents() == {0: [1, 2]}


def test_older_epoch_than_the_last_is_in_the_past(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory()
    for epoch in range(3):
        commit(sink, epoch, staged(sink, epoch, epoch=epoch))
    with pytest.raises(EpochInThePast) as caught:
        commit(sink, 1, staged(sink, 1, epoch=1))
    assert caught.value.what == "epoch 1 is older than the last committed one, 2"
    assert contents() == {0: [0, 1, 2]}


def test_author_that_answers_an_older_epoch_breaks_the_contract(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.last, script.held = LastCommit(0), LastCommit(0)
    sink = scripted()
    with pytest.raises(ContractBroken) as caught:
        commit(sink, 1, staged(sink, 1, epoch=1))
    assert caught.value.what == "rule W3: epoch 1 was refused for the older one 0"


def test_source_position_is_stored_with_the_commit_and_comes_back(
    sink_factory: Callable[..., Sink],
) -> None:
    sink = sink_factory()
    position = Position({Partition("clicks", 0): 23}, {Partition("clicks", 0): "a1"})
    assert commit(sink, 0, staged(sink, 1), source_position=position)
    later = Position({Partition("clicks", 0): 99})
    assert not commit(sink, 0, staged(sink, 1), source_position=later)
    with closing(sink_factory().committer(writer_id="w")) as committer:
        assert committer.last() == LastCommit(0, position, Summary(1))
    with closing(sink.committer(writer_id="somebody else")) as committer:
        assert committer.last() is None


def test_replace_all_leaves_what_it_brings_and_nothing_before(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    contents: Callable[..., dict[int, list[Any]]],
) -> None:
    sink = sink_factory({"stream.memory.partitions": "2"})
    commit(sink, 0, staged(sink, 1, 2), staged(sink, 3, task=1))
    message = staged(sink, 4, epoch=1)
    assert commit(sink, 1, message, replace_all=True)
    assert contents() == {0: [4], 1: []}
    assert [(b.earliest, b.latest) for b in topics.open("clicks").bounds()] == [
        (2, 3),
        (1, 1),
    ]
    assert not commit(sink, 1, staged(sink, 4, epoch=1), replace_all=True)
    assert contents() == {0: [4], 1: []}


# --- a marker that is gone (rule W7) --------------------------------------------


def test_epoch_without_a_stored_predecessor_is_refused(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    contents: Callable[..., dict[int, list[Any]]],
) -> None:
    sink = sink_factory()
    commit(sink, 0, staged(sink, 1))
    forget(topics)
    with pytest.raises(EpochMarkerLost) as caught:
        commit(sink, 1, staged(sink, 2, epoch=1))
    assert str(caught.value) == (
        "the last epoch before 1 of writer 'w' is unknown (stream 'memory:clicks'); "
        "if the topic was deleted, or `path` or another option changed, correct it; "
        "to write the epoch as a new one, set it once with "
        "`epoch.adopt`"
    )
    assert contents() == {0: [1]}


def test_writer_that_idles_longer_than_its_memory_is_forgotten(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sink = sink_factory({"writer.memory.millis": "0"})
    commit(sink, 0, staged(sink, 1))
    log = topics.open("clicks")
    assert log.last("w") is not None
    while log.last("w") is not None:  # until the clock has moved by its least step
        with closing(sink.committer(writer_id="other")) as committer:
            committer.commit(0, [staged(sink, 1, writer_id="other")])
    with pytest.raises(EpochMarkerLost):
        commit(sink, 1, staged(sink, 2, epoch=1))


def test_adopted_epoch_is_taken_for_new_and_no_other_one(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    contents: Callable[..., dict[int, list[Any]]],
) -> None:
    sink = sink_factory({"epoch.adopt": "7"})
    with pytest.raises(EpochMarkerLost):
        commit(sink, 6, staged(sink, 1, epoch=6))
    assert commit(sink, 7, staged(sink, 2, epoch=7))
    assert commit(sink, 8, staged(sink, 3, epoch=8))
    assert contents() == {0: [2, 3]}
    forget(topics)
    with pytest.raises(EpochMarkerLost):
        commit(sink, 9, staged(sink, 4, epoch=9))


def test_batch_epochs_begin_anywhere(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory()

    def write(epoch: int) -> bool:
        message = staged(sink, 1, epoch=epoch, kind=WriteKind.BATCH)
        return commit(sink, epoch, message, kind=WriteKind.BATCH)

    assert write(20260131)
    assert not write(20260131)
    assert contents() == {0: [1]}


def test_drained_task_whose_marker_got_lost_never_commits_without_its_rows(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    contents: Callable[..., dict[int, list[Any]]],
) -> None:
    sink = sink_factory({"epoch.adopt": "0"})
    commit(sink, 0, staged(sink, 1))
    drained = staged(sink, 1)
    assert drained.drained
    forget(topics)
    for kind in WriteKind:
        with pytest.raises(EpochMarkerLost) as caught:
            commit(sink, 0, drained, kind=kind)
        assert str(caught.value) == (
            "a task saw epoch 0 committed, but the sink no longer has it "
            "(stream 'memory:clicks'); abort the epoch and write it again"
        )
    assert commit(sink, 0, staged(sink, 1))
    assert contents() == {0: [1, 1]}  # the marker was gone: that is what W7 says


def test_epoch_drained_by_one_task_and_staged_by_another_stays_as_it_was(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory()
    early = staged(sink, 1)
    commit(sink, 0, staged(sink, 1), staged(sink, 2, task=1))
    late = staged(sink, 2, task=1)
    assert late.drained
    with closing(sink.committer(writer_id="w")) as committer:
        assert not committer.commit(0, [early, late])
        assert committer.counters.mismatches == 0
    assert contents() == {0: [1, 2]}


def test_after_a_lost_verdict_the_marker_is_looked_for_as_at_the_start(
    scripted: Callable[..., Sink], script: Any
) -> None:
    sink = scripted()
    zero, one = staged(sink, 1), staged(sink, 1, epoch=1)
    with closing(sink.committer(writer_id="w")) as committer:
        assert committer.commit(0, [zero])
        script.fails["commit"] = TimeoutError("no answer")
        with pytest.raises(StreamTimeout):
            committer.commit(1, [one])
        del script.fails["commit"]
        # meanwhile the sink has forgotten the writer: new or repeated, who knows
        with pytest.raises(EpochMarkerLost):
            committer.commit(1, [one])
    assert len(script.committed) == 1


# --- messages -------------------------------------------------------------------


def test_missing_message_is_refused_at_commit_and_tolerated_at_abort(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory()
    message = staged(sink, 1)
    with closing(sink.committer(writer_id="w")) as committer:
        with pytest.raises(MisuseError) as caught:
            committer.commit(0, [message, None])
        assert str(caught.value) == (
            "epoch 0: the message of a task is missing (stream 'memory:clicks'); "
            "abort the epoch and write it again"
        )
        committer.abort(0, [message, None])
        committer.abort(0, [message, None])
        with pytest.raises(MisuseError) as caught:
            committer.commit(0, [message])
        assert caught.value.what.endswith("staged no longer exists")
    assert contents() == {0: []}


def test_abort_forgets_only_what_was_staged(
    scripted: Callable[..., Sink], script: Any
) -> None:
    sink = scripted()
    message = staged(sink, 1)
    with closing(sink.committer(writer_id="w")) as committer:
        committer.abort(0, [message, None, replace(message, drained=True)])
    assert script.calls[-2:] == ["abort 1", "close committer"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"config_digest": "x"}, "epoch 0: a task used another configuration"),
        ({"epoch": 1}, "epoch 0: a message belongs to epoch 1 of writer 'w'"),
        ({"writer_id": "v"}, "epoch 0: a message belongs to epoch 0 of writer 'v'"),
        ({}, "epoch 0: task 0 sent two messages"),
    ],
)
def test_message_that_does_not_belong_here_is_refused(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    change: dict[str, Any],
    what: str,
) -> None:
    sink = sink_factory()
    good = staged(sink, 1)
    other = staged(sink, 2)
    if "config_digest" in change:
        other = staged(sink, 2, task=1)
        other = replace(other, **change)
    else:
        other = replace(other, context=replace(other.context, **change))
    with pytest.raises(MisuseError) as caught:
        commit(sink, 0, good, other)
    assert caught.value.what == what
    assert contents() == {0: []}


def test_task_and_committer_that_read_different_configurations_do_not_mix(
    sink_factory: Callable[..., Sink],
) -> None:
    message = staged(sink_factory({"batch.rows": "10"}), 1)
    with pytest.raises(MisuseError) as caught:
        commit(sink_factory(), 0, message)
    assert caught.value.what == "epoch 0: a task used another configuration"


def test_closed_committer_refuses_everything(
    sink_factory: Callable[..., Sink], script: Any
) -> None:
    committer = sink_factory().committer(writer_id="w")
    committer.close()
    committer.close()
    for use in (
        committer.last,
        lambda: committer.commit(0, []),
        lambda: committer.abort(0, []),
    ):
        with pytest.raises(ClosedError) as caught:
            use()
        assert caught.value.what == "the committer is closed"


# --- faults on the way ----------------------------------------------------------


@pytest.mark.parametrize("replace_all", [False, True])
def test_commit_whose_verdict_was_lost_is_repeated_and_there_once(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    *,
    replace_all: bool,
) -> None:
    faults = Faults(drop=1.0)
    sink = sink_factory(wrap=faults.around_producers, clock=faults.clock)
    message = staged(sink, 1, 2)
    with closing(sink.committer(writer_id="w")) as committer:
        with pytest.raises(StreamTimeout):
            committer.commit(0, [message], replace_all=replace_all)
        faults.drop = 0.0
        assert not committer.commit(0, [message], replace_all=replace_all)
        assert committer.counters.mismatches == 0
    assert contents() == {0: [1, 2]}


@pytest.mark.parametrize("seed", range(8))
def test_caller_that_repeats_what_failed_writes_every_epoch_once(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    seed: int,
) -> None:
    faults = Faults(seed=seed, fail=0.2, drop=0.3, delay=0.1)
    sink = sink_factory(wrap=faults.around_producers, clock=faults.clock)
    for epoch in range(12):
        done = False
        for _ in range(200):
            try:
                rows = [staged(sink, epoch, epoch=epoch, task=task) for task in (0, 1)]
                commit(sink, epoch, *rows)
                done = True
                break
            except (ConnectionError, TimeoutError):
                continue
        assert done
    assert contents() == {0: [epoch for epoch in range(12) for _ in range(2)]}
    assert faults.injected["fail"]
    assert faults.injected["drop"]
