"""The connection of a factory: an asyncio client behind blocking calls.

``nats-py`` is an asyncio library, and consumers are called from threads. Each factory
therefore has one event loop in one thread, started by the first call, and one
connection on it, which all objects of the factory share.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from nats.aio.client import Client
from streamfactory import spi

T = TypeVar("T")

_GRACE: Final = 2.0
"""Seconds beyond its own deadline that a caller waits for the loop."""

STREAM_NOT_FOUND: Final = 10059
MESSAGE_NOT_FOUND: Final = 10037
CONSUMER_NOT_FOUND: Final = 10014
WRONG_LAST: Final = frozenset({10070, 10071, 10164})
"""The last message, or its number, is not the expected one."""
NAME_IN_USE: Final = 10058


class ApiError(Exception):
    """JetStream refused a request. ``code`` is its ``err_code``."""

    def __init__(self, request: str, error: dict[str, Any]) -> None:
        super().__init__(f"{request}: {error.get('description', error)}")
        self.code = int(error.get("err_code", error.get("code", 0)))


async def request(
    client: Client, verb: str, body: object = None, *, timeout: float
) -> dict[str, Any]:
    """Call JetStream's API and return its answer.

    Args:
        client: A connected client.
        verb: What follows ``$JS.API.``.
        body: Sent as JSON.
        timeout: In seconds.

    Raises:
        ApiError: JetStream refused.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{verb}", payload, timeout=timeout)
    answer: dict[str, Any] = json.loads(reply.data)
    if "error" in answer:
        raise ApiError(verb, answer["error"])
    return answer


@dataclass
class _Process:
    """The loop and the connection of one factory in one process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    loop: asyncio.AbstractEventLoop | None = None
    thread: threading.Thread | None = None
    client: Client | None = None
    lost: asyncio.Future[None] | None = None
    """Done when the connection has ended."""
    connecting: asyncio.Lock | None = None
    refused: Exception | None = None
    """The last error that the server reported apart from any answer."""


class Connection:
    """A connection to the servers of a configuration. Thread-safe.

    Nothing is opened before the first call. After a fork the child opens a connection
    of its own and leaves the inherited one untouched.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: spi.StreamConfig) -> None:
        self._config = config
        self._processes: dict[int, _Process] = {}
        self.timeout = config["connection.timeout.millis"] / 1000
        """Seconds that a request may take."""

    def run(
        self,
        work: Callable[[Client], Awaitable[T]],
        timeout: float | None = None,
    ) -> T:
        """Await ``work(client)`` on the loop and return its result.

        Args:
            work: A coroutine function.
            timeout: Seconds that it may take, connecting included; None for
                ``connection.timeout.millis``.

        Raises:
            TimeoutError: It took longer.
            spi.ConnectionFailed: transient; the connection ended meanwhile.
        """
        limit = self.timeout if timeout is None else timeout
        # setdefault is atomic, and a lock inherited by a fork may be held for ever.
        process = self._processes.setdefault(os.getpid(), _Process())
        future = asyncio.run_coroutine_threadsafe(
            self._bounded(process, work, limit), _running_loop(process)
        )
        try:
            return future.result(limit + _GRACE)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connection of this process and end its loop; twice is allowed."""
        process = self._processes.pop(os.getpid(), None)
        if process is None or process.loop is None or process.thread is None:
            return
        loop = process.loop
        asyncio.run_coroutine_threadsafe(_shut(process), loop).result(
            self.timeout + _GRACE
        )
        loop.call_soon_threadsafe(loop.stop)
        process.thread.join()
        loop.close()

    async def _bounded(
        self,
        process: _Process,
        work: Callable[[Client], Awaitable[T]],
        timeout: float,
    ) -> T:
        async with asyncio.timeout(timeout):
            client = await self._client(process)
            assert process.lost is not None
            process.refused = None
            task = asyncio.ensure_future(work(client))
            try:
                either: list[asyncio.Future[Any]] = [task, process.lost]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
            except TimeoutError:
                # A publication that is not permitted gets no answer.
                if process.refused is not None:
                    raise process.refused from None
                raise
            finally:
                task.cancel()
            msg = "the connection to the NATS server was lost"
            raise spi.ConnectionFailed(msg)

    async def _client(self, process: _Process) -> Client:
        if process.connecting is None:
            process.connecting = asyncio.Lock()
        async with process.connecting:
            if process.client is None or process.client.is_closed:
                lost = asyncio.get_running_loop().create_future()
                process.client = await self._connect(process, lost)
                process.lost = lost
            return process.client

    async def _connect(self, process: _Process, lost: asyncio.Future[None]) -> Client:
        """Connect to the first server that answers."""

        async def closed() -> None:
            if not lost.done():
                lost.set_result(None)

        reported: list[Exception] = []

        async def refused(error: Exception) -> None:
            process.refused = error
            reported.append(error)

        failure: Exception = OSError("no server is configured")
        for server in self._config["servers"]:
            client = Client()
            try:
                # Reconnecting is the framework's: a client that does it by itself
                # keeps requests waiting whose answers are lost.
                await client.connect(
                    server,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    closed_cb=closed,
                    error_cb=refused,
                    **self._options(),
                )
            except Exception as error:
                # The client reports why a server was not reached to its callback.
                failure = [error, *reported][-1]
                await client.close()
            else:
                return client
        raise failure

    def _options(self) -> dict[str, Any]:
        config = self._config
        options: dict[str, Any] = {"connect_timeout": self.timeout}
        for key, name in (
            ("user", "user"),
            ("password", "password"),
            ("token", "token"),
            ("credentials.file", "user_credentials"),
        ):
            if config.given(key):
                options[name] = config[key]
        if config["tls"]:
            options["tls"] = _tls(config)
        return options


def _tls(config: spi.StreamConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.get("tls.ca.file"))
    if config.given("tls.certificate.file"):
        context.load_cert_chain(
            config["tls.certificate.file"], config.get("tls.key.file")
        )
    return context


_THREADS: Final = itertools.count()


def _running_loop(process: _Process) -> asyncio.AbstractEventLoop:
    with process.lock:
        if process.loop is None:
            loop = asyncio.new_event_loop()
            name = f"nats-{next(_THREADS)}"
            thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
            thread.start()
            process.loop, process.thread = loop, thread
        return process.loop


async def _shut(process: _Process) -> None:
    if process.client is not None and not process.client.is_closed:
        await process.client.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
