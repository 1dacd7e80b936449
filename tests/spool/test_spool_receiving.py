"""Receiving into a spool: exactly once, one receiver, and nothing lost silently."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spool.receiving import DEADLINE, in_state, spooled, stored, until

import streamfactory
from streamfactory.arrowlog.disk import DiskLog, DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.disk.staging import DiskStage
from streamfactory.backends.socket.harness import SocketHarness
from streamfactory.conformance.specimens import forgetful, redelivering
from streamfactory.spi import (
    ConfigError,
    GuaranteeRefused,
    Loss,
    Partition,
    SpoolFull,
    StorageFailed,
    TopicNotFound,
    WriterFenced,
)
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.arrowlog import Committed, Epoch
    from streamfactory.wiring.plugins.manager import PluginManager

PARTITION_0 = Partition("numbers", 0)


def read(properties: dict[str, str], plugins: Any) -> tuple[list[int], list[Loss]]:
    losses: list[Loss] = []
    numbers: list[int] = []
    with open_stream(properties, plugins=plugins) as stream:
        for batch in stream:
            numbers += batch.rows["number"].to_pylist()
            losses += batch.losses
    return numbers, losses


# --- exactly once -----------------------------------------------------------------


def test_what_is_received_can_be_read_again_by_offset(
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    receiver = receive(forgets)
    forgets.write(0, range(50))
    stored(receiver, 50)
    properties = spooled(tmp_path, forgets)
    for _ in range(2):
        assert read(properties, plugins) == ([*range(50)], [])
    offsets = {"startingOffsets": '{"numbers": {"0": 20}}'}
    assert read(properties | offsets, plugins)[0] == [*range(20, 50)]


def test_a_sender_that_ends_is_waited_for_again(
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    receiver = receive(forgets)
    for begin in range(0, 30, 10):
        forgets.write(0, range(begin, begin + 10))
        stored(receiver, begin + 10)
    assert read(spooled(tmp_path, forgets), plugins) == ([*range(30)], [])


def test_messages_are_acknowledged_once_they_are_stored(
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from streamfactory.arrowlog.disk.commits import CommitQueue

    commit, refused = CommitQueue.commit, [True]

    def full(*arguments: Any, **keywords: Any) -> Any:
        if refused[0]:
            msg = "the disk is full"
            raise StorageFailed(msg)
        return commit(*arguments, **keywords)

    monkeypatch.setattr(CommitQueue, "commit", full)
    receiver = receive(queue)
    queue.write(0, range(10))
    in_state(receiver, "blocked")
    assert queue.acknowledged() == {0: 0}
    [report] = receiver.reports()
    assert "the disk is full" in report.error
    refused[0] = False
    until(lambda: queue.acknowledged() == {0: 10}, receiver.reports)


def test_a_restart_stores_what_is_delivered_again_once(
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(*_: Any) -> None:
        msg = "the sender is gone"
        raise ConnectionError(msg)

    with monkeypatch.context() as patched:
        factory = redelivering.RedeliveringConsumerFactory
        patched.setattr(factory, "acknowledge", unreachable)
        receiver = receive(queue)
        queue.write(0, range(10))
        stored(receiver, 10)
        receiver.close()
    assert queue.acknowledged() == {0: 0}
    again = receive(queue)
    until(lambda: queue.acknowledged() == {0: 10}, again.reports)
    queue.write(0, range(10, 20))
    stored(again, 10)
    assert read(spooled(tmp_path, queue), plugins) == ([*range(20)], [])


def test_what_is_lost_before_the_spool_is_named_by_offsets(
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    receiver = receive(forgets)
    forgets.write(0, range(10))
    stored(receiver, 10)
    receiver.close()
    forgets.write(0, range(10, 15))
    with open_stream(forgets.properties(), plugins=plugins) as thief:
        assert thief.to_reader().read_all().num_rows == 5
    forgets.write(0, range(15, 20))
    stored(receive(forgets), 5)
    cause = "before the spool: retention"
    for _ in range(2):
        assert read(spooled(tmp_path, forgets), plugins) == (
            [*range(10), *range(15, 20)],
            [Loss(PARTITION_0, 10, 15, cause)],
        )


def test_what_is_lost_before_the_first_row_is_stored_is_named_by_offsets(
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = DiskLog.commit

    def without_rows(log: DiskLog, epoch: Epoch) -> Committed:
        if any(one.files or one.rows for one in epoch.staged):
            msg = "the disk is full"
            raise StorageFailed(msg)
        return commit(log, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(DiskLog, "commit", without_rows)
        receiver = receive(forgets)
        forgets.write(0, range(10))
        in_state(receiver, "blocked")
        receiver.close()
    forgets.write(0, range(10, 15))
    stored(receive(forgets), 5)
    assert read(spooled(tmp_path, forgets), plugins) == (
        [*range(10, 15)],
        [Loss(PARTITION_0, 0, 10, "before the spool: retention")],
    )


def test_rows_that_arrive_while_others_are_stored_are_another_epoch(
    forgets: forgetful.ForgetfulHarness, receive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = DiskStage.append

    def slow(stage: DiskStage, partition: int, rows: pa.RecordBatch) -> None:
        time.sleep(0.002)
        append(stage, partition, rows)

    monkeypatch.setattr(DiskStage, "append", slow)
    receiver = receive(forgets, batch__rows="1")
    forgets.write(0, range(300))
    stored(receiver, 300)
    assert receiver.reports()[0].commits > 1


def test_a_sender_that_breaks_off_leaves_a_loss(
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    receiver = receive(forgets)
    forgets.write(0, range(10), end=False)
    stored(receiver, 10)
    forgets.server.tear()
    until(lambda: receiver.reports()[0].lost, receiver.reports)
    forgets.server.torn = False
    forgets.write(0, range(10, 12))
    stored(receiver, 12)
    numbers, losses = read(spooled(tmp_path, forgets), plugins)
    assert numbers == [*range(12)]
    assert losses[0].start == 10
    assert losses[0].end is None
    assert losses[0].cause.startswith("before the spool: the sender broke off")


# --- one receiver -----------------------------------------------------------------


def test_a_later_receiver_takes_over_and_the_earlier_one_ends(
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    first = receive(queue)
    queue.write(0, range(10))
    stored(first, 10)
    second = receive(queue)
    in_state(second, "waiting")
    until(lambda: second.wait_ready(0), second.reports)
    queue.write(0, range(10, 20))
    in_state(first, "fenced")
    assert isinstance(first.error, WriterFenced)
    until(lambda: queue.acknowledged() == {0: 20}, second.reports)
    assert read(spooled(tmp_path, queue), plugins) == ([*range(20)], [])


def test_a_spool_of_another_stream_is_refused(
    queue: redelivering.RedeliveringHarness,
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
) -> None:
    receiver = receive(queue)
    queue.write(0, range(3))
    stored(receiver, 3)
    other = receive(forgets)
    until(lambda: other.error, other.reports)
    assert isinstance(other.error, ConfigError)
    assert "belongs to stream 'redelivering:numbers', not to" in other.error.what


def test_a_folder_that_is_no_spool_is_refused(
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    store = DiskLogStore(LocalStorage(tmp_path / "spool"), Settings())
    store.create("numbers", pa.schema([("number", pa.int64())]))
    store.close()
    receiver = receive(queue)
    until(lambda: receiver.error, receiver.reports)
    assert "is not a spool" in str(receiver.error)
    with pytest.raises(ConfigError, match="is not a spool"):
        read(spooled(tmp_path, queue), plugins)


def test_a_spool_without_a_receiver_reports_how_to_start_one(
    queue: redelivering.RedeliveringHarness, plugins: PluginManager, tmp_path: Path
) -> None:
    with pytest.raises(TopicNotFound, match="streamfactory spool"):
        read(spooled(tmp_path, queue), plugins)


# --- full -------------------------------------------------------------------------


def test_a_full_spool_blocks_until_rows_are_released(
    queue: redelivering.RedeliveringHarness, receive: Any
) -> None:
    receiver = receive(queue, batch__rows="10", spool__full__bytes="200")
    queue.write(0, range(100))
    in_state(receiver, "blocked")
    held = receiver.store.open("numbers").bounds()[0].latest
    assert 0 < held < 100
    assert queue.acknowledged() == {0: held}
    log = receiver.store.open("numbers")
    while log.bounds()[0].latest < 100:
        log.truncate({0: log.bounds()[0].latest})
    until(lambda: queue.acknowledged() == {0: 100}, receiver.reports)


def test_a_full_spool_keeps_what_an_ended_sender_sent(
    forgets: forgetful.ForgetfulHarness, receive: Any
) -> None:
    receiver = receive(forgets, batch__rows="10", spool__full__bytes="200")
    forgets.write(0, range(50))
    in_state(receiver, "blocked")
    log = receiver.store.open("numbers")
    while log.bounds()[0].latest < 50:
        assert receiver.reports()[0].state != "failed"
        log.truncate({0: log.bounds()[0].latest})
    stored(receiver, 50)
    in_state(receiver, "waiting")
    assert receiver.reports()[0].lost == 0


def test_a_full_spool_drops_its_oldest_rows_and_readers_see_it(
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    options = {
        "batch__rows": "10",
        "spool__full__bytes": "400",
        "spool__full": "drop-oldest",
    }
    receiver = receive(queue, **options)
    queue.write(0, range(100))
    stored(receiver, 100)
    log = receiver.store.open("numbers")
    until(lambda: log.held(0) <= 400, receiver.reports)
    earliest = log.bounds()[0].earliest
    assert earliest > 0
    start = {
        "startingOffsets": '{"numbers": {"0": 0}}',
        "out.of.range": "earliest",
    }
    numbers, losses = read(spooled(tmp_path, queue, **options) | start, plugins)
    assert numbers == [*range(earliest, 100)]
    assert losses == [Loss(PARTITION_0, 0, earliest, "retention")]


def test_a_full_spool_ends_its_receiver_where_it_is_reported_to(
    queue: redelivering.RedeliveringHarness, receive: Any
) -> None:
    options = {"batch__rows": "10", "spool__full__bytes": "200"}
    receiver = receive(queue, spool__full="fail", **options)
    queue.write(0, range(100))
    in_state(receiver, "failed")
    assert isinstance(receiver.error, SpoolFull)
    held = receiver.store.open("numbers").bounds()[0].latest
    assert queue.acknowledged() == {0: held}


# --- promises ---------------------------------------------------------------------


def test_the_guarantee_is_of_transport_and_spool_together(
    queue: redelivering.RedeliveringHarness,
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    plugins: PluginManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = receive(queue)
    queue.write(0, [1])
    stored(receiver, 1)
    synced = spooled(tmp_path, queue, spool__fsync="always")
    with open_stream({**synced, "guarantee": "exactly-once"}, plugins=plugins) as one:
        assert str(one.guarantee).startswith("exactly-once: received exactly once")
    factory = redelivering.RedeliveringConsumerFactory
    monkeypatch.setattr(factory, "RENUMBERS", True)
    with open_stream(synced, plugins=plugins) as one:
        assert str(one.guarantee).startswith("at-least-once: received at least once")
    with pytest.raises(GuaranteeRefused, match="stored twice"):
        open_stream({**synced, "guarantee": "exactly-once"}, plugins=plugins)
    monkeypatch.undo()
    unsynced = spooled(tmp_path, queue, guarantee="exactly-once")
    with pytest.raises(
        GuaranteeRefused, match=r"power failure .* \(spool.fsync=never\)"
    ):
        open_stream(unsynced, plugins=plugins)
    weak = spooled(tmp_path, forgets, spool__fsync="always", guarantee="exactly-once")
    with pytest.raises(GuaranteeRefused, match="at-most-once until received, exactly"):
        open_stream(weak, plugins=plugins)


def test_a_stream_that_can_be_read_again_is_not_spooled(tmp_path: Path) -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "spool.path": str(tmp_path / "spool"),
    }
    with pytest.raises(ConfigError, match="can be read again"):
        streamfactory.open(properties)


# --- embedded ---------------------------------------------------------------------


def test_an_embedded_receiver_runs_as_long_as_its_reader(tmp_path: Path) -> None:
    harness = SocketHarness(tmp_path)
    harness.create(2)
    harness.write(0, range(10))
    harness.write(1, range(100, 105))
    properties = spooled(tmp_path, harness, spool__receiver="embedded")
    seen: list[int] = []
    try:
        with streamfactory.open(properties, start="earliest", follow=True) as stream:
            deadline = time.monotonic() + DEADLINE
            while len(seen) < 15:
                assert time.monotonic() < deadline
                batch = stream.next_batch(0.5)
                seen += [] if batch is None else batch.rows["number"].to_pylist()
    finally:
        harness.close()
    assert sorted(seen) == [*range(10), *range(100, 105)]
    kept = {**properties, "spool.receiver": "daemon"}
    with streamfactory.open(kept) as stream:
        again = stream.to_reader().read_all()["number"].to_pylist()
    assert sorted(again) == sorted(seen)
