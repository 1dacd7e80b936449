"""One attempt of one task: what a `Writer` takes, refuses, drains and leaves behind."""

from __future__ import annotations

import gc
import logging
import pickle
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.spi import (
    Abandoned,
    Cancelled,
    ClosedError,
    ConnectionFailed,
    Failed,
    GuaranteeRefused,
    LastCommit,
    MisuseError,
    ReaderFinished,
    SchemaMismatch,
    Summary,
    Unsupported,
    UntranslatedError,
    WriteKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.wiring.writing.sink import Sink

SCHEMA = pa.schema({"n": pa.int64()})


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA)


def test_message_pickles_and_says_who_wrote_what(
    sink_factory: Callable[..., Sink],
) -> None:
    sink = sink_factory()
    with closing(sink.writer(SCHEMA, writer_id="q/sink", epoch=4, task=2)) as writer:
        writer.write(batch(1, 2))
        message = pickle.loads(pickle.dumps(writer.commit()))
    context = message.context
    assert (context.writer_id, context.epoch, context.task) == ("q/sink", 4, 2)
    assert context.kind is WriteKind.STREAMING
    assert context.schema is None
    assert message.summary == Summary(2)
    assert message.config_digest == sink.config.digest()
    assert not message.drained


def test_every_attempt_has_a_unique_name(sink_factory: Callable[..., Sink]) -> None:
    sink = sink_factory()
    with closing(sink.writer(SCHEMA)) as one, closing(sink.writer(SCHEMA)) as two:
        assert one.context.attempt != two.context.attempt


def test_writer_without_rows_makes_the_topic_and_its_epoch_counts(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    contents: Callable[..., dict[int, list[Any]]],
) -> None:
    sink = sink_factory()
    with closing(sink.writer(SCHEMA, writer_id="w")) as writer:
        message = writer.commit()
    with closing(sink.committer(writer_id="w")) as committer:
        assert committer.commit(0, [message])
        assert committer.last() == LastCommit(0, None, Summary())
    assert topics.open("clicks").schema == SCHEMA
    assert contents() == {0: []}


def test_empty_batches_do_not_reach_the_author(
    scripted: Callable[..., Sink], script: Any
) -> None:
    rows = pa.RecordBatch.from_pydict(
        {"n": pa.array([], pa.int64()), "_partition": pa.array([], pa.int32())}
    )
    with closing(scripted().writer(rows.schema)) as writer:
        writer.write(rows)
        assert writer.commit().summary == Summary()
    assert script.written == []


@pytest.mark.parametrize(("epoch", "task"), [(-1, 0), (0, -1)])
def test_numbers_below_zero_are_refused(
    sink_factory: Callable[..., Sink], epoch: int, task: int
) -> None:
    with pytest.raises(MisuseError) as caught:
        sink_factory().writer(SCHEMA, epoch=epoch, task=task)
    name = "epoch" if epoch < 0 else "task"
    assert str(caught.value) == (
        f"the argument {name} is -1; pass a whole number, 0 or more"
    )


def test_an_empty_writer_id_is_refused(sink_factory: Callable[..., Sink]) -> None:
    with pytest.raises(MisuseError) as caught:
        sink_factory().writer(SCHEMA, writer_id="")
    assert caught.value.what == "writer.id must not be empty"


def test_guarantee_that_memory_cannot_give_is_refused_with_the_reason(
    sink_factory: Callable[..., Sink],
) -> None:
    sink = sink_factory({"guarantee": "exactly-once"})
    expected = (
        "guarantee=exactly-once is required, but this sink has at-most-once: "
        "accepted rows may be "
        "lost when the sink's process ends (not durable) (stream 'memory:clicks')"
    )
    with pytest.raises(GuaranteeRefused) as caught:
        sink.writer(SCHEMA, writer_id="w")
    assert str(caught.value) == expected
    with pytest.raises(GuaranteeRefused) as caught:
        sink.committer(writer_id="w")
    assert str(caught.value) == expected


def test_guarantee_is_reported_with_its_reasons(
    sink_factory: Callable[..., Sink],
) -> None:
    sink = sink_factory({"guarantee": "at-most-once"})
    assert str(sink.guarantee(writer_id="w")) == (
        "at-most-once: accepted rows may be lost when the sink's process ends (not "
        "durable)"
    )
    sink.writer(SCHEMA).close()


# --- the end of an attempt ------------------------------------------------------


def test_failing_write_ends_and_aborts_the_attempt_once(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.fails["write"] = ConnectionResetError("gone")
    writer = scripted().writer(SCHEMA)
    with pytest.raises(ConnectionFailed) as caught:
        writer.write(batch(1))
    assert caught.value.stream == "scripted:clicks"
    with pytest.raises(ClosedError) as closed:
        writer.write(batch(2))
    assert closed.value.what == "the writer is aborted"
    writer.abort()
    writer.close()
    assert script.calls == ["create writer", "write", "abort writer", "close writer"]


def test_failing_commit_aborts_the_attempt(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.fails["commit writer"] = TimeoutError("late")
    with closing(scripted().writer(SCHEMA)) as writer, pytest.raises(TimeoutError):
        writer.commit()
    assert script.calls[1:] == ["commit writer", "abort writer", "close writer"]


def test_error_of_a_write_is_reported_though_aborting_fails_too(
    scripted: Callable[..., Sink], script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script.fails["write"] = ConnectionResetError("the write")
    script.fails["abort writer"] = ConnectionResetError("the abort")
    caplog.set_level(logging.INFO, "streamfactory")
    writer = scripted().writer(SCHEMA)
    with pytest.raises(ConnectionFailed) as caught:
        writer.write(batch(1))
    assert caught.value.what == "ConnectionResetError: the write"
    assert "aborting failed: ConnectionResetError: the abort" in caplog.text
    writer.close()
    assert script.calls[-1] == "close writer"


def test_foreign_exception_of_an_author_does_not_cross(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.fails["write"] = KeyError("x")
    with (
        closing(scripted().writer(SCHEMA)) as writer,
        pytest.raises(UntranslatedError) as caught,
    ):
        writer.write(batch(1))
    assert isinstance(caught.value.__cause__, KeyError)


def test_close_aborts_what_was_not_committed_and_closes_everything(
    scripted: Callable[..., Sink], script: Any
) -> None:
    writer = scripted().writer(SCHEMA)
    writer.close()
    writer.close()
    assert script.calls == ["create writer", "abort writer", "close writer"]


def test_close_gives_everything_back_though_aborting_fails(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.fails["abort writer"] = ConnectionResetError("gone")
    writer = scripted().writer(SCHEMA)
    with pytest.raises(ConnectionFailed):
        writer.close()
    assert script.calls == ["create writer", "abort writer", "close writer"]
    writer.close()
    assert len(script.calls) == 3


def test_close_after_commit_aborts_nothing(
    scripted: Callable[..., Sink], script: Any
) -> None:
    writer = scripted().writer(SCHEMA)
    writer.commit()
    writer.abort()
    writer.close()
    assert script.calls == ["create writer", "commit writer", "close writer"]


@pytest.mark.parametrize(
    ("end", "state"),
    [("commit", "committed"), ("abort", "aborted"), ("close", "closed")],
)
def test_use_after_the_end_is_refused(
    scripted: Callable[..., Sink], end: str, state: str
) -> None:
    writer = scripted().writer(SCHEMA)
    getattr(writer, end)()
    for use in (lambda: writer.write(batch(1)), writer.commit):
        with pytest.raises(ClosedError) as caught:
            use()
        assert caught.value.what == f"the writer is {state}"
    writer.close()


def test_close_of_a_sink_translates_what_its_author_raises(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.fails["close factory"] = ConnectionResetError("gone")
    sink = scripted()
    with pytest.raises(ConnectionFailed):
        sink.close()
    sink.close()
    assert script.calls == ["close factory"]


def test_closed_sink_makes_nothing(sink_factory: Callable[..., Sink]) -> None:
    sink = sink_factory()
    sink.close()
    for use in (lambda: sink.writer(SCHEMA), sink.committer, sink.partition_count):
        with pytest.raises(ClosedError) as caught:
            use()
        assert str(caught.value) == "the sink is closed (stream 'memory:clicks')"


# --- back-pressure, and the other side's end ------------------------------------


def test_close_wakes_a_write_that_waits_for_the_other_side(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.blocks = True
    writer = scripted().writer(SCHEMA)
    caught: list[BaseException] = []

    def write() -> None:
        try:
            writer.write(batch(1))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert script.writing.wait(120)
    with pytest.warns(ResourceWarning, match="1 rows were written and never committed"):
        writer.close()
    thread.join(120)
    assert not thread.is_alive()
    assert [type(error) for error in caught] == [ClosedError]
    assert str(caught[0]) == "the writer is closed (stream 'scripted:clicks')"
    assert script.calls == [
        "create writer",
        "write",
        "wake",
        "abort writer",
        "close writer",
    ]


def test_reader_that_has_enough_is_no_error_and_rows_count_as_unread(
    scripted: Callable[..., Sink], script: Any
) -> None:
    with closing(scripted().writer(SCHEMA)) as writer:
        writer.write(batch(1, 2))
        script.end = ReaderFinished()
        assert writer.end == ReaderFinished()
        writer.write(batch(3, 4, 5))
        writer.commit()
    assert [out.rows.num_rows for out in script.written] == [2]
    assert (writer.counters.rows, writer.counters.unread) == (5, 3)


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (Failed("torn"), "torn"),
        (Abandoned(), "Abandoned"),
        (Cancelled("admin"), "Cancelled"),
    ],
)
def test_every_other_end_is_an_error_and_no_row_is_dropped_in_silence(
    scripted: Callable[..., Sink], script: Any, end: Any, how: str
) -> None:
    with closing(scripted().writer(SCHEMA)) as writer:
        script.end = end
        with pytest.raises(ConnectionFailed) as caught:
            writer.write(batch(1))
    assert caught.value.what == f"the other side ended the stream: {how}"
    assert writer.counters.unread == 0
    assert "abort writer" in script.calls


# --- draining -------------------------------------------------------------------


def test_input_of_a_committed_epoch_is_drained_and_not_written(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory()

    def attempt() -> tuple[Any, Any]:
        with closing(sink.writer(SCHEMA, writer_id="w")) as writer:
            writer.write(batch(1, 2))
            writer.write(batch(3))
            return writer.commit(), writer.counters

    with closing(sink.committer(writer_id="w")) as committer:
        message, counters = attempt()
        assert committer.commit(0, [message])
        assert (counters.rows, counters.drained) == (3, 0)
        again, counters = attempt()
        assert not committer.commit(0, [again])
        assert committer.counters.mismatches == 0
    assert again.drained
    assert again.payload is None
    assert again.summary == message.summary
    assert (counters.rows, counters.drained) == (3, 3)
    assert contents() == {0: [1, 2, 3]}


def test_input_is_drained_only_with_a_writer_id_and_stored_epochs(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.last = LastCommit(9)
    with closing(scripted().writer(SCHEMA)) as writer:
        writer.write(batch(1))
        assert not writer.commit().drained
    script.claims = type(script.claims)()
    with closing(scripted().writer(SCHEMA, writer_id="w")) as writer:
        writer.write(batch(1))
        assert not writer.commit().drained
    assert len(script.written) == 2


def test_sink_that_cannot_be_written_reports_it(tmp_path: Any) -> None:
    from streamfactory.spi import Backend
    from streamfactory.wiring.config.configure import configure
    from streamfactory.wiring.config.definition import from_mapping
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.writing.sink import Sink

    given = {"streamType": "memory", "stream.memory.topic.name": "clicks"}
    config = configure(from_mapping(given), PluginManager(), use="write").config
    with pytest.raises(Unsupported) as caught:
        Sink(Configured(config, Backend(name="mute", doc=".", spi_level=1), None))
    assert caught.value.what == "stream type 'mute' cannot be written"


def test_rows_of_the_schema_of_the_sink_are_checked_for_nulls(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    columns = [pa.array([1, None])]
    rows = pa.RecordBatch.from_arrays(columns, schema=script.schema)
    with (
        closing(scripted().writer(script.schema)) as writer,
        pytest.raises(SchemaMismatch, match="'n' is not nullable, but has 1 null"),
    ):
        writer.write(rows)
    assert not script.written


def test_a_sink_with_a_column_named_as_a_framework_column_is_refused(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.schema = pa.schema({"n": pa.int64(), "_partition": pa.int32()})
    with pytest.raises(SchemaMismatch, match="the sink has a column '_partition'"):
        scripted().writer(script.schema)


def test_rows_that_are_written_and_never_committed_warn_with_their_number(
    scripted: Callable[..., Sink],
) -> None:
    text = "stream 'scripted:clicks': 3 rows were written and never committed"
    writer = scripted().writer(SCHEMA)
    writer.write(batch(1, 2))
    writer.write(batch(3))
    with pytest.warns(ResourceWarning, match=text):
        writer.close()
    writer.close()  # warns once


def test_writer_that_is_dropped_with_rows_warns(scripted: Callable[..., Sink]) -> None:
    writer = scripted().writer(SCHEMA)
    writer.write(batch(1))
    with pytest.warns(ResourceWarning, match="1 rows were written"):
        del writer


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_writer_that_is_committed_or_aborted_does_not_warn(
    scripted: Callable[..., Sink], end: str
) -> None:
    writer = scripted().writer(SCHEMA)
    writer.write(batch(1))
    getattr(writer, end)()
    writer.close()
    del writer
    gc.collect()


def test_error_in_the_block_of_a_writer_aborts_without_a_warning(
    scripted: Callable[..., Sink], script: Any
) -> None:
    def write_and_fail() -> None:
        with scripted().writer(SCHEMA) as writer:
            writer.write(batch(1))
            raise LookupError

    with pytest.raises(LookupError):
        write_and_fail()
    assert script.calls[-2:] == ["abort writer", "close writer"]
