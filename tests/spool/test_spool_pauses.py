"""Spools that are paused or limited: nothing is read that may not be, nothing lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.spool.receiving import in_state, spooled, stored, until

from streamfactory.spi import WriterFenced
from streamfactory.wiring.controls.states import Controls, JobState, Pause, spool_job
from streamfactory.wiring.core.throttle import Rate
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.conformance.specimens import forgetful, redelivering
    from streamfactory.wiring.plugins.manager import PluginManager

PAUSE = Pause("2026-11-29T03:00:00.000Z", "ann", "disk")


@pytest.fixture
def asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Ask something of the job that receives a harness's stream."""
    monkeypatch.setenv("STREAMFACTORY_CONTROLS", str(tmp_path / "controls"))

    def change(harness: Any, **state: Any) -> None:
        kind = harness.properties()["streamType"]
        job = spool_job(f"{kind}:numbers")
        Controls().change(job, lambda _: JobState(**state))

    return change


def numbers(properties: dict[str, str], plugins: PluginManager) -> list[int]:
    with open_stream(properties, plugins=plugins) as stream:
        read: list[int] = stream.to_reader().read_all()["number"].to_pylist()
    return read


def test_paused_spool_reads_nothing_and_stays_paused_after_a_restart(
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    asks: Callable[..., None],
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    receiver = receive(queue)
    queue.write(0, range(10))
    until(lambda: queue.acknowledged() == {0: 10}, receiver.reports)
    asks(queue, pause=PAUSE)
    in_state(receiver, "paused")
    [report] = receiver.reports()
    assert report.error == str(PAUSE)
    queue.write(0, range(10, 20))
    receiver.close()
    again = receive(queue)
    in_state(again, "paused")
    time.sleep(0.5)  # longer than a fetch
    assert queue.acknowledged() == {0: 10}
    assert numbers(spooled(tmp_path, queue), plugins) == [*range(10)]
    asks(queue)
    until(lambda: queue.acknowledged() == {0: 20}, again.reports)
    assert numbers(spooled(tmp_path, queue), plugins) == [*range(20)]


def test_stop_of_a_paused_spool_leaves_messages_to_the_transport(
    forgets: forgetful.ForgetfulHarness,
    receive: Any,
    asks: Callable[..., None],
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    receiver = receive(forgets)
    forgets.write(0, range(10), end=False)
    stored(receiver, 10)
    asks(forgets, pause=PAUSE)
    in_state(receiver, "paused")
    forgets.write(0, range(10, 20))
    receiver.close()
    assert numbers(spooled(tmp_path, forgets), plugins) == [*range(10)]
    with open_stream(forgets.properties(), plugins=plugins) as left:
        assert left.to_reader().read_all()["number"].to_pylist() == [*range(10, 20)]


@pytest.mark.parametrize("received", [0, 10])
def test_paused_spool_ends_when_a_later_receiver_takes_over(
    received: int,
    queue: redelivering.RedeliveringHarness,
    receive: Any,
    asks: Callable[..., None],
) -> None:
    first = receive(queue)
    queue.write(0, range(received))
    stored(first, received)
    asks(queue, pause=PAUSE)
    in_state(first, "paused")
    second = receive(queue)
    in_state(first, "fenced")
    in_state(second, "paused")
    assert isinstance(first.error, WriterFenced)
    assert second.error is None


def test_limit_holds_for_all_partitions_together_and_follows_a_change(
    queue: redelivering.RedeliveringHarness, receive: Any, asks: Callable[..., None]
) -> None:
    queue.create(2)
    asks(queue, rate=Rate(rows=40))
    receiver = receive(queue, schema="number bigint")  # no connection is shared
    for partition in range(2):
        queue.write(partition, [0])
    stored(receiver, 2)
    began = time.monotonic()
    for partition in range(2):
        queue.write(partition, range(1, 1000))

    def rows() -> int:
        return sum(report.rows for report in receiver.reports())

    stored(receiver, 160)
    # Each partition may read a second's rows before the other's are counted.
    assert rows() <= 82 + 40 * (time.monotonic() - began)
    asks(queue)  # with the limit, the rest takes 46 seconds
    stored(receiver, 2000)
    assert time.monotonic() - began < 40


def test_limit_in_bytes_reads_message_by_message(
    queue: redelivering.RedeliveringHarness, receive: Any, asks: Callable[..., None]
) -> None:
    asks(queue, rate=Rate(bytes=1))
    receiver = receive(queue)
    queue.write(0, range(100))
    stored(receiver, 1)
    time.sleep(1)
    [report] = receiver.reports()
    assert report.rows == 1  # 8 bytes, which are paid off in 8 seconds
    asks(queue, rate=Rate())
    stored(receiver, 100)
