"""What is special about this type: the kit cannot know it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    PermanentError,
)

from streamfactory_http.client import Circuit, retry_after
from streamfactory_http.events import Event, EventParser, EventTooLong
from streamfactory_http.formats import SCHEMA, body
from streamfactory_http.harness import HttpHarness
from streamfactory_http.webhooks import Webhooks

Answer = tuple[int, dict[str, str], bytes]


class Endpoint:
    """A server that answers requests by a function, and keeps them."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[int], Answer] = lambda _: (202, {}, b"")
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {k.lower(): v for k, v in self.headers.items()}
                endpoint.requests.append((headers, body))
                self._answer()

            def do_GET(self) -> None:
                headers = {k.lower(): v for k, v in self.headers.items()}
                endpoint.requests.append((headers, b""))
                self._answer()

            def _answer(self) -> None:
                status, headers, body = endpoint.answer(len(endpoint.requests))
                self.send_response(status)
                for name, value in {
                    "content-length": str(len(body)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):  # a client may read a part only
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/in"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def given(endpoint: Endpoint, **options: str) -> dict[str, str]:
    own = {f"stream.http.{k.replace('_', '.')}": v for k, v in options.items()}
    return {
        "streamType": "http",
        "stream.http.url": endpoint.url,
        "stream.http.decoder.class.name": "raw",
        **own,
    }


def put(properties: dict[str, str], count: int = 5, **who: Any) -> None:
    rows = pa.record_batch(
        {"value": pa.array([b'{"n":%d}' % n for n in range(count)], pa.binary())}
    )
    with streamfactory.open_sink(properties) as sink:
        sink.put(rows, **who)


def test_a_repeated_epoch_sends_the_same_requests(endpoint: Endpoint) -> None:
    for _ in range(2):
        put(given(endpoint, batch_messages="2"), writer_id="w", epoch=7)
    first, again = endpoint.requests[:3], endpoint.requests[3:]
    assert [body for _, body in first] == [body for _, body in again]
    keys = [headers["idempotency-key"] for headers, _ in first]
    assert keys == ['"w-7-0-0"', '"w-7-0-1"', '"w-7-0-2"']
    assert [headers["idempotency-key"] for headers, _ in again] == keys
    assert first[0][1] == b'{"n":0}\n{"n":1}\n'
    assert first[0][0]["content-type"] == "application/x-ndjson"


def test_cloudevents_are_posted(endpoint: Endpoint) -> None:
    put(given(endpoint, format="cloudevents"), 2, writer_id="w", epoch=0)
    [(headers, body)] = endpoint.requests
    assert headers["content-type"] == "application/cloudevents-batch+json"
    one, two = json.loads(body)
    assert one["data"] == {"n": 0}
    assert (one["specversion"], one["id"], two["id"]) == (
        "1.0",
        "w-0-0-0-0",
        "w-0-0-0-1",
    )


def test_arrow_is_posted(endpoint: Endpoint) -> None:
    put(given(endpoint, format="arrow"), 2)
    table = pa.ipc.open_stream(endpoint.requests[0][1]).read_all()
    assert table["value"].to_pylist() == [b'{"n":0}', b'{"n":1}']


def test_retry_after_is_waited_for(endpoint: Endpoint) -> None:
    endpoint.answer = lambda n: (
        (429, {"retry-after": "1"}, b"") if n == 1 else (202, {}, b"")
    )
    began = time.monotonic()
    put(given(endpoint))
    assert time.monotonic() - began >= 1
    assert endpoint.requests[0][1] == endpoint.requests[1][1]


def test_an_endpoint_that_keeps_failing_ends_in_time(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (503, {}, b"")
    options = {"retry_timeout_millis": "400ms", "circuit_failures": "2"}
    with pytest.raises(ConnectionFailed):
        put(given(endpoint, **options))
    assert len(endpoint.requests) <= 2


def test_a_refused_batch_fails_or_is_kept(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answer = lambda n: (422, {}, b"no n") if n != 2 else (202, {}, b"")
    with pytest.raises(PermanentError, match="with 422: 'no n'"):
        put(given(endpoint))
    folder = tmp_path / "rejected"
    kept = given(endpoint, rejected_path=str(folder), batch_messages="3")
    for _ in range(2):
        put(kept, 6, writer_id="w", epoch=0)
    facts = [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]
    assert {fact["batch"] for fact in facts} == {"w-0-0-0", "w-0-0-1"}
    assert {(fact["status"], fact["answer"]) for fact in facts} == {(422, "no n")}
    bodies = {p.read_bytes() for p in folder.glob("*.body")}
    assert b'{"n":0}\n{"n":1}\n{"n":2}\n' in bodies
    assert len(list(folder.iterdir())) == 4


def test_refused_credentials_are_named_and_hidden(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.answer = lambda _: (401, {}, b"")
    options = {"token": "secret-word", "rejected_path": str(tmp_path)}
    with pytest.raises(NotAuthorized) as caught:
        put(given(endpoint, **options))
    assert "secret-word" not in str(caught.value)
    assert endpoint.requests[0][0]["authorization"] == "Bearer secret-word"


def test_a_redirect_is_not_followed(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (307, {"location": endpoint.url}, b"")
    with pytest.raises(PermanentError, match="307"):
        put(given(endpoint))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("url", ["ftp://a/", "http://", "http://u:p@h/", "http://h:x/"])
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(ConfigError, match=r"stream\.http\.url"):
        streamfactory.open_sink({"streamType": "http", "stream.http.url": url})


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        # The warning is logged once in a process.
        *[("HTTP://10.0.0.1/", True), ("https://example.org/", False)],
        ("http://127.0.0.1:8000/", False),
        *[("http://localhost/", False), ("http://[::1]/", False)],
    ],
)
def test_a_token_leaves_the_machine_encrypted_or_with_a_warning(
    url: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        **{"streamType": "http", "stream.http.url": url, "stream.http.token": "t"},
        "stream.http.decoder.class.name": "raw",
    }
    streamfactory.open_sink({**given, "writer.id": "w"}).close()
    assert ("sent without encryption" in caplog.text) == warned


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("3", 3.0), ("", None), ("-1", None), ("99999999999999", 3600.0)],
        *[("soon", None), ("Mon, 01 Jan 99999999999999 00:00:00 GMT", None)],
    ],
)
def test_retry_after_is_parsed(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0


def test_a_circuit_opens_after_failures_and_closes_after_an_answer() -> None:
    circuit = Circuit(2, 60)
    circuit.failed()
    assert circuit.wait() == 0
    circuit.succeeded()
    circuit.failed()
    assert circuit.wait() == 0
    circuit.failed()
    assert circuit.wait() > 50


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_parsed_in_chunks_of_any_size(size: int, end: bytes) -> None:
    lines = [b"\xef\xbb\xbf: hello", b"id: 1", b"data: a", b"data:b", b"", b"event: x"]
    lines += [
        b"data",
        b"",
        b"id",
        b"data: c",
        b"",
        b"",
        b"event: none",
        b"",
        b"data: d",
    ]
    text = end.join(lines) + end
    parser = EventParser(1000)
    found: list[Event] = []
    for at in range(0, len(text), size):
        found += parser.feed(text[at : at + size])
    assert found == [
        Event(b"a\nb", "message", b"1"),
        Event(b"", "x", b"1"),
        Event(b"c", "message", b""),
    ]


@pytest.mark.parametrize("text", [b"data: " + b"x" * 100, b"data: xxxx\n" * 30])
def test_an_event_that_is_too_long_is_refused(text: bytes) -> None:
    with pytest.raises(EventTooLong):
        list(EventParser(50).feed(text))


def test_a_reconnection_continues_at_the_last_id(endpoint: Endpoint) -> None:
    def answer(n: int) -> Answer:
        body = b"retry: 10\nid: %d\ndata: %d\n\n" % (n, n)
        return (200, {"content-type": "text/event-stream"}, body)

    endpoint.answer = answer
    with streamfactory.open(given(endpoint), start="earliest", follow=True) as stream:
        rows: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(rows) < 3 and time.monotonic() < deadline:
            batch = stream.next_batch(0.2)
            rows += [] if batch is None else batch.rows["value"].to_pylist()
    assert rows[:3] == [b"1", b"2", b"3"]
    sent = [headers.get("last-event-id") for headers, _ in endpoint.requests[:3]]
    assert sent == [None, "1", "2"]


def test_an_endpoint_that_stays_away_is_an_error_and_is_found_again(
    endpoint: Endpoint,
) -> None:
    events = (200, {"content-type": "text/event-stream"}, b"retry: 10\ndata: 1\n\n")
    endpoint.answer = lambda n: events if n == 1 else (503, {}, b"")
    options = {
        **given(endpoint, connection_timeout_millis="100ms"),
        "retry.max.attempts": "1",
    }
    with streamfactory.open(options, start="earliest", follow=True) as stream:
        first = stream.next_batch(20)
        assert first is not None
        with pytest.raises(ConnectionFailed, match=r"has not answered for .* 503"):
            stream.next_batch(20)
        endpoint.answer = lambda _: events
        again = None
        deadline = time.monotonic() + 30
        while again is None and time.monotonic() < deadline:
            with suppress(ConnectionFailed):  # until it has connected again
                again = stream.next_batch(1)
        assert again is not None
        assert again.first_offset == first.next_offset


def test_an_endpoint_without_events_is_named(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (200, {"content-type": "text/html"}, b"")
    with pytest.raises(PermanentError, match="sends no events"):
        streamfactory.open(given(endpoint), start="earliest").next_batch(0.1)


@pytest.mark.parametrize(
    ("headers", "body", "error"),
    [
        ({"content-encoding": "gzip"}, b"data: 1\n\n", "content-encoding 'gzip'"),
        ({}, b"id: 1\x0b\x0b1 \ndata: 1\n\n", "last event id cannot be sent"),
    ],
)
def test_events_that_cannot_be_followed_are_an_error(
    endpoint: Endpoint, headers: dict[str, str], body: bytes, error: str
) -> None:
    kind = {"content-type": "text/event-stream", **headers}
    endpoint.answer = lambda _: (200, kind, b"retry: 10\n" + body)
    with (
        pytest.raises(PermanentError, match=error),
        streamfactory.open(given(endpoint), start="earliest", follow=True) as stream,
    ):
        follow(stream, 9)


def follow(stream: Any, count: int) -> list[dict[str, Any]]:
    """So many rows, within a deadline."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + 20
    while len(rows) < count and time.monotonic() < deadline:
        batch = stream.next_batch(0.2)
        rows += [] if batch is None else batch.rows.to_pylist()
    return rows


def test_an_id_of_any_text_continues(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (
        200,
        {"content-type": "text/event-stream"},
        "retry: 10\nid: grün\ndata: 1\n\n".encode(),
    )
    with streamfactory.open(given(endpoint), start="earliest", follow=True) as stream:
        assert len(follow(stream, 2)) == 2
    sent = endpoint.requests[1][0]["last-event-id"]
    assert sent.encode("latin-1").decode() == "grün"


def test_the_size_of_an_event_has_its_id() -> None:
    [one, two] = EventParser(1000).feed(
        b"id: %s\ndata: 1\n\ndata: 2\n\n" % (b"x" * 900)
    )
    assert min(one.size, two.size) > 900


def test_closing_ends_the_thread_that_waits_for_an_event() -> None:
    harness = HttpHarness(Path())
    harness.create(1)
    try:
        with streamfactory.open(
            harness.properties(), start="earliest", follow=True
        ) as s:
            s.next_batch(0.0)
        names = [thread.name for thread in threading.enumerate()]
        assert "streamfactory-events" not in names
    finally:
        harness.close()


def test_a_long_answer_is_shown_in_part(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (422, {}, b"\x1b" * 50_000_000)
    with pytest.raises(PermanentError, match="with 422") as caught:
        put(given(endpoint))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("token", ["secret-word\n", "secret word", "sécret-word"])
def test_a_token_that_is_no_header_is_not_printed(
    endpoint: Endpoint, token: str
) -> None:
    with pytest.raises(NotAuthorized, match="token has") as caught:
        put(given(endpoint, token=token))
    assert token.strip() not in str(caught.value)


def test_requests_are_cut_by_bytes_alike_however_rows_come(endpoint: Endpoint) -> None:
    values = [b"1" * size for size in (3, 3, 3, 50, 1, 9, 1, 1, 1)]
    for size in (1, 2, 9):
        with streamfactory.open_sink(given(endpoint, request_bytes="10")) as sink:
            batches = [
                pa.record_batch(
                    {"value": pa.array(values[at : at + size], pa.binary())}
                )
                for at in range(0, 9, size)
            ]
            table = pa.Table.from_batches(batches)
            sink.put(table, writer_id="w", epoch=0)
    bodies = [body for _, body in endpoint.requests]
    assert bodies == 3 * [
        b"".join(value + b"\n" for value in values[start:stop])
        for start, stop in ((0, 3), (3, 4), (4, 6), (6, 9))
    ]


@pytest.mark.parametrize(
    "value", [b"NaN", b"[1e999, NaN]", b"[" * 100_000, "{}".encode("utf-16"), b"x"]
)
def test_what_is_no_json_is_base64_in_cloudevents(value: bytes) -> None:
    rows = pa.record_batch([[None], [value]], schema=SCHEMA)
    [event] = json.loads(body("cloudevents", rows, "n", "k"))
    assert base64.b64decode(event["data_base64"]) == value


def test_numbers_keep_their_digits_in_cloudevents() -> None:
    rows = pa.record_batch([[b"k"], [b"0.12345678901234567890"]], schema=SCHEMA)
    found = body("cloudevents", rows, "n", "k")
    assert b'"data":0.12345678901234567890}' in found


@pytest.mark.parametrize("value", [b"", b"1\n2"])
def test_lines_that_readers_would_not_see_are_refused(value: bytes) -> None:
    rows = pa.record_batch([[None, None], [b"1", value]], schema=SCHEMA)
    with pytest.raises(ValueError, match="NDJSON"):
        body("ndjson", rows, "n", "k")


# --- webhooks -------------------------------------------------------------------


class Store:
    """A sink that can be stopped."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[str] = []
        self.writes = 0
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None

    def put(self, rows: pa.RecordBatch) -> None:
        assert self.open.wait(20)
        if self.error is not None:
            raise self.error
        self.writes += 1
        self.bodies += rows["body"].to_pylist()
        self.headers += rows["headers"].to_pylist()


def request(app: Webhooks, *bodies: bytes, **headers: str) -> list[int]:
    async def run() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://h"
        ) as client:
            named = {k.replace("_", "-"): v for k, v in headers.items()}
            calls = [client.post("/x", content=b, headers=named) for b in bodies]
            return [answer.status_code for answer in await asyncio.gather(*calls)]

    return asyncio.run(run())


def signature(body: bytes, key: bytes = b"k") -> str:
    return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()


def test_a_webhook_is_answered_after_the_durable_write(tmp_path: Path) -> None:
    log = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "hooks"),
        "stream.file.topic.name": "hooks",
    }
    with streamfactory.open_sink(log) as sink:
        app = Webhooks(sink, secret=None)
        assert request(app, b"1", b"2", authorization="x", x_id="7") == [202, 202]
    with streamfactory.open(log, start="earliest") as stream:
        rows = stream.to_reader().read_all().to_pylist()
    assert sorted(row["body"] for row in rows) == [b"1", b"2"]
    assert json.loads(rows[0]["headers"])["x-id"] == "7"
    assert "authorization" not in rows[0]["headers"]


def test_a_webhook_that_is_not_stored_is_refused() -> None:
    store = Store()
    store.error = OSError("disk full")
    assert request(Webhooks(store, secret=None), b"1") == [503]
    store.error = None
    assert request(Webhooks(store, secret=None), b"1") == [202]


def test_requests_share_a_write_and_too_many_are_refused() -> None:
    store = Store()
    store.open.clear()
    threading.Timer(0.5, store.open.set).start()
    found = request(Webhooks(store, secret=None, most=5), *[b"x"] * 12)
    accepted = found.count(202)
    assert accepted == len(store.bodies)
    assert found.count(503) == 12 - accepted > 0
    assert store.writes < accepted


@pytest.mark.parametrize("sent", [None, signature(b"2"), signature(b"1", b"z"), "x"])
def test_a_wrong_signature_is_refused(sent: str | None) -> None:
    store = Store()
    headers = {} if sent is None else {"x_hub_signature_256": sent}
    assert request(Webhooks(store, secret=b"k"), b"1", **headers) == [401]
    good = {"x_hub_signature_256": signature(b"1")}
    assert request(Webhooks(store, secret=b"k"), b"1", **good) == [202]
    assert store.bodies == [b"1"]


def test_a_long_body_is_refused() -> None:
    store = Store()
    assert request(Webhooks(store, secret=None, longest=10), b"x" * 11) == [413]
    assert store.bodies == []


def test_a_wrong_request_is_refused_before_its_body_is_read() -> None:
    async def receive() -> dict[str, Any]:
        msg = "the body was read"
        raise AssertionError(msg)

    app = Webhooks(Store(), secret=b"k")
    assert asyncio.run(ask(app, receive)) == 401
    length = [(b"content-length", b"99999999")]
    assert asyncio.run(ask(Webhooks(Store(), secret=None), receive, length)) == 413


async def ask(
    app: Webhooks, receive: Any, headers: list[tuple[bytes, bytes]] | None = None
) -> int:
    """The status of a request."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/\udcff",
        "headers": headers or [],
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "headers": headers or []}, receive, send)
    status: int = sent[0]["status"]
    return status


def test_a_body_that_does_not_end_is_refused_in_time() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    app = Webhooks(Store(), secret=None, seconds=0.2)
    assert asyncio.run(ask(app, receive)) == 408


def test_a_store_that_does_not_answer_is_refused_in_time() -> None:
    store = Store()
    store.open.clear()
    threading.Timer(1.0, store.open.set).start()
    assert request(Webhooks(store, secret=None, seconds=0.2), b"1") == [503]


def test_bodies_beyond_the_buffer_are_refused() -> None:
    store = Store()
    store.open.clear()
    threading.Timer(0.5, store.open.set).start()
    app = Webhooks(store, secret=None, buffer=25)
    found = request(app, *[b"x" * 10] * 5)
    assert sorted(found) == [202, 202, 503, 503, 503]
    assert request(app, b"x" * 10) == [202]


def test_a_path_of_any_bytes_is_stored() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"1"}

    store = Store()
    assert asyncio.run(ask(Webhooks(store, secret=None), receive)) == 202
    assert store.bodies == [b"1"]


def test_headers_are_kept_without_secrets() -> None:
    store = Store()
    request(
        Webhooks(store, secret=None), b"1", x_gitlab_token="t", x_api_key="k", a="1"
    )
    assert {"a": "1"}.items() <= json.loads(store.headers[0]).items()
    assert not {"x-gitlab-token", "x-api-key"} & json.loads(store.headers[0]).keys()


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Webhooks(Store(), secret=b"")
