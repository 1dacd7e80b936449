"""The conformance kit's access to an endpoint: a server of the standard library.

It sends what was written as events, all of them to each client, and keeps what is
posted.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

_TOKEN: Final = "harness-secret"
_LOOK: Final = 0.02


class _Endpoint(ThreadingHTTPServer):
    """An endpoint, and all that it has."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.changed = threading.Condition()
        self.events: list[int] = []
        self.posted: list[int] = []
        self.ended = False
        self._thread = threading.Thread(target=self.serve_forever, args=(_LOOK,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def wait_more(self, sent: int) -> list[int] | None:
        """The events behind so many, after a while; None once it has ended."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or len(self.events) > sent, 5)
            return None if self.ended else self.events[sent:]

    def stop(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Endpoint

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        sent, server = int(self.headers.get("last-event-id") or 0), self.server
        while True:
            more = server.wait_more(sent)
            if more is None:
                return
            lines = [f"id: {n}\ndata: {v}\n\n" for n, v in enumerate(more, sent + 1)]
            sent += len(more)
            try:
                self.wfile.write("".join(lines or [":\n"]).encode())
            except OSError:
                return

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        length = int(self.headers["content-length"])
        numbers = [int(line) for line in self.rfile.read(length).splitlines()]
        with self.server.changed:
            self.server.posted += numbers
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    def _is_allowed(self) -> bool:
        if self.headers.get("authorization") == f"Bearer {_TOKEN}":
            return True
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()
        return False

    def log_message(self, *_: object) -> None:
        """Nothing."""


class HttpHarness:
    """An endpoint of numbers. Each case gets a new one."""

    single_partition: ClassVar = True
    sets_timestamps: ClassVar = False

    def __init__(self, folder: Path) -> None:
        self._endpoint: _Endpoint | None = None

    def create(self, partitions: int) -> None:
        self.close()
        self._endpoint = _Endpoint()

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "http",
            "stream.http.topic.name": "numbers",
            "stream.http.url": self._made().url,
            "stream.http.token": _TOKEN,
            "stream.http.decoder.class.name": "raw",
        }

    def sink_properties(self) -> Mapping[str, str]:
        return self.properties()

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        endpoint = self._made()
        with endpoint.changed:
            endpoint.events += numbers
            endpoint.changed.notify_all()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(value) for value in rows.column("value").to_pylist()]

    def refused_login(self) -> Mapping[str, str]:
        return {"stream.http.token": "another"}

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        endpoint = self._made()
        with endpoint.changed:
            return {0: [*endpoint.posted]}

    def close(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.stop()

    def _made(self) -> _Endpoint:
        assert self._endpoint is not None
        return self._endpoint
