"""Several processes on one topic in a bucket, killed and cut off: each epoch once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.objects.child import ROWS, TOPIC, number_of
from tests.objects.proxy import Fault
from tests.objects.stage import SCHEMA, append, numbers_of, storage_at

from streamfactory.arrowlog import Retention
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.spi import MisuseError, OffsetOutOfRange, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.objects.server import ObjectServer

    from streamfactory.arrowlog.disk import DiskLog

ROOT = Path(__file__).parents[2]
PATIENCE = 400.0


class Children:
    """Processes that are gone when the test is."""

    def __init__(self, endpoint: str, url: str) -> None:
        self._where = endpoint, url
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *task: object) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.objects.child", *self._where]
        child = subprocess.Popen(
            [*words, *map(str, task)], cwd=ROOT, stdout=subprocess.PIPE
        )
        self._running.append(child)
        return child

    def ready(self, *task: object) -> subprocess.Popen[bytes]:
        child = self.start(*task)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    def stop(self) -> None:
        for child in self._running:
            child.kill()
            child.wait(120)
            assert child.stdout is not None
            child.stdout.close()


@pytest.fixture
def log(server: ObjectServer, url: str) -> Iterator[DiskLog]:
    storage = storage_at(server.endpoint, url)
    store = DiskLogStore(storage, Settings(merge_files=8))
    yield store.create(TOPIC, SCHEMA)
    store.close()
    storage.close()


@pytest.fixture
def children(server: ObjectServer, url: str) -> Iterator[Children]:
    made = Children(server.endpoint, url)
    yield made
    made.stop()


def check(log: DiskLog, writers: int, epochs: int) -> None:
    """Every row of every writer once, in its order."""
    found = numbers_of(log)
    for writer in range(writers):
        low, high = number_of(writer, 0, 0), number_of(writer + 1, 0, 0)
        own = [number for number in found if low <= number < high]
        assert own == [low + row for row in range(epochs * ROWS)]
    assert len(found) == writers * epochs * ROWS
    log.verify()


def test_processes_write_each_epoch_once(log: DiskLog, children: Children) -> None:
    writers = [children.start("write", number, 25) for number in range(3)]
    assert [child.wait(PATIENCE) for child in writers] == [0, 0, 0]
    check(log, 3, 25)


@pytest.mark.long("kills of processes")
def test_killed_processes_write_each_epoch_once(
    log: DiskLog, children: Children
) -> None:
    chance = random.Random(3)
    children.ready("keep")
    for _ in range(3):
        writers = [children.ready("write", number, 60) for number in range(2)]
        time.sleep(chance.uniform(0.05, 0.6))  # a random moment is what is tested
        for child in writers:
            child.kill()
            child.wait(120)
    writers = [children.start("write", number, 60) for number in range(2)]
    assert [child.wait(PATIENCE) for child in writers] == [0, 0]
    check(log, 2, 60)


@pytest.mark.long("series of lost replies")
def test_lost_replies_write_each_epoch_once(
    server: ObjectServer, proxied: Any, url: str, log: DiskLog
) -> None:
    chance, guard = random.Random(7), threading.Lock()
    kinds = [Fault.LOST_REPLY, Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.CONFLICT]

    def plan(method: str, path: str) -> Fault | None:
        if method != "PUT":
            return None
        with guard:
            return chance.choice(kinds) if chance.random() < 0.3 else None

    proxy = proxied(plan)
    children = Children(proxy.endpoint, url)
    try:
        writers = [children.start("write", number, 20) for number in range(2)]
        assert [child.wait(PATIENCE) for child in writers] == [0, 0]
    finally:
        children.stop()
    check(log, 2, 20)
    assert len(proxy.met) > 20


def test_a_lost_reply_makes_no_second_topic(
    server: ObjectServer, proxied: Any, url: str
) -> None:
    left = {"log/00000000000000000000.json", "000000.json"}

    def plan(method: str, path: str) -> Fault | None:
        met = {name for name in left if method == "PUT" and path.endswith(name)}
        left.difference_update(met)
        return Fault.LOST_REPLY if met else None

    proxy = proxied(plan)
    store = DiskLogStore(storage_at(proxy.endpoint, url), Settings())
    append(store.create("born", SCHEMA), [1, 2, 3])
    assert not left
    again = DiskLogStore(storage_at(server.endpoint, url), Settings())
    assert numbers_of(again.open("born")) == [1, 2, 3]
    with pytest.raises(MisuseError, match="topic 'born' exists already"):
        again.create("born", SCHEMA)


def test_what_is_retained_and_merged_stays_where_it_was(log: DiskLog) -> None:
    for epoch in range(40):
        append(log, [epoch * 2, epoch * 2 + 1])
    before = log.facts()["segments"]
    log.compact()
    assert int(log.facts()["segments"]) < int(before)
    assert numbers_of(log) == list(range(80))
    log.retain(Retention(rows=10), {})
    log.compact()
    assert [(partition.earliest, partition.latest) for partition in log.bounds()] == [
        (70, 80)
    ]
    assert numbers_of(log) == list(range(70, 80))
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 5, max_rows=1, max_bytes=1)


def test_a_follower_is_reported_of_new_rows(server: ObjectServer, url: str) -> None:
    store = DiskLogStore(storage_at(server.endpoint, url), Settings())
    log = store.create("followed", SCHEMA)
    other = DiskLogStore(storage_at(server.endpoint, url), Settings()).open("followed")
    thread = threading.Thread(target=append, args=(log, [1, 2, 3]))
    thread.start()
    assert other.wait(0, 0, 20.0) is True
    thread.join(120)
    assert numbers_of(other) == [1, 2, 3]


def test_a_deleted_topic_takes_nothing_more(server: ObjectServer, url: str) -> None:
    store = DiskLogStore(storage_at(server.endpoint, url), Settings())
    store.create("short", SCHEMA)
    other = DiskLogStore(storage_at(server.endpoint, url), Settings())
    stale = other.open("short")
    append(stale, [1])
    store.delete("short")
    assert store.names() == []
    with pytest.raises(TopicNotFound):
        append(stale, [2])
