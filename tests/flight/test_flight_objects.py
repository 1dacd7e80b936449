"""A Flight server whose topics are in a bucket of a real object store."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream
from tests.objects.proxy import Fault, FaultyProxy
from tests.objects.server import BUCKET, OWNER, STRANGER
from tests.objects.stage import place, properties_at

import streamfactory
from streamfactory.spi import ConfigError, StreamError
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from tests.objects.server import ObjectServer

    from streamfactory.wiring.serving.process import ServerProcess


@pytest.fixture
def url() -> str:
    return place()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, who in (("OBJECT", OWNER), ("STRANGER", STRANGER)):
        monkeypatch.setenv(f"{name}_KEY", who.key)
        monkeypatch.setenv(f"{name}_SECRET", who.secret)


def served(endpoint: str, url: str, who: str = "OBJECT", **more: Any) -> ServerProcess:
    return streamfactory.serve(
        path=url,
        storage_endpoint=endpoint,
        storage_region="us-east-1",
        storage_access_key=f"${{env:{who}_KEY}}",
        storage_secret_key=f"${{env:{who}_SECRET}}",
        storage_allow_http=True,
        **more,
    )


def put(properties: dict[str, str], epoch: int, numbers: list[int]) -> None:
    with open_sink(properties) as sink:
        sink.put(pa.table({"number": numbers}), writer_id="w", epoch=epoch)


def read(properties: dict[str, str]) -> list[int]:
    with streamfactory.open(properties) as opened:
        found: list[int] = opened.to_reader().read_all()["number"].to_pylist()
    return found


@pytest.mark.long("two servers")
def test_topics_in_a_bucket_are_the_same_through_flight_and_file(
    object_server: ObjectServer, url: str
) -> None:
    direct = properties_at(object_server.endpoint, url, "clicks")
    large = list(range(20_000))  # uploaded, rather than sent with the commit
    with served(object_server.endpoint, url) as server:
        through = stream(server, "clicks")
        put(through, 0, [1, 2])
        assert read(direct) == [1, 2]
        put(direct, 1, [3, 4])
        assert read(through) == [1, 2, 3, 4]
        put(through, 2, large)
        put(direct, 2, large)  # committed through Flight already
    with served(object_server.endpoint, url) as server:  # the topics outlive the server
        assert read(stream(server, "clicks")) == [1, 2, 3, 4, *large]
    assert read(direct) == [1, 2, 3, 4, *large]


@pytest.mark.parametrize(
    ("bucket", "who"), [(BUCKET, "STRANGER"), ("no-such-bucket", "OBJECT")]
)
def test_a_bucket_that_cannot_be_used_is_an_error_at_the_start(
    object_server: ObjectServer,
    bucket: str,
    who: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(StreamError, match=f"s3://{bucket}/topics") as caught:
        served(object_server.endpoint, f"s3://{bucket}/topics", who)
    printed = str(caught.value) + capfd.readouterr().err
    assert STRANGER.secret not in printed
    assert "Traceback" not in printed


def test_health_has_the_reason_when_the_object_store_is_down(
    object_server: ObjectServer, url: str
) -> None:
    down = threading.Event()
    proxy = FaultyProxy(
        object_server.port, lambda *_: Fault.BUSY if down.is_set() else None
    )
    try:
        with served(
            proxy.endpoint, url, storage_timeout="200ms", metrics_address="127.0.0.1:0"
        ) as server:
            put(stream(server, "clicks"), 0, [1, 2])
            assert fetch(server, "/health") == (200, {"ready": True, "problems": []})
            down.set()
            status, found = fetch(server, "/health")
            assert status == 503
            assert found["ready"] is False
            assert found["problems"]
            time.sleep(1.1)  # longer than bounds of topics are used again
            assert fetch(server, "/statistics")[0] == 503
            with closing(fl.connect(server.location)) as client:
                (answer,) = client.do_action(("health", b'{"v":1}'))
            assert json.loads(answer.body.to_pybytes())["ready"] is False
    finally:
        proxy.stop()


def fetch(server: ServerProcess, path: str) -> tuple[int, Any]:
    """Status and JSON of the HTTP endpoint."""
    assert server.metrics is not None
    url = server.metrics.removesuffix("/metrics") + path
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_options_of_another_kind_of_store_are_refused_offline() -> None:
    with pytest.raises(ConfigError) as caught:
        streamfactory.serve(
            path="s3://bucket/topics",
            storage_endpoint="http://127.0.0.1:1",
            storage_account="streams",
            mode="640",
            tls_key="/key.pem",
            address="0.0.0.0:0",
        )
    assert [problem.key for problem in caught.value.problems] == [
        "storage.account",
        "storage.endpoint",
        "mode",
        "tls.key",
        "address",
    ]
    hint = caught.value.problems[1].suggestion
    assert hint == "use https://, or set storage.allow.http=true"
