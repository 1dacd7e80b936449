"""Spark streams between topics of a Flight server; tasks, drivers and server die.

The server keeps its topics in a folder, and is started again at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.flight.proving import serve, wait_for
from tests.flight.spark_driver import topic
from tests.proving.children import Child
from tests.proving.drivers import Driver
from tests.proving.numbers import store_at
from tests.proving.ports import free_port
from tests.spark.queries import QueryProof, ids_of, prove_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.proving.verdict import Verdict


class Proof(QueryProof):
    """From one topic to another.

    Args:
        folder: Of the topics and the checkpoint; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._topics = str(folder / "topics")
        self._port = free_port()
        self._server = self._serve()

    def source(self) -> Mapping[str, str]:
        return topic(self._port, "in")

    def start(self) -> Driver:
        return Driver(self.folder, "tests.flight.spark_driver", self.folder, self._port)

    def disturb(self) -> int:
        if self.chance.random() < 0.5:
            return 0
        self._server.kill()
        self._server = self._serve()
        return 1

    def found(self) -> Iterable[int]:
        return ids_of(store_at(self.folder / "topics").open("out"))

    def close(self) -> None:
        """End the server."""
        self._server.end()

    def _serve(self) -> Child:
        child = Child(serve, self._topics, self._port)
        wait_for(self._port)
        return child


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many tasks, drivers and servers of one query."""
    return prove_query("Spark over Flight", Proof, rounds, seed, place)
