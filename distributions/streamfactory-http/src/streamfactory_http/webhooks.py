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
_SECRET: Final = ("authorization", "cookie", "token", "secret", "password", "key")
"""Parts of the names of headers that may have credentials."""


class Sink(Protocol):
    """What stores the rows: `streamfactory.open_sink` of a durable stream."""

    def put(self, rows: pa.RecordBatch) -> object:
        """Store rows; returns when they are durable."""


class _Body:
    """The body of a request, as far as it was received."""

    def __init__(self) -> None:
        self.content = bytearray()


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
        buffer: Bytes of all bodies that are received and not stored, at most; more are
            answered 503.
        seconds: How long a body may take to arrive (then 408), and a write (then 503:
            the row may be stored all the same).

    Raises:
        ValueError: The secret is empty: everybody could sign with it.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        secret: bytes | None,
        header: str = "x-hub-signature-256",
        longest: int = 1 << 20,
        most: int = 1000,
        buffer: int = 64 << 20,
        seconds: float = 30.0,
    ) -> None:
        if secret == b"":
            msg = "the secret is empty: pass None to accept requests without signatures"
            raise ValueError(msg)
        self._sink = sink
        self._secret, self._header = secret, header.lower().encode()
        self._longest, self._most = longest, most
        self._buffer, self._seconds = buffer, seconds
        self._held = 0
        """Bytes of bodies."""
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
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        if self._secret is not None and self._header not in dict(headers):
            return 401
        length = dict(headers).get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self._longest):
            return 413
        body = _Body()
        try:
            status = await self._read(body, receive)
            if status is not None:
                return status
            return await self._keep(scope["path"], headers, bytes(body.content))
        finally:
            self._held -= len(body.content)

    async def _read(self, body: _Body, receive: Receive) -> int | None:
        """Read a body; the status of a request whose body cannot be taken."""
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return 400  # the client has gone
                    part = message.get("body", b"")
                    body.content += part
                    self._held += len(part)
                    if len(body.content) > self._longest:
                        return 413
                    if self._held > self._buffer:
                        return 503
                    if not message.get("more_body"):
                        return None
        except TimeoutError:
            return 408

    async def _keep(
        self, path: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> int:
        """Store a body; the status of its request, once it is known."""
        if not self._is_signed(body, headers):
            return 401
        if len(self._waiting) >= self._most:
            return 503
        row = {
            "received": datetime.now(UTC),
            "path": path.encode(errors="replace").decode(),
            "headers": _as_json(headers),
            "body": body,
        }
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, stored))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())
        try:
            async with asyncio.timeout(self._seconds):
                await stored
        except Exception:
            log.exception("a webhook was not stored")
            return 503
        return 202

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
            error: Exception | None = None
            try:
                rows = pa.RecordBatch.from_pylist([r for r, _ in some], schema=SCHEMA)
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
                self._thread.shutdown(wait=False)
                return


def _as_json(headers: list[tuple[bytes, bytes]]) -> str:
    """Headers as a JSON object; values of the same name are joined, as HTTP has it."""
    named: dict[str, str] = {}
    for raw, value in headers:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        if not any(part in name for part in _SECRET):
            named[name] = f"{named[name]}, {text}" if name in named else text
    return json.dumps(named)
