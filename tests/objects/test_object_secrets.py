"""Streams in a bucket by configuration, and their secrets nowhere else."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING

import pytest
from tests.objects.server import OWNER
from tests.objects.stage import SCHEMA, append, properties_at, storage_at

import streamfactory
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.spi import ConfigError, NotAuthorized

if TYPE_CHECKING:
    from tests.objects.server import ObjectServer


@pytest.fixture
def topic(server: ObjectServer, url: str) -> str:
    store = DiskLogStore(storage_at(server.endpoint, url), Settings())
    append(store.create("clicks", SCHEMA), [1, 2, 3])
    return "clicks"


def read(properties: dict[str, str]) -> None:
    with streamfactory.open(properties) as stream:
        stream.to_reader().read_all()


@pytest.mark.usefixtures("credentials")
def test_a_stream_in_a_bucket_is_read_by_configuration(
    server: ObjectServer, url: str, topic: str
) -> None:
    properties = properties_at(server.endpoint, url, topic)
    with streamfactory.open(properties) as stream:
        found = stream.to_reader().read_all()
        shown = f"{stream!r} {stream.config!r} {pickle.dumps(stream.config)!r}"
    assert found.column("number").to_pylist() == [1, 2, 3]
    assert OWNER.key not in shown
    assert OWNER.secret not in shown


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("planted", ["by reference", "in the clear"])
def test_a_refused_secret_shows_nowhere(
    server: ObjectServer,
    url: str,
    topic: str,
    planted: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "planted-very-secret-and-wrong"
    monkeypatch.setenv("OBJECT_SECRET", secret)
    properties = properties_at(server.endpoint, url, topic)
    if planted == "in the clear":
        properties["stream.file.storage.secret.key"] = secret
    with pytest.raises(NotAuthorized) as caught:
        read(properties)
    shown = f"{caught.value!r} {caught.value} {pickle.dumps(caught.value)!r}"
    assert secret not in shown + caplog.text


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("s3://key:secret-word@bucket/x", "contains credentials"),
        ("s3://", "has no bucket"),
        ("s3://bucket/x?sig=secret-word", "has a query or a fragment"),
        ("file://elsewhere/x", "has a host name"),
    ],
)
def test_paths_that_are_no_place_are_refused(path: str, complaint: str) -> None:
    properties = {"streamType": "file", "stream.file.path": path}
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(properties)
    assert complaint in str(caught.value)


def test_options_of_another_store_are_refused() -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": "gs://bucket/x",
        "stream.file.storage.region": "eu-central-1",
        "stream.file.storage.account": "streams",
    }
    with pytest.raises(ConfigError) as caught:
        read(properties)
    assert "stream.file.storage.region: has no effect for gs://" in str(caught.value)
    assert "stream.file.storage.account: has no effect for gs://" in str(caught.value)
