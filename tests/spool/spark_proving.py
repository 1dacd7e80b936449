"""A Spark query over a spool of zeromq; tasks, drivers and the receiver die.

Rows come by DEALER/ROUTER: the writer of an epoch waits until it is in the spool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proving.children import Child
from tests.proving.drivers import Driver
from tests.proving.numbers import store_at
from tests.spark.queries import QueryProof, ids_of, prove_query
from tests.spool.receiving import receive
from tests.spool.spark_driver import spooled, target, wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.proving.verdict import Verdict


class Proof(QueryProof):
    """From the spool into a file stream.

    Args:
        folder: Of the spool, the sink and the checkpoint; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._receiver = self._receive()

    def source(self) -> Mapping[str, str]:
        # The side that writes; the query reads what it sends, by the spool.
        return {
            **wire(self.folder, "connect"),
            "stream.zeromq.sender.id": "prover",
            "producer.key.columns": "id",
        }

    def start(self) -> Driver:
        return Driver(self.folder, "tests.spool.spark_driver", self.folder)

    def disturb(self) -> int:
        if self.chance.random() < 0.5:
            return 0
        self._receiver.kill()
        self._receiver = self._receive()
        return 1

    def found(self) -> Iterable[int]:
        store = store_at(self.folder / "out")
        yield from ids_of(store.open(target(self.folder)["stream.file.topic.name"]))
        store.close()

    def close(self) -> None:
        """End the receiver."""
        self._receiver.end()

    def _receive(self) -> Child:
        return Child(receive, str(self.folder), spooled(self.folder))


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many tasks, drivers and receivers of one query."""
    return prove_query("Spark over a spool", Proof, rounds, seed, place)
