"""A proxy before an object server that loses what a test asks it to lose."""

from __future__ import annotations

import http.client
import threading
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from tests.objects.server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable


class Fault(Enum):
    """What becomes of one request."""

    LOST_REQUEST = "the server never sees it"
    LOST_REPLY = "the server has done it, and the client never learns"
    TORN_REPLY = "half of the answer arrives"
    NO_REPLY = "nothing is answered, and the connection stays"
    BUSY = "503"
    CONFLICT = "409: another write is under way"
    REFUSED = "412: the condition of a read is not met"
    UNCONDITIONAL = "a refused condition is called a success"


_STATUS: Final = {Fault.BUSY: 503, Fault.CONFLICT: 409, Fault.REFUSED: 412}


class FaultyProxy:
    """Forwards requests to the server on ``port``.

    Args:
        port: Of the server.
        plan: Asked for each request, by method and path, from several threads.
        handler: What handles them; `Handler` if None.
    """

    def __init__(
        self,
        port: int,
        plan: Callable[[str, str], Fault | None],
        handler: type[Handler] | None = None,
    ) -> None:
        self.port = port
        self.plan = plan
        self.met: list[tuple[str, str, Fault]] = []
        self.requests = 0
        self.released = threading.Event()
        self._server = _Server((HOST, 0), handler or Handler)
        self._server.proxy = self
        self.endpoint = f"http://{HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(120)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: FaultyProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    """Handles one request: forwards it, or does what the plan has for it."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    server: _Server

    def relay(self) -> None:
        """Handle a request of any method."""
        proxy = self.server.proxy
        proxy.requests += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = proxy.plan(self.command, self.path)
        if fault is not None:
            proxy.met.append((self.command, self.path, fault))
        if fault is Fault.LOST_REQUEST:
            self.close_connection = True
        elif fault is Fault.NO_REPLY:
            proxy.released.wait(30)
            self.close_connection = True
        elif fault in _STATUS:
            self.send_response(_STATUS[fault])
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.forward(body, fault)

    def forward(self, body: bytes, fault: Fault | None) -> None:
        """Pass a request on, and answer as the server did."""
        port = self.server.proxy.port
        upstream = http.client.HTTPConnection(HOST, port, timeout=30)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            reply = upstream.getresponse()
            data = reply.read()
        finally:
            upstream.close()
        if fault is Fault.LOST_REPLY:
            self.close_connection = True
            return
        status, head = reply.status, reply.getheaders()
        if fault is Fault.UNCONDITIONAL and status == 412:
            status, head, data = 200, [("ETag", '"made-up"')], b""
        self.answer(status, head, data, torn=fault is Fault.TORN_REPLY)

    def answer(
        self, status: int, head: list[tuple[str, str]], data: bytes, *, torn: bool
    ) -> None:
        """Send an answer, or half of it."""
        self.send_response_only(status)
        for key, value in head:
            if key.lower() not in ("content-length", "transfer-encoding"):
                self.send_header(key, value)
        length = dict(head).get("Content-Length", "0")
        self.send_header(
            "Content-Length", length if self.command == "HEAD" else str(len(data))
        )
        self.end_headers()
        if torn:
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


for _method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
    setattr(Handler, f"do_{_method}", Handler.relay)
