"""Receives webhooks: an ASGI application that answers 202 after the durable write."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import pyarrow as pa

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SCHEMA: Final = pa.schema(
    [
        pa.field("received", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("headers", pa.string(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""Rows of webhooks; headers are a JSON object, without credentials."""
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class Sink(Protocol):
    """What stores the rows: `streamfactory.open_sink` of a durable stream."""

    def put(self, rows: pa.RecordBatch) -> object:
        """Store rows; returns when they are durable."""


class Webhooks:
    """An ASGI application; mount it in another one, or serve it alone.

    Requests that arrive while others are stored share the next write.

    Args:
        sink: Stores the rows; used by one thread.
        secret: Key of the signature; None accepts requests without one.
        header: Header of the signature: HMAC-SHA256 of the body in hexadecimal, with or
            without ``sha256=``.
        longest: Bytes of a body, at most; a longer one is answered 413.
        most: Requests that wait at most; another is answered 503.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        secret: bytes | None,
        header: str = "x-hub-signature-256",
        longest: int = 1 << 20,
        most: int = 1000,
    ) -> None:
        self._sink = sink
        self._secret, self._header = secret, header.lower().encode()
        self._longest, self._most = longest, most
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[None]]] = []
        self._storing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="streamfactory-hooks")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            status = await self._accept(scope, receive)
            headers = [(b"content-length", b"0")]
            if status == 503:
                headers.append((b"retry-after", b"1"))
            start = {"type": "http.response.start", "status": status}
            await send({**start, "headers": headers})
            await send({"type": "http.response.body", "body": b""})

    async def _accept(self, scope: Scope, receive: Receive) -> int:
        """The status of a request, once it is known."""
        if scope["method"] != "POST":
            return 405
        body = await self._body(receive)
        if body is None:
            return 413
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        if not self._is_signed(body, headers):
            return 401
        if len(self._waiting) >= self._most:
            return 503
        row = {
            "received": datetime.now(UTC),
            "path": scope["path"],
            "headers": _as_json(headers),
            "body": body,
        }
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, stored))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())
        try:
            await stored
        except Exception:
            log.exception("a webhook was not stored")
            return 503
        return 202

    async def _body(self, receive: Receive) -> bytes | None:
        """The body of a request; None if it is too long, or was broken off."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._longest:
                return None
            if not message.get("more_body"):
                return bytes(body)

    def _is_signed(self, body: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        if self._secret is None:
            return True
        found = [value for name, value in headers if name == self._header]
        if len(found) != 1:
            return False
        wanted = hmac.new(self._secret, body, hashlib.sha256).hexdigest().encode()
        return hmac.compare_digest(found[0].removeprefix(b"sha256="), wanted)

    async def _store(self) -> None:
        """Store what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            some, self._waiting = self._waiting, []
            rows = pa.RecordBatch.from_pylist([row for row, _ in some], schema=SCHEMA)
            error: Exception | None = None
            try:
                await loop.run_in_executor(self._thread, self._sink.put, rows)
            except Exception as failure:
                error = failure
            for _, stored in some:
                if stored.done():
                    continue  # the client has gone; its row is stored all the same
                if error is None:
                    stored.set_result(None)
                else:
                    stored.set_exception(error)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                self._thread.shutdown()
                return


def _as_json(headers: list[tuple[bytes, bytes]]) -> str:
    named = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name.decode("latin-1") not in _SECRET
    }
    return json.dumps(named)
