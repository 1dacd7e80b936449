"""Tables in object stores: options that apply, and failures of the store."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs
from tests.objects.proxy import Fault, FaultyProxy
from tests.objects.server import HOST, OWNER, STRANGER, Identity
from tests.objects.stage import place
from tests.tables.states import Fixture

import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    StorageFailed,
    StreamError,
    StreamTimeout,
)
from streamfactory.tables import store_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.objects.server import ObjectServer

TYPES = ["delta", "hudi", "iceberg"]
TABLES = ["delta-feed", "hudi-cow", "hudi-mor", "iceberg-cow"]


def problems(kind: str, path: str, **options: str) -> list[str]:
    """Problems of a configuration, which is opened; nothing listens anywhere."""
    own = {key.replace("__", "."): text for key, text in options.items()}
    properties = {"streamType": kind, f"stream.{kind}.path": path} | {
        f"stream.{kind}.storage.{key}": text for key, text in own.items()
    }
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(properties, follow=False)
    return [
        f"{problem.key.removeprefix(f'stream.{kind}.')}: {problem.what}"
        for problem in caught.value.problems
        if problem.level == "error"
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_options_that_a_store_of_tables_does_not_apply_are_refused(kind: str) -> None:
    bucket = "s3://lake/t"
    assert problems(kind, bucket, certificate="/x.pem", account="a") == [
        "storage.account: has no effect for s3://",
        "storage.certificate: has no effect for s3://",
    ]
    assert problems(kind, bucket, endpoint="http://127.0.0.1:1") == [
        "storage.endpoint: is not encrypted: keys and rows could be read on the network"
    ]
    assert problems(kind, bucket, access__key="${env:PATH}") == [
        "storage.access.key: requires both storage.access.key and storage.secret.key"
    ]
    assert problems(kind, bucket, token="${env:PATH}", anonymous="true") == [
        "storage.token: excludes storage.anonymous=true"
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_credentials_of_google_come_from_the_environment(kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(
            {
                "streamType": kind,
                f"stream.{kind}.path": "gs://lake/t",
                f"stream.{kind}.storage.token": "${env:PATH}",
                f"stream.{kind}.storage.service.account": "/key.json",
                f"stream.{kind}.storage.endpoint": "https://127.0.0.1:1",
            }
        )
    found = {one.key.rpartition("storage.")[2]: one for one in caught.value.problems}
    assert set(found) == {"token", "service.account", "endpoint"}
    assert {one.what for one in found.values()} == {"has no effect for gs://"}
    for key in ("token", "service.account"):
        assert "GOOGLE_APPLICATION_CREDENTIALS" in str(found[key])


@pytest.mark.parametrize("kind", TYPES)
def test_tables_of_another_store_are_refused_before_anything_starts(kind: str) -> None:
    assert problems(kind, "az://lake/t") == ["path: tables at az:// are not read"]


@pytest.fixture(scope="module", params=TABLES)
def stored_table(
    request: pytest.FixtureRequest,
    object_server: ObjectServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, str]:
    """Stream type, and URL of a table in the object store."""
    name: str = request.param
    fixture = Fixture(name, tmp_path_factory.mktemp("t"))
    fixture.show(3)
    url = place()
    store = fs.S3FileSystem(
        access_key=OWNER.key,
        secret_key=OWNER.secret,
        endpoint_override=f"{HOST}:{object_server.port}",
        scheme="http",
        region="us-east-1",
    )
    target = url.removeprefix("s3://")
    fs.copy_files(str(fixture.folder), target, destination_filesystem=store)
    return name.partition("-")[0], url


def at(
    table: tuple[str, str],
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    who: Identity = OWNER,
) -> Mapping[str, str]:
    monkeypatch.setenv("OBJECT_KEY", who.key)
    monkeypatch.setenv("OBJECT_SECRET", who.secret)
    kind, url = table
    options = {
        "endpoint": endpoint,
        "region": "us-east-1",
        "allow.http": "true",
        "access.key": "${env:OBJECT_KEY}",
        "secret.key": "${env:OBJECT_SECRET}",
        "timeout.millis": "2s",
    }
    return {
        "streamType": kind,
        f"stream.{kind}.path": url,
        "retry.max.attempts": "1",
        **{f"stream.{kind}.storage.{key}": text for key, text in options.items()},
    }


def count(properties: Mapping[str, str]) -> int:
    with streamfactory.open(properties, follow=False) as stream:
        return sum(batch.num_rows for batch in stream)


def test_a_table_is_read_by_the_options_of_its_storage(
    stored_table: tuple[str, str],
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert count(at(stored_table, object_server.endpoint, monkeypatch)) > 0


def test_a_store_that_refuses_the_credentials_is_not_authorized(
    stored_table: tuple[str, str],
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NotAuthorized):
        count(at(stored_table, object_server.endpoint, monkeypatch, STRANGER))


def test_a_store_that_does_not_answer_is_a_failed_connection(
    stored_table: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailed):
            count(at(stored_table, f"http://{HOST}:{port}", monkeypatch))


@pytest.fixture
def busy(object_server: ObjectServer) -> Iterator[FaultyProxy]:
    """A store that lists files, and answers 503 for data files."""

    def plan(method: str, path: str) -> Fault | None:
        data = path.partition("?")[0].endswith(".parquet")
        return Fault.BUSY if data and method == "GET" else None

    proxy = FaultyProxy(object_server.port, plan)
    yield proxy
    proxy.stop()


@pytest.mark.parametrize(
    "stored_table",
    [
        "delta-feed",
        "hudi-cow",
        "iceberg-cow",
        pytest.param("hudi-mor", marks=pytest.mark.long("hudi-rs retries at length")),
    ],
    indirect=True,
)
def test_a_data_file_that_the_store_does_not_deliver_is_not_called_damaged(
    stored_table: tuple[str, str], busy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be read"):
        count(at(stored_table, busy.endpoint, monkeypatch))
    assert busy.met


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(13, "Permission denied"), NotAuthorized),
        (TimeoutError(110, "Connection timed out"), StreamTimeout),
        (ConnectionResetError(104, "reset"), ConnectionFailed),
        (OSError(5, "Input/output error"), StorageFailed),
        (OSError("AWS Error SLOW_DOWN during GetObject operation"), ConnectionFailed),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during"), ConnectionFailed),
        (OSError("AWS Error ACCESS_DENIED during HeadObject"), NotAuthorized),
        (OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2"), StorageFailed),
        (OSError("google::cloud::Status(UNAVAILABLE: try again)"), ConnectionFailed),
        (OSError("google::cloud::Status(PERMISSION_DENIED: no)"), NotAuthorized),
        (
            ValueError(
                'ParquetError(External(Generic { store: "S3", source: RetryError('
                "RetryErrorImpl { inner: Status { status: 503, body: None } }) }))"
            ),
            ConnectionFailed,
        ),
        (ValueError("Generic S3 error: error sending request"), ConnectionFailed),
        (OSError("Corrupt snappy compressed data."), None),
        (ValueError("Parquet magic bytes not found in footer"), None),
    ],
)
def test_failures_of_the_storage_are_told_from_damage(
    error: Exception, kind: type[StreamError] | None
) -> None:
    found = store_failure(error, "lake/t/x.parquet")
    assert type(found) is (kind or type(None))
    assert found is None or "lake/t/x.parquet" in found.what


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "give this user the"),
        (OSError(errno.EIO, "Input/output error"), "check the disk"),
        (OSError("When reading: AWS Error ACCESS_DENIED"), "check storage.access.key"),
    ],
)
def test_the_remedy_is_that_of_the_disk_or_of_the_store(
    error: OSError, remedy: str
) -> None:
    found = store_failure(error, "t/x.parquet")
    assert found is not None
    assert str(found.remedy).startswith(remedy)
