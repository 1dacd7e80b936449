"""Spark streams into ``kafka``; tasks and drivers are killed as often as asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tests.kafka.broker import on_a_broker
from tests.kafka.proving import read_committed
from tests.kafka.spark_driver import source
from tests.kafka.topics import Topics
from tests.proving.drivers import Driver
from tests.spark.queries import QueryProof

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.proving.verdict import Verdict

PARTITIONS: Final = 2


class Proof(QueryProof):
    """From files into a topic of Kafka.

    Args:
        folder: Of the topic that is read, and of the checkpoint; empty.
        bootstrap: Where the broker is.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, bootstrap: str, seed: int) -> None:
        super().__init__(folder, seed)
        self._bootstrap = bootstrap
        self._topic = Topics(bootstrap).create(partitions=PARTITIONS)

    def source(self) -> Mapping[str, str]:
        return source(self.folder)

    def start(self) -> Driver:
        line = (self.folder, self._bootstrap, self._topic)
        return Driver(self.folder, "tests.kafka.spark_driver", *line)

    def found(self) -> Iterable[int]:
        partitions = read_committed(self._bootstrap, self._topic, PARTITIONS).values()
        return [number for numbers in partitions for number in numbers]

    def finish(self, name: str = "kafka from Spark") -> Verdict:
        verdict = super().finish(name)
        left = [*(self.folder / "staging").glob("*/*")]
        verdict.notes.append(f"{name}: {len(left)} files left")
        return verdict


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many tasks and drivers of one query."""
    return on_a_broker("Spark into kafka", place, partial(hunt, rounds, seed, place))


def hunt(rounds: int, seed: int, place: Path, bootstrap: str) -> Verdict:
    """As `prove`, on a broker that is there."""
    return Proof(place, bootstrap, seed).hunt(rounds, "kafka from Spark")
