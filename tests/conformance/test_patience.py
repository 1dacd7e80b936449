"""A backend on a busy machine passes the kit: at times it is late, or has nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.conformance import CASES, Outcome, Subject
from streamfactory.conformance.patience import Patience
from streamfactory.conformance.runner import Result, all_cases, run_case
from streamfactory.conformance.specimens import durable
from streamfactory.conformance.specimens.durable import DurableHarness
from streamfactory.spi import Fetched, hookimpl
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import (
        Backend,
        FetchLimits,
        Partition,
        PartitionLevelConsumer,
    )

all_cases()
DURABLE = durable.streamfactory_backend()


class Busy:
    """A consumer whose every other fetch comes late, or empty."""

    def __init__(self, consumer: PartitionLevelConsumer, late: float) -> None:
        self._consumer = consumer
        self._late = late
        self._fetches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def fetch_messages(self, start: int, end: int | None, limits: FetchLimits) -> Any:
        self._fetches += 1
        if self._fetches % 2:
            time.sleep(self._late)
            return Fetched(None, start)
        return self._consumer.fetch_messages(start, end, limits)


class LateFactory(durable.DurableConsumerFactory):
    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> Any:
        made = super().create_partition_level_consumer(client_id, partition)
        return Busy(made, late=1.0)


class EmptyFactory(durable.DurableConsumerFactory):
    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> Any:
        made = super().create_partition_level_consumer(client_id, partition)
        return Busy(made, late=0.0)


def tried(name: str, factory: Any) -> Result:
    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            return replace(DURABLE, consumer_factory=factory)

    plugins = PluginManager()
    plugins.register(Plugin())
    backend = plugins.backend(DURABLE.name)
    return run_case(CASES[name], Subject(backend, DurableHarness, plugins))


def test_an_answer_that_comes_late_now_and_then_is_no_defect() -> None:
    result = tried("an_empty_fetch_returns_within_its_time_slice", LateFactory)
    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


@pytest.mark.parametrize(
    "name",
    [
        "an_open_consumer_seeks_to_any_start",
        "two_consumers_do_not_disturb_each_other",
        "offsets_rise_and_nothing_is_missing",
    ],
)
def test_an_answer_without_rows_is_followed_by_another_question(name: str) -> None:
    result = tried(name, EmptyFactory)
    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the time by some seconds."""
    now = [1000.0]

    def move(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return move


def test_patience_ends_when_neither_the_clock_nor_the_fetches_have_room(
    clock: Callable[[float], None],
) -> None:
    waiting = Patience()
    clock(60.0)  # the process was not scheduled, and has asked nothing
    assert not waiting.over(1.0)
    for _ in range(3):
        assert not waiting.over(1.0)
    assert waiting.over(1.0)


def test_patience_begins_again_with_progress(clock: Callable[[float], None]) -> None:
    waiting = Patience()
    for _ in range(20):
        clock(4.0)
        assert not waiting.over(4.0)
        clock(4.0)
        assert not waiting.over(4.0, progress=True)


def test_answers_at_once_do_not_end_patience_early(
    clock: Callable[[float], None],
) -> None:
    waiting = Patience()
    for _ in range(10_000):
        assert not waiting.over(1.0)
    clock(5.1)
    assert waiting.over(1.0)
