"""Delta and Iceberg tables in an object store."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.objects.server import OWNER
from tests.objects.stage import place

import streamfactory
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.objects.server import ObjectServer

    Append = Callable[[list[int]], None]

REGION = "us-east-1"


@contextmanager
def delta(url: str, server: ObjectServer) -> Iterator[Append]:
    options = {
        "endpoint": server.endpoint,
        "allow_http": "true",
        "region": REGION,
        "access_key_id": OWNER.key,
        "secret_access_key": OWNER.secret,
    }

    def append(numbers: list[int]) -> None:
        rows = pa.table({"id": pa.array(numbers, pa.int64())})
        write_deltalake(url, rows, mode="append", storage_options=options)

    yield append


@contextmanager
def iceberg(url: str, server: ObjectServer) -> Iterator[Append]:
    from pyiceberg.catalog.memory import InMemoryCatalog

    options = {
        "s3.endpoint": server.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": OWNER.key,
        "s3.secret-access-key": OWNER.secret,
    }
    with closing(InMemoryCatalog("test", warehouse=url, **options)) as catalog:
        catalog.create_namespace("n")
        schema = pa.schema([pa.field("id", pa.int64())])
        table = catalog.create_table("n.table", schema, location=url)
        yield lambda numbers: table.append(
            pa.table([pa.array(numbers, pa.int64())], schema=schema)
        )


def properties(kind: str, url: str, server: ObjectServer) -> dict[str, str]:
    options = {
        "path": url,
        "storage.endpoint": server.endpoint,
        "storage.allow.http": "true",
        "storage.region": REGION,
        "storage.access.key": "${env:OBJECT_KEY}",
        "storage.secret.key": "${env:OBJECT_SECRET}",
    }
    named = {f"stream.{kind}.{key}": value for key, value in options.items()}
    return {"streamType": kind, **named}


def read(stream: Any) -> list[int]:
    return sorted(row["id"] for batch in stream for row in batch.rows.to_pylist())


@pytest.mark.long("starts an object server")
@pytest.mark.parametrize("writer", [delta, iceberg], ids=["delta", "iceberg"])
def test_a_table_in_an_object_store_is_read_with_its_changes(
    writer: Callable[[str, ObjectServer], AbstractContextManager[Append]],
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    url = place().partition("?")[0]
    kind = writer.__name__
    with writer(url, object_server) as append:
        append([1, 2])
        append([3])
        with streamfactory.open(properties(kind, url, object_server)) as stream:
            assert read(stream) == [1, 2, 3]
            at = stream.position
        append([4, 5])
        with streamfactory.open(
            properties(kind, url, object_server), start=at
        ) as stream:
            assert read(stream) == [4, 5]


@pytest.mark.long("starts an object server")
def test_epochs_are_appended_to_a_table_in_an_object_store(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    url = place().partition("?")[0]
    at = properties("delta", url, object_server)
    for epoch in (0, 1, 1):
        with streamfactory.open_sink(at) as sink:
            sink.put({"id": [epoch]}, writer_id="w", epoch=epoch)
        with delta(url, object_server) as append:
            append([7])
    with streamfactory.open(at) as stream:
        assert read(stream) == [0, 1, 7, 7, 7]


@pytest.mark.long("starts an object server")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_are_written_by_key_and_merged_in_an_object_store(
    kind: str,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    url = place().partition("?")[0]
    at = properties(kind, url, object_server)
    if kind == "iceberg":
        del at["stream.iceberg.path"]
        at["stream.iceberg.table"] = "n.t"
        at["stream.iceberg.warehouse"] = url
        uri = f"sqlite:///{tmp_path}/catalog.db"
        at["stream.iceberg.catalog.prop.uri"] = uri
    with streamfactory.open_sink(at, options={"producer.key.columns": "id"}) as sink:
        sink.put({"id": [1, 2, 3], "v": ["a", "b", "c"]}, writer_id="w", epoch=0)
        change = {"id": [1, 2], "v": ["A", None], "_change": ["insert", "delete"]}
        assert sink.put(change, writer_id="w", epoch=1)
        assert sink.put(change, writer_id="w", epoch=1) is False
    with open_admin(at) as admin:
        assert admin.facts()["files"] == 2
        admin.compact()
        assert admin.facts()["files"] == 1
    with streamfactory.open(at) as stream:
        rows = stream.to_reader().read_all().sort_by("id")
    assert rows.select(["id", "v"]).to_pylist() == [
        {"id": 1, "v": "A"},
        {"id": 3, "v": "c"},
    ]
