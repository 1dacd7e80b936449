"""Blobs in a bucket: names, reading by windows, deadlines, failures in our words."""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.objects.proxy import Fault
from tests.objects.server import BUCKET, READER, STRANGER
from tests.objects.stage import options, storage_at

from streamfactory.arrowlog.disk import objectclient, objects
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.spi import (
    ConnectionFailed,
    MessageTooLarge,
    NotAuthorized,
    NotInstalled,
    StorageFailed,
    StreamError,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects.server import ObjectServer

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def storage(server: ObjectServer, url: str) -> ObjectStorage:
    return storage_at(server.endpoint, url)


def write(storage: Any, name: str, data: bytes) -> int:
    blob = storage.create(name)
    blob.sink.write(data)
    return int(blob.finish())


@pytest.mark.parametrize(
    "name",
    ["plain", "with space", "a%20b%2Fc.topic", "ünï-ćøde", "a+b&c=d", "~.x", "Ж"],
)
def test_names_come_back_as_they_were(storage: ObjectStorage, name: str) -> None:
    inner = storage.within(f"{name}.folder")
    assert inner.publish(f"log/{name}", b"x") is True
    assert storage.names("") == [f"{name}.folder"]
    assert inner.names("log") == [name]
    assert inner.read(f"log/{name}") == b"x"
    inner.remove([f"log/{name}"])
    assert inner.names("log") == []


def test_a_file_of_another_program_gets_another_name(
    server: ObjectServer, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = storage.within("t.topic")
    write(inner, "staging/a/files/part", b"rows")
    assert inner.adopt("staging/a/files/part", "data/new") == 4
    inner.remove_folder("staging/a")
    assert inner.read("data/new") == b"rows"
    # Some stores keep the folder.
    assert inner.ages("staging/a/files") == {}
    with pytest.raises(FileNotFoundError):
        inner.adopt("staging/a/files/part", "data/other")
    reader = storage_at(server.endpoint, storage.location, who=READER)
    with pytest.raises(NotAuthorized):
        reader.adopt("t.topic/data/new", "t.topic/data/other")
    monkeypatch.setattr(objects, "_COPY", 3)
    with pytest.raises(MessageTooLarge, match="4 bytes"):
        inner.adopt("data/new", "data/other")
    assert inner.names("data") == ["new"]


def test_folders_and_blobs_are_listed_together(storage: ObjectStorage) -> None:
    write(storage, "a/one", b"1")
    write(storage, "a/b/two", b"22")
    write(storage, "ab/three", b"333")
    assert sorted(storage.names("a")) == ["b", "one"]
    assert storage.names("nothing") == []
    assert storage.size("a/b/two") == 2
    ages = storage.ages("a")
    assert list(ages) == ["one"]
    assert -5 < ages["one"] < 60


def test_missing_blobs_are_missing_files(storage: ObjectStorage) -> None:
    tries: list[Callable[[], Any]] = [
        lambda: storage.read("none"),
        lambda: storage.size("none"),
        lambda: storage.open("none"),
    ]
    for attempt in tries:
        with pytest.raises(FileNotFoundError, match="none"):
            attempt()
    storage.remove(["none", "log/none"])
    storage.remove_folder("none")


def test_a_folder_goes_with_all_that_it_holds(storage: ObjectStorage) -> None:
    for number in range(5):
        write(storage, f"gone/{number}/x", b"1")
    write(storage, "gone-not/x", b"1")
    storage.remove_folder("gone")
    # The server may go on listing the folders themselves.
    assert [storage.names(f"gone/{number}") for number in range(5)] == [[]] * 5
    assert storage.read("gone-not/x") == b"1"


def test_an_abandoned_blob_is_never_there(storage: ObjectStorage) -> None:
    blob = storage.create("data/x")
    blob.sink.write(b"something")
    blob.abandon()
    assert storage.names("data") == []


@pytest.mark.parametrize("size", [10, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 21 << 20])
def test_blobs_are_read_from_anywhere(storage: ObjectStorage, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert write(storage, "data/x", data) == size
    file = storage.open("data/x").file
    assert file.size() == size
    chance = random.Random(1)
    for _ in range(20):
        start = chance.randrange(size)
        count = chance.choice([1, 100, 70_000, 5 << 20])
        assert file.read_at(count, start) == data[start : start + count]
    file.seek(0)
    assert file.read() == data


def test_a_segment_is_read_in_few_requests(
    server: ObjectServer, proxied: Any, url: str
) -> None:
    proxy = proxied(lambda method, path: None)
    storage = storage_at(proxy.endpoint, url)
    numbers = pa.array(range(65_536), pa.int64())
    rows = pa.record_batch({"number": numbers, "again": numbers})
    blob = storage.create("data/x")
    with pa.ipc.new_file(blob.sink, rows.schema) as writer:
        for _ in range(24):
            writer.write_batch(rows)
    size = blob.finish()
    proxy.requests = 0
    reader = pa.ipc.open_file(storage.open("data/x").file)
    assert reader.num_record_batches == 24
    assert reader.get_batch(13).equals(rows)
    assert proxy.requests == 3  # the beginning, the footer, the batch
    assert all(reader.get_batch(n).equals(rows) for n in range(24))
    assert proxy.requests <= 3 + 2 + size / (3 << 20)


def test_a_blob_that_goes_while_it_is_read_is_a_missing_file(
    storage: ObjectStorage,
) -> None:
    write(storage, "data/x", bytes(9 << 20))
    file = storage.open("data/x").file
    storage.remove(["data/x"])
    with pytest.raises(FileNotFoundError):
        file.read_at(10, 8 << 20)


def test_a_watch_ends_when_woken(storage: ObjectStorage) -> None:
    watch = storage.watch("log")
    watch.wake()
    begun = time.monotonic()
    watch.wait(300.0)
    assert time.monotonic() - begun < 100.0
    watch.close()


@pytest.mark.long("waits for timeouts of the client")
def test_a_server_that_is_not_there_is_a_passing_trouble(url: str) -> None:
    storage = storage_at(NOWHERE, url, timeout=0.3)
    for attempt in every_call(storage):
        with pytest.raises(ConnectionFailed) as caught:
            attempt()
        assert str(caught.value).startswith(url)


def test_a_server_that_does_not_answer_ends_at_the_deadline(
    proxied: Any, url: str
) -> None:
    proxy = proxied(lambda method, path: Fault.NO_REPLY)
    storage = storage_at(proxy.endpoint, url, timeout=0.2)
    for attempt in every_call(storage):
        begun = time.monotonic()
        with pytest.raises(StreamTimeout):
            attempt()
        assert time.monotonic() - begun < 60  # the client tries again


def every_call(storage: ObjectStorage) -> list[Callable[[], Any]]:
    return [
        lambda: storage.read("log/x"),
        lambda: storage.size("log/x"),
        lambda: storage.names("log"),
        lambda: storage.ages("log"),
        lambda: storage.open("log/x"),
        lambda: storage.publish("log/x", b"1"),
        lambda: write(storage, "data/x", b"1"),
        lambda: storage.remove(["log/x"]),
        lambda: storage.remove(["data/x"]),
        lambda: storage.remove_folder("data"),
    ]


def test_who_may_only_read_is_refused_when_he_writes(
    server: ObjectServer, storage: ObjectStorage, url: str
) -> None:
    write(storage, "data/x", b"1")
    reader = storage_at(server.endpoint, url, who=READER)
    assert reader.read("data/x") == b"1"
    for attempt in (
        lambda: reader.publish("log/x", b"1"),
        lambda: write(reader, "data/y", b"1"),
        lambda: reader.remove(["data/x"]),
    ):
        with pytest.raises(NotAuthorized) as caught:
            attempt()
        assert caught.value.remedy is not None
        assert "storage.access.key" in caught.value.remedy
    assert storage.names("data") == ["x"]


def test_a_stranger_is_refused_without_a_word_of_his_secret(
    server: ObjectServer, url: str
) -> None:
    storage = storage_at(server.endpoint, url, who=STRANGER)
    for attempt in every_call(storage):
        with pytest.raises(NotAuthorized) as caught:
            attempt()
        text = f"{caught.value!r} {caught.value} {caught.value.to_dict()}"
        assert STRANGER.secret not in text
        assert url in text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_secrets_are_masked_whatever_the_client_says(url: str) -> None:
    def make(module: Any) -> Any:
        msg = "login with hidden-very-long refused at http://x/y?sig=abc"
        raise module.exceptions.GenericError(msg)

    config = {"secret_access_key": "hidden-very-long"}
    storage = ObjectStorage(url, objectclient.ObjectOptions(config), make=make)
    with pytest.raises(StorageFailed) as caught:
        storage.read("x")
    assert str(caught.value) == f"{url}/x: login with *** refused at http://x/y"
    assert "hidden" not in repr(objectclient.ObjectOptions(config))


def test_a_missing_bucket_is_reported(server: ObjectServer) -> None:
    # This server makes a bucket for its owner; for others it does not.
    url = f"s3://no-such-{BUCKET}/x"
    storage = ObjectStorage(url, options(server.endpoint, READER))
    with pytest.raises(StorageFailed) as caught:
        storage.read("log/x")
    assert str(caught.value) == (
        f"{url}: the bucket does not exist; create it first: streamfactory does not "
        f"create buckets"
    )


def test_http_is_refused_unless_allowed(server: ObjectServer, url: str) -> None:
    config = options(server.endpoint).config
    storage = ObjectStorage(url, objectclient.ObjectOptions(config, timeout=0.5))
    with pytest.raises(StreamError):
        storage.names("")


def test_without_the_client_the_command_is_reported(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setattr(objectclient, "_loaded", [])
    with pytest.raises(NotInstalled) as caught:
        ObjectStorage(url).read("x")
    assert caught.value.remedy == "run: pip install 'streamfactory[objects]'"
