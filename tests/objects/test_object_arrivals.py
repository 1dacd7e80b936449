"""Files of other programs that arrive below a prefix: by listing, and by events."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.objects.arrivals_proving import prove_on
from tests.objects.clouds import Amazon, Queue, created, google
from tests.objects.proxy import Fault
from tests.objects.server import BUCKET, OWNER, READER
from tests.objects.stage import place, properties_at
from tests.proving.shared import this_run

import streamfactory
from streamfactory.backends.file.foreign import create_consumer, objectfolder
from streamfactory.backends.file.foreign.arrivals import created_objects
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    FetchLimits,
    IncarnationChanged,
    Partition,
    SchemaMismatch,
    StorageFailed,
    StreamError,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.objects.proxy import FaultyProxy
    from tests.objects.server import ObjectServer

pytestmark = pytest.mark.usefixtures("credentials")

MANIFEST = ".streamfactory-manifest"


@pytest.fixture(scope="session")
def amazon(tmp_path_factory: pytest.TempPathFactory) -> Amazon:
    return Amazon.of(this_run(tmp_path_factory))


@pytest.fixture
def queue(amazon: Amazon) -> Queue:
    return Queue(amazon, uuid.uuid4().hex)


class Prefix:
    """A prefix of the bucket, and a hand on its objects."""

    def __init__(self, server: ObjectServer) -> None:
        self.url = place()
        self.key = self.url.removeprefix(f"s3://{BUCKET}/")
        self.store = server.store()
        self.endpoint = server.endpoint

    def put(self, name: str, *numbers: int, form: str = "parquet") -> None:
        self.write(name, content(numbers, form))

    def write(self, name: str, data: bytes) -> None:
        obstore.put(self.store, f"{self.key}/{name}", data)

    def remove(self, name: str) -> None:
        obstore.delete(self.store, f"{self.key}/{name}")

    def properties(self, **options: str) -> dict[str, str]:
        given = {"format": "parquet", **options}
        return properties_at(self.endpoint, self.url, "t") | {
            f"stream.file.{key.replace('_', '.')}": text for key, text in given.items()
        }

    def read(self, **options: str) -> list[int]:
        """All rows from an offset, by a reader that was just opened."""
        start = options.pop("start", "0")
        given = self.properties(**options)
        given["startingOffsets"] = json.dumps({"t": {"0": int(start)}})
        with streamfactory.open(given, follow=False) as stream:
            return [n for b in stream for n in b.rows.column("number").to_pylist()]


@pytest.fixture
def prefix(server: ObjectServer) -> Prefix:
    return Prefix(server)


def content(numbers: Sequence[int], form: str = "parquet", **options: Any) -> bytes:
    table = pa.table({"number": pa.array(numbers, pa.int64())})
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, sink, **options)
    else:
        new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
        with new(sink, table.schema) as writer:
            writer.write_table(table, **options)
    return sink.getvalue()


# --- listing --------------------------------------------------------------------------


def test_objects_keep_the_order_in_which_they_were_found(prefix: Prefix) -> None:
    prefix.put("m", 1, 2)
    assert prefix.read() == [1, 2]
    prefix.put("z", 4)
    prefix.put("b", 3)
    assert prefix.read() == [1, 2, 3, 4]
    prefix.put("a", 5)
    assert prefix.read() == [1, 2, 3, 4, 5]
    assert prefix.read(start="4") == [5]


def test_an_open_reader_finds_what_arrives(prefix: Prefix) -> None:
    prefix.put("a", 1)
    given = prefix.properties(list_interval_millis="100ms")
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        found: list[int] = []
        for number in (1, 2, 3):
            batch = stream.next_batch(60)
            assert batch is not None
            found += batch.rows.column("number").to_pylist()
            prefix.put(f"file {number}", number + 1)
    assert found == [1, 2, 3]


@pytest.mark.parametrize("form", ["file", "stream", "auto"])
def test_arrow_files_are_read(form: str, prefix: Prefix) -> None:
    prefix.put("a", 1, 2, form="stream" if form == "stream" else "file")
    prefix.put("b", 3, form="file" if form == "file" else "stream")
    assert prefix.read(format=form) == [1, 2, 3]


@pytest.mark.parametrize("mapped", ["true", "false"])
@pytest.mark.parametrize("form", ["parquet", "file"])
def test_an_object_of_many_requests_is_read_whole(
    form: str, mapped: str, prefix: Prefix
) -> None:
    """Ten megabytes, in parts that do not end where batches do."""
    numbers = range(1_300_000)
    how: dict[str, Any] = {"max_chunksize": 70_000}
    if form == "parquet":
        how = {"row_group_size": 300_000, "use_dictionary": False}
        how["compression"] = "none"
    prefix.write("large", content(numbers, form, **how))
    assert prefix.read(format=form, memory_map=mapped) == [*numbers]
    assert prefix.read(format=form, memory_map=mapped, start="1234567")[0] == 1234567


@pytest.mark.parametrize("name", ["a b", "a+b", "ä", "a%20b", "x=1", "a,b;c'd"])
def test_any_name_is_read(name: str, prefix: Prefix, queue: Queue) -> None:
    prefix.put("0", 0)
    given = {"queue_url": queue.url, "list_interval_millis": "1h"}
    with streamfactory.open(
        prefix.properties(**given), start="earliest", follow=True
    ) as stream:
        assert stream.next_batch(60) is not None
        prefix.put(name, 1)
        queue.send(f"{prefix.key}/{name}")
        batch = stream.next_batch(60)
        assert batch is not None
        assert batch.rows.column("number").to_pylist() == [1]
    assert prefix.read() == [0, 1]


def test_hidden_names_and_folders_are_left_out(prefix: Prefix) -> None:
    prefix.put("a", 1)
    for name in (".b", "_SUCCESS", "b.tmp", "deeper/b", "c"):
        prefix.write(name, content([2]) if name == "c" else b"whatever")
    assert prefix.read(names="[ab]*") == [1]


def test_a_removed_object_is_named_with_its_offsets(prefix: Prefix) -> None:
    for number, name in enumerate("abc"):
        prefix.put(name, 2 * number, 2 * number + 1)
    assert prefix.read() == [*range(6)]
    prefix.remove("b")
    with pytest.raises(CorruptData, match=r"/b', which has offsets 2 to 4, is missing"):
        prefix.read()
    prefix.remove("a")
    assert prefix.read(start="4") == [4, 5]


def test_an_object_with_the_content_of_a_removed_one_is_read(
    prefix: Prefix, queue: Queue
) -> None:
    """It was written before the other one was listed, and its event is late."""
    prefix.put("a", 0)
    with open_events(prefix, queue) as stream:
        assert numbers_from(stream, 1) == [0]
        assert stream.next_batch(0.5) is None  # the last listing
        prefix.put("late", 1)
        prefix.put("b", 1)
        queue.send(f"{prefix.key}/b")
        assert numbers_from(stream, 1) == [1]
        prefix.remove("b")
        queue.send(f"{prefix.key}/late")
        assert numbers_from(stream, 1) == [1]


def test_an_overwritten_object_is_refused(prefix: Prefix) -> None:
    prefix.put("a", 1)
    prefix.put("b", 2)
    assert prefix.read() == [1, 2]
    prefix.put("b", 3)
    with pytest.raises(IncarnationChanged, match=r"/b', .* has changed since"):
        prefix.read()


def test_an_object_that_is_overwritten_while_it_is_read_is_refused(
    prefix: Prefix,
) -> None:
    """Parts of two versions are never mixed."""
    numbers = range(1_000_000)
    how: dict[str, Any] = {
        "row_group_size": 100_000,
        "use_dictionary": False,
        "compression": "none",
    }
    prefix.write("a", content(numbers, **how))
    given = prefix.properties(memory_map="false")
    with streamfactory.open(given, start="earliest", follow=False) as stream:
        first = next(iter(stream)).rows.column("number").to_pylist()
        assert first == [*range(len(first))]
        prefix.write("a", content([n + 1 for n in numbers], **how))
        with pytest.raises(IncarnationChanged, match="has changed since"):
            list(stream)


def test_a_store_that_refuses_conditional_reads_is_named(
    prefix: Prefix,
    proxied: Callable[[Callable[[str, str], Fault | None]], FaultyProxy],
) -> None:
    """Neither is the object left out, nor is it requested again and again."""

    def plan(method: str, path: str) -> Fault | None:
        return Fault.REFUSED if (method, path[-2:]) == ("GET", "/a") else None

    prefix.put("a", 1)
    server, proxy = prefix.endpoint, proxied(plan)
    for _ in range(2):
        prefix.endpoint = proxy.endpoint
        with pytest.raises(StorageFailed, match="refuses reads by the ETag"):
            prefix.read()
        prefix.endpoint = server
        assert prefix.read() == [1]


def test_an_object_of_another_schema_is_refused_by_name(prefix: Prefix) -> None:
    prefix.put("a", 1)
    sink = io.BytesIO()
    pq.write_table(pa.table({"other": [1]}), sink)
    prefix.write("b", sink.getvalue())
    prefix.put("c", 3)
    with pytest.raises(SchemaMismatch, match=f"{prefix.url}/b'"):
        prefix.read()
    prefix.remove("b")
    assert prefix.read() == [1, 3]


def test_a_prefix_without_objects_waits_for_the_first(prefix: Prefix) -> None:
    with pytest.raises(StreamTimeout, match="contains no file with a schema yet"):
        prefix.read()


def test_a_bucket_that_is_not_written_needs_a_folder_for_the_manifest(
    prefix: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix.put("a", 1)
    monkeypatch.setenv("OBJECT_KEY", READER.key)
    monkeypatch.setenv("OBJECT_SECRET", READER.secret)
    with pytest.raises(StorageFailed, match=r"manifest .* cannot be written") as error:
        prefix.read()
    assert "state.folder" in str(error.value)
    prefix.put("b", 2)
    assert prefix.read(state_folder=str(tmp_path)) == [1, 2]
    assert prefix.read(state_folder=str(tmp_path), start="1") == [2]


def test_damaged_manifests_are_refused(prefix: Prefix) -> None:
    prefix.put("a", 1)
    assert prefix.read() == [1]
    prefix.write(f"{MANIFEST}/{1:020d}.jsonl", b'{"name": "../b"}\n')
    with pytest.raises(CorruptData, match="manifest part"):
        prefix.read()


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.TORN_REPLY, Fault.BUSY])
def test_requests_that_fail_are_repeated(
    fault: Fault,
    prefix: Prefix,
    proxied: Callable[[Callable[[str, str], Fault | None]], FaultyProxy],
) -> None:
    for number in range(3):
        prefix.put(str(number), number)
    count = iter(range(1_000_000))

    def plan(method: str, path: str) -> Fault | None:
        return fault if next(count) in (1, 3, 6, 10, 15) else None

    proxy = proxied(plan)
    prefix.endpoint = proxy.endpoint
    assert prefix.read() == [0, 1, 2]
    assert proxy.met


def test_reading_what_is_listed_makes_no_other_requests(
    prefix: Prefix,
    proxied: Callable[[Callable[[str, str], Fault | None]], FaultyProxy],
) -> None:
    numbers = range(100_000)
    how: dict[str, Any] = {"row_group_size": 1000, "use_dictionary": False}
    prefix.write("a", content(numbers, **how))
    proxy = proxied(lambda method, path: None)
    prefix.endpoint = proxy.endpoint
    assert prefix.read() == [*numbers]
    before = proxy.requests
    given = prefix.properties()
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        rows = 0
        while rows < len(numbers):
            batch = stream.next_batch(60)
            assert batch is not None
            rows += batch.rows.num_rows
        assert proxy.requests - before < 40


def test_a_task_reads_what_its_driver_listed_without_a_listing_of_its_own(
    prefix: Prefix,
    proxied: Callable[[Callable[[str, str], Fault | None]], FaultyProxy],
) -> None:
    """Its reader is pooled, and was at the end when the driver listed the object."""
    listings: list[str] = []

    def plan(method: str, path: str) -> Fault | None:
        if "list-type" in path:
            listings.append(path)
        return None

    server, proxy = prefix.endpoint, proxied(plan)
    partition = Partition("t", 0)
    prefix.endpoint = proxy.endpoint
    given = from_mapping(prefix.properties(list_interval_millis="1h"))
    config = configure(given, default_manager(), use="spark").config
    limits = FetchLimits(max_rows=1000, max_bytes=1 << 20, timeout=0.2)
    prefix.endpoint = server
    with closing(create_consumer(config, partition)) as consumer:
        for number in range(3):
            prefix.put(f"n{number}", number)
            assert prefix.read(start=str(number)) == [number]
            found = consumer.fetch_messages(number, number + 1, limits)
            assert found.rows is not None
            assert found.rows.column("number").to_pylist() == [number]
    assert listings == []


# --- events ---------------------------------------------------------------------------


def open_events(prefix: Prefix, queue: Queue, **options: str) -> Any:
    given = {"queue_url": queue.url, "list_interval_millis": "1h", **options}
    return streamfactory.open(prefix.properties(**given), start="earliest", follow=True)


def numbers_from(stream: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        batch = stream.next_batch(60)
        assert batch is not None
        found += batch.rows.column("number").to_pylist()
    return found


def test_objects_are_found_by_events_alone(prefix: Prefix, queue: Queue) -> None:
    prefix.put("a", 0)
    with open_events(prefix, queue) as stream:
        assert numbers_from(stream, 1) == [0]
        for number in (1, 2, 3):
            prefix.put(f"n{number}", number)
            queue.send(f"{prefix.key}/n{number}")
            assert numbers_from(stream, 1) == [number]
    assert queue.waiting() == 0


def test_events_of_a_path_with_encoded_characters_are_its_own(
    prefix: Prefix, queue: Queue
) -> None:
    prefix.url, prefix.key = f"{prefix.url}/a%20b", f"{prefix.key}/a b"
    prefix.put("a", 0)
    with open_events(prefix, queue) as stream:
        assert numbers_from(stream, 1) == [0]
        assert stream.next_batch(0.5) is None  # the last listing
        prefix.put("b", 1)
        queue.send(f"{prefix.key}/b")
        assert numbers_from(stream, 1) == [1]


def test_events_that_are_repeated_or_late_list_an_object_once(
    prefix: Prefix, queue: Queue, amazon: Amazon
) -> None:
    prefix.put("a", 0)
    with open_events(prefix, queue) as stream:
        assert numbers_from(stream, 1) == [0]
        prefix.put("b", 1)
        for _ in range(15):
            queue.send(f"{prefix.key}/b", f"{prefix.key}/a", f"{prefix.key}/b")
        assert numbers_from(stream, 1) == [1]
        prefix.put("removed", 9)
        prefix.remove("removed")
        queue.send(f"{prefix.key}/removed")
        prefix.put("c", 2)
        queue.send(f"{prefix.key}/c")
        assert numbers_from(stream, 1) == [2]
    assert queue.waiting() == 0
    assert prefix.read() == [0, 1, 2]


def test_objects_whose_events_are_lost_are_found_by_listing(
    prefix: Prefix, queue: Queue
) -> None:
    prefix.put("a", 0)
    with open_events(prefix, queue, list_interval_millis="200ms") as stream:
        assert numbers_from(stream, 1) == [0]
        prefix.put("lost", 1)
        assert numbers_from(stream, 1) == [1]
        queue.send(f"{prefix.key}/lost")  # and comes after all
        prefix.put("b", 2)
        assert numbers_from(stream, 1) == [2]


def test_an_event_stays_until_its_object_is_listed(
    prefix: Prefix, queue: Queue
) -> None:
    prefix.put("a", 0)
    assert prefix.read() == [0]
    prefix.write("b", b"PAR1 and no footer, but not so short as to be taken for one")
    sink = io.BytesIO()
    pq.write_table(pa.table({"other": [1]}), sink)
    prefix.write("c", sink.getvalue())
    queue.send(f"{prefix.key}/c")
    for _ in range(2):
        with (
            pytest.raises(SchemaMismatch, match="/c'"),
            open_events(prefix, queue) as stream,
        ):
            numbers_from(stream, 2)
    assert queue.waiting() == 1


def test_what_is_no_event_of_the_prefix_is_not_read(
    prefix: Prefix, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    prefix.put("a", 0)
    queue.put("not an event")
    queue.put("[" * 100_000)
    queue.send(f"{prefix.key}-other/x", f"{prefix.key}/deeper/x", f"{prefix.key}/.x")
    queue.send(f"{prefix.key}/a", bucket="other")
    queue.put(json.dumps({"Event": "s3:TestEvent", "Bucket": BUCKET}))
    with (
        caplog.at_level(logging.WARNING, "streamfactory"),
        open_events(prefix, queue) as stream,
    ):
        assert numbers_from(stream, 1) == [0]
        prefix.put("b", 1)
        queue.send(f"{prefix.key}/b")
        assert numbers_from(stream, 1) == [1]
    assert queue.waiting() == 2  # those that may be of others
    warned = [record for record in caplog.records if "queue" in record.getMessage()]
    assert warned
    assert OWNER.secret not in caplog.text


def test_messages_that_are_no_events_do_not_hide_events(
    prefix: Prefix, amazon: Amazon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One search goes through the queue."""
    others, queue = 95, Queue(amazon, uuid.uuid4().hex, seconds=600)
    monkeypatch.setattr(objectfolder, "_POLL", 3600.0)
    prefix.put("a", 0)
    for _ in range(others):
        queue.put("not an event")
    queue.send(f"{prefix.key}/a")
    with open_events(prefix, queue) as stream:
        assert numbers_from(stream, 1) == [0]
    assert queue.waiting() == others


def test_two_readers_of_a_queue_read_the_same_stream(
    prefix: Prefix, queue: Queue
) -> None:
    prefix.put("a", 0)
    assert prefix.read() == [0]
    with open_events(prefix, queue) as one, open_events(prefix, queue) as two:
        for number in range(1, 6):
            prefix.put(f"n{number}", number)
            queue.send(f"{prefix.key}/n{number}")
        assert numbers_from(one, 6) == numbers_from(two, 6)
    assert sorted(prefix.read()) == [*range(6)]


def test_a_bucket_that_notifies_a_queue_is_followed(amazon: Amazon) -> None:
    """The events as a server of S3 makes them, and its conditional puts."""
    bucket, queue = uuid.uuid4().hex, Queue(amazon, uuid.uuid4().hex, 30)
    store = amazon.client("s3")
    store.create_bucket(Bucket=bucket)
    store.put_bucket_notification_configuration(
        Bucket=bucket,
        NotificationConfiguration={
            "QueueConfigurations": [
                {"QueueArn": queue.arn, "Events": ["s3:ObjectCreated:*"]}
            ]
        },
    )
    given = properties_at(amazon.endpoint, f"s3://{bucket}/in", "t") | {
        "stream.file.format": "parquet",
        "stream.file.queue.url": queue.url,
        "stream.file.list.interval.millis": "1h",
    }
    store.put_object(Bucket=bucket, Key="in/a 0", Body=content([0]))
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        assert numbers_from(stream, 1) == [0]
        for number in (1, 2):
            key = f"in/a {number}"
            store.put_object(Bucket=bucket, Key=key, Body=content([number]))
            assert numbers_from(stream, 1) == [number]


def test_readers_that_are_killed_copy_each_row_once(
    server: ObjectServer, amazon: Amazon, tmp_path: Path
) -> None:
    verdict = prove_on(server, amazon, rounds=4, seed=1, root=tmp_path)
    assert verdict.good, verdict
    assert verdict.kills == 4


# --- configuration, errors ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue_url": "nothing"}, "is not a URL"),
        ({"queue_url": "https://a:b@sqs.example/1/q"}, "contains credentials"),
        ({"queue_url": "https://sqs.example:no/1/q"}, "Port could not be cast"),
        ({"path": "gs://b/in", "queue_url": "https://sqs/1/q"}, "is of S3's events"),
        ({"path": "hdfs://host/in"}, "only topics can be kept"),
        (
            {"queue_url": "http://sqs/1/q", "storage_allow_http": "false"},
            "is not encrypted",
        ),
    ],
    ids=["no-url", "credentials", "port", "gs", "hdfs", "http"],
)
def test_configurations_that_cannot_work_are_refused(
    options: dict[str, str], words: str, prefix: Prefix
) -> None:
    with pytest.raises(ConfigError, match=words):
        prefix.read(**options)


def test_a_missing_queue_is_named(prefix: Prefix, queue: Queue) -> None:
    prefix.put("a", 0)
    with pytest.raises(TopicNotFound, match=r"queue .*-no' cannot be read"):
        prefix.read(queue_url=f"{queue.url}-no")


def test_a_refused_queue_keeps_the_secret(
    prefix: Prefix, amazon: Amazon, server: ObjectServer
) -> None:
    """The server of objects answers, which has no queues."""
    prefix.put("a", 0)
    with pytest.raises(StreamError) as error:
        prefix.read(queue_url=f"{server.endpoint}/1/q")
    assert OWNER.secret not in repr(error.value) + str(error.value.__cause__)


EVENT = {"Records": [created("b", "in/a b")]}
BRIDGE = {
    "source": "aws.s3",
    "detail-type": "Object Created",
    "detail": {"bucket": {"name": "b"}, "object": {"key": "in/a+b"}},
}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (EVENT, [("b", "in/a b")]),
        ({"Type": "Notification", "Message": json.dumps(EVENT)}, [("b", "in/a b")]),
        (BRIDGE, [("b", "in/a+b")]),
        ({**BRIDGE, "detail-type": "Object Deleted"}, []),
        ({"Records": [{**created("b", "a"), "eventName": "ObjectRemoved:Delete"}]}, []),
        ({"Event": "s3:TestEvent"}, []),
        ({"Records": [{"eventName": "ObjectCreated:Put"}]}, None),
        ({"Records": 7}, None),
        ({"Message": "x"}, None),
        ({**BRIDGE, "detail": []}, None),
        (["x"], None),
    ],
)
def test_events_have_their_objects(body: Any, found: Any) -> None:
    assert created_objects(json.dumps(body)) == found


# --- Google Cloud Storage -------------------------------------------------------------


def test_a_prefix_of_google_cloud_storage_is_followed(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """The server takes no conditional puts: the manifest is in a folder."""
    endpoint = google(this_run(tmp_path_factory))
    key = uuid.uuid4().hex

    def put(name: str, number: int) -> None:
        url = f"{endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name="
        request = urllib.request.Request(
            url + quote_plus(f"{key}/{name}"), content([number]), method="POST"
        )
        urllib.request.urlopen(request, timeout=20).read()

    given = {
        "streamType": "file",
        "stream.file.path": f"gs://{BUCKET}/{key}",
        "stream.file.format": "parquet",
        "stream.file.state.folder": str(tmp_path),
        "stream.file.storage.endpoint": endpoint,
        "stream.file.storage.token": "any",
        "stream.file.storage.allow.http": "true",
        "stream.file.list.interval.millis": "100ms",
    }
    put("a 1", 1)
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        assert numbers_from(stream, 1) == [1]
        put("a 0", 0)
        assert numbers_from(stream, 1) == [0]
    with streamfactory.open(given, start="earliest", follow=False) as stream:
        assert stream.to_reader().read_all()["number"].to_pylist() == [1, 0]
    put("a 1", 2)
    with (
        pytest.raises(IncarnationChanged, match="has changed since"),
        streamfactory.open(given, start="earliest", follow=False) as stream,
    ):
        list(stream)
