"""Readers of a prefix in which files arrive, killed and started again.

Two copy it: one is notified by a queue whose events are lost, repeated or late, the
other one lists. Both have to copy each row once, in the same order.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import threading
import uuid
from typing import TYPE_CHECKING, Final

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from tests.objects.clouds import Amazon, Queue
from tests.objects.server import BUCKET, OWNER, ObjectServer
from tests.objects.stage import place, properties_at
from tests.proving.children import DEADLINE, Pack
from tests.proving.copies import copy_numbers
from tests.proving.numbers import SCHEMA, numbers_of, store_at
from tests.proving.shared import Run
from tests.proving.verdict import Verdict, compared

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EACH: Final = 5
"""Rows of a file."""
LONGEST: Final = {"events": 0.8, "listing": 0.8}
"""Seconds that one that is killed may have run, by role."""


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them, on servers of their own."""
    folder = root / "objects"
    folder.mkdir()
    server = ObjectServer.start(folder, os.getpid())
    amazon = Amazon.of(Run(root, os.getpid()))
    return prove_on(server, amazon, rounds, seed, root)


def prove_on(
    server: ObjectServer, amazon: Amazon, rounds: int, seed: int, root: Path
) -> Verdict:
    """Kill so many of them."""
    url, chance = place(), random.Random(seed)
    queue = Queue(amazon, uuid.uuid4().hex, seconds=1)
    store, drain = store_at(root), root / "drain"
    source = properties_at(server.endpoint, url, "t") | {
        "stream.file.storage.access.key": OWNER.key,
        "stream.file.storage.secret.key": OWNER.secret,
        "stream.file.format": "parquet",
        "stream.file.list.interval.millis": "700ms",
    }
    sources = {"events": {**source, "stream.file.queue.url": queue.url}}
    sources["listing"] = source
    roles = {}
    for name, given in sources.items():
        store.create(name, SCHEMA)
        roles[name] = (copy_numbers, given, target(root, name), drain)
    sender = Sender(server, queue, url, random.Random(seed))
    pack = Pack(roles)
    try:
        pack.hunt(rounds, chance, LONGEST)
        count = sender.stop()
        drain.touch()
        for name in roles:
            pack.finish(name)
    finally:
        sender.stop()
        pack.close()
    found = {name: numbers_of(store.open(name)) for name in roles}
    store.close()
    wanted = {name: range(EACH * count) for name in roles}
    verdict = compared(wanted, {name: sorted(some) for name, some in found.items()})
    verdict += compared({"order": found["events"]}, {"order": found["listing"]})
    verdict.kills = rounds
    verdict.notes.append(f"{count} objects arrived, {sender.lost} without an event")
    return verdict


def target(root: Path, topic: str) -> Mapping[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(root),
        "stream.file.topic.name": topic,
        "stream.file.fsync": "never",
    }


class Sender:
    """Writes objects of numbers that count up, until it is stopped."""

    def __init__(
        self, server: ObjectServer, queue: Queue, url: str, chance: random.Random
    ) -> None:
        self._store = server.store()
        self._queue = queue
        self._key = url.removeprefix(f"s3://{BUCKET}/")
        self._chance = chance
        self._stopped = threading.Event()
        self._late: list[str] = []
        self._count = 0
        self.lost = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> int:
        """Stop; how many objects there are."""
        self._stopped.set()
        self._thread.join(DEADLINE)
        return self._count

    def _run(self) -> None:
        while not self._stopped.wait(self._chance.uniform(0.0, 0.2)):
            # Names of any order, so that the order is not that of the names.
            key = f"{self._key}/{self._chance.randrange(10**6)}-{self._count}"
            first = EACH * self._count
            obstore.put(self._store, key, _content(range(first, first + EACH)))
            self._count += 1
            self._notify(key)

    def _notify(self, key: str) -> None:
        fate = self._chance.choice(("once", "twice", "late", "lost"))
        if fate == "lost":
            self.lost += 1
            return
        if fate == "late":
            self._late.append(key)
            return
        for _ in range(1 + (fate == "twice")):
            self._queue.send(key, *self._late)
        self._late.clear()


def _content(numbers: range) -> bytes:
    sink = io.BytesIO()
    with contextlib.closing(sink):
        pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), sink)
        return sink.getvalue()
