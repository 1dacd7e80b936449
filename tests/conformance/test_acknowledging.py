"""Acknowledgements: each defect is caught by the case that is meant for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.conformance.waiting import IMPATIENT

from streamfactory.conformance import CASES, Outcome, Subject
from streamfactory.conformance.runner import all_cases, run_case
from streamfactory.conformance.specimens import redelivering
from streamfactory.conformance.specimens.redelivering import (
    KeepingServer,
    RedeliveringConsumer,
    RedeliveringConsumerFactory,
    RedeliveringHarness,
)
from streamfactory.spi import Backend, Fetched, Partition, Position, hookimpl
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from streamfactory.conformance.specimens.queue_server import Queue
    from streamfactory.spi import ConsumerFactory

all_cases()

CORRECT = redelivering.streamfactory_backend()


pytestmark = pytest.mark.slow("cases wait for what never comes")


class AcknowledgesWhatItReads(RedeliveringConsumerFactory):
    """Acknowledges each answer before anybody has stored it."""

    class Consumer(RedeliveringConsumer):
        def __init__(self, factory: Any, partition: Any) -> None:
            super().__init__(factory.config, partition)
            self._factory = factory

        def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
            fetched = super().fetch_messages(start, end, limits)
            done = Position().with_offset(self._partition, fetched.next_offset)
            self._factory.acknowledge(done)
            return fetched

    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> Any:
        return self.Consumer(self, partition)


class AcknowledgesOneMore(RedeliveringConsumerFactory):
    """Takes the exclusive offset for an inclusive one."""

    def acknowledge(self, position: Position) -> None:
        offsets = {p: offset + 1 for p, offset in position.items()}
        super().acknowledge(Position(offsets, position.incarnations))


class AcknowledgesEveryPartition(RedeliveringConsumerFactory):
    """Acknowledges partitions that the position does not have."""

    def acknowledge(self, position: Position) -> None:
        for partition, offset in position.items():
            others = {Partition(partition.topic, id): offset for id in (0, 1)}
            super().acknowledge(Position(others))


class IgnoresTheIncarnation(RedeliveringConsumerFactory):
    """Acknowledges by the offset alone."""

    def acknowledge(self, position: Position) -> None:
        super().acknowledge(Position(dict(position)))


class DeliversOnce(RedeliveringConsumerFactory):
    """Never reads again what another consumer has read."""

    sent: ClassVar[dict[int, int]] = {}

    class Consumer(RedeliveringConsumer):
        def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
            sent, port = DeliversOnce.sent, self._port
            fetched = super().fetch_messages(max(start, sent.get(port, 0)), end, limits)
            sent[port] = max(sent.get(port, 0), fetched.next_offset)
            return fetched

        def __init__(self, config: Any, partition: Any) -> None:
            super().__init__(config, partition)
            self._port = config["port"]

    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> Any:
        return self.Consumer(self.config, partition)


class GoesBack(RedeliveringHarness):
    """A medium whose word is the last one, whatever it was before."""

    class SERVER(KeepingServer):
        word = 0

        def take(self, queue: Queue, question: dict[str, Any]) -> Any:
            if "acknowledge" in question:
                self.word = question["acknowledge"]
                return {}
            return super().take(queue, question)

    def acknowledged(self) -> dict[int, int]:
        return {0: self.server.word}  # type: ignore[attr-defined]


def tried(name: str, factory: type[ConsumerFactory], harness: Any) -> Any:
    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            return replace(CORRECT, consumer_factory=factory)

    plugins = PluginManager()
    plugins.register(Plugin())
    backend = plugins.backend(CORRECT.name)
    subject = Subject(backend, harness, plugins, waits=IMPATIENT)
    return run_case(CASES[name], subject)


@pytest.mark.parametrize(
    ("case", "factory", "happened"),
    [
        (
            "only_what_is_acknowledged_is_released",
            AcknowledgesWhatItReads,
            "released by reading alone: expected {0: 0, 1: 0}, got {0: 40, 1: 0}",
        ),
        (
            "only_what_is_acknowledged_is_released",
            AcknowledgesOneMore,
            "released by an acknowledgement: expected {0: 20, 1: 0}, got {0: 21, 1: 0}",
        ),
        (
            "only_what_is_acknowledged_is_released",
            AcknowledgesEveryPartition,
            "released by an acknowledgement: expected {0: 20, 1: 0}, got {0: 20, 1: 2",
        ),
        (
            "what_is_not_acknowledged_is_delivered_again",
            DeliversOnce,
            "messages after a restart: expected ",
        ),
        (
            "an_acknowledgement_of_another_incarnation_is_ignored",
            IgnoresTheIncarnation,
            "messages of the new stream: expected 40, got 1",
        ),
        (
            "a_group_acknowledges_what_it_commits",
            AcknowledgesWhatItReads,
            "released before the commit: expected {0: 0}, got {0: 40}",
        ),
    ],
)
def test_a_wrong_acknowledgement_is_found(
    case: str, factory: type[ConsumerFactory], happened: str
) -> None:
    result = tried(case, factory, RedeliveringHarness)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith(happened)


def test_an_acknowledgement_that_goes_back_is_found() -> None:
    name = "an_acknowledgement_can_be_repeated"
    result = tried(name, RedeliveringConsumerFactory, GoesBack)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith(
        "released in the end: expected {0: 20}, got {0: 10}"
    )
