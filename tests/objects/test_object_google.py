"""Topics of Google Cloud Storage: its form of conditional puts, decided by a server."""

from __future__ import annotations

import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tests.objects.child import ROWS, TOPIC, number_of, write
from tests.objects.clouds import google
from tests.objects.google import GoogleProxy
from tests.objects.proxy import Fault
from tests.objects.server import BUCKET
from tests.objects.stage import SCHEMA, numbers_of, rows
from tests.proving.shared import this_run

import streamfactory
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.arrowlog.disk.objectclient import ObjectOptions
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.spi import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITERS, EPOCHS = 2, 4


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> int:
    found = urlsplit(google(this_run(tmp_path_factory))).port
    assert found is not None
    return found


@pytest.fixture
def url() -> str:
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def endpoint(port: int) -> Iterator[str]:
    """The server behind the proxy, which loses some replies to uploads."""
    chance, guard = random.Random(5), threading.Lock()

    def plan(method: str, path: str) -> Fault | None:
        with guard:
            lost = method == "PUT" and chance.random() < 0.1
        return Fault.LOST_REPLY if lost else None

    proxy = GoogleProxy(port, plan)
    yield proxy.endpoint
    proxy.stop()


def storage_at(endpoint: str, url: str) -> ObjectStorage:
    config = {"base_url": endpoint, "bearer_token": "any"}
    return ObjectStorage(url, ObjectOptions(config, allow_http=True, timeout=20.0))


@pytest.mark.long("lost replies of an object store")
def test_writers_in_google_cloud_storage_write_each_epoch_once(
    endpoint: str, url: str
) -> None:
    def run(writer: int) -> None:
        with closing(storage_at(endpoint, url)) as own:
            write(DiskLogStore(own, Settings()).open(TOPIC), writer, EPOCHS)

    with closing(storage_at(endpoint, url)) as storage:
        log = DiskLogStore(storage, Settings()).create(TOPIC, SCHEMA)
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(run, range(WRITERS)))
        found = numbers_of(log)
        log.verify()
    first = [number_of(writer, 0, 0) for writer in range(WRITERS)]
    assert sorted(found) == [n + row for n in first for row in range(EPOCHS * ROWS)]


def test_a_topic_in_google_cloud_storage_is_written_and_read(
    endpoint: str, url: str
) -> None:
    given = {
        "streamType": "file",
        "stream.file.path": url,
        "stream.file.topic.name": TOPIC,
        "stream.file.storage.endpoint": endpoint,
        "stream.file.storage.token": "any",
        "stream.file.storage.allow.http": "true",
    }
    for _ in range(2):
        with streamfactory.open_sink(given) as sink:
            sink.put(rows([1, 2]), writer_id="w", epoch=0)
            sink.put(rows([3]), writer_id="w", epoch=1)
    with streamfactory.open(given, start="earliest", follow=False) as stream:
        assert stream.to_reader().read_all()["number"].to_pylist() == [1, 2, 3]


def test_a_server_without_its_conditional_puts_is_refused(port: int, url: str) -> None:
    proxy = GoogleProxy(port, lambda *_: Fault.UNCONDITIONAL)
    try:
        with (
            closing(storage_at(proxy.endpoint, url)) as storage,
            pytest.raises(StorageFailed, match="ignores"),
        ):
            storage.publish("a", b"1")
    finally:
        proxy.stop()
