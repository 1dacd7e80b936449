"""The HTTP server of the pages, with bounds on what clients may occupy."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, final

from waitress.channel import HTTPChannel
from waitress.server import create_server

from streamfactory.spi import ConfigError
from streamfactory.ui.access import Access
from streamfactory.ui.app import MOST_BYTES, create_app
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.recording import Recorder
from streamfactory.ui.site import Site
from streamfactory.wiring.core.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

EVERY: Final = 15.0
"""Seconds between two points of the plots."""
REQUEST_SECONDS: Final = 10
"""In which a client sends its request."""
CONNECTION_SECONDS: Final = 60.0
"""After which a connection without a request that is being answered is closed: a client
that reads an answer byte by byte would keep it for ever."""
MOST_CONNECTIONS: Final = 100
_THREADS: Final = 8
_HEADER_BYTES: Final = 16 * 1024
_TURN: Final = 0.5
"""Seconds between two looks at the deadlines of connections."""


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no annotations
    """A connection that has deadlines.

    Waitress counts the time since the last byte: a client that sends a byte every few
    seconds would keep its connection for ever.
    """

    last_activity: float

    def readable(self) -> bool:
        """Whether more is read; called at each turn of the loop, before `writable`."""
        age = time.time() - self.creation_time
        if age > CONNECTION_SECONDS and not self.requests:
            # At once: `will_close` waits until the client takes what it is sent.
            self.handle_close()
            return False
        return bool(super().readable())

    def writable(self) -> bool:
        """Whether there is something to send."""
        return bool(self.connected and super().writable())

    def handle_read(self) -> None:
        """Read what the client sent; part of a request is no activity."""
        before = self.last_activity
        super().handle_read()
        if self.request is not None:
            self.last_activity = before


@final
class PageServer(Closing):
    """Serves the pages, from its construction on. A context manager.

    Args:
        address: ``host:port``; port 0 takes a free one.
        token: Allows actions, and addresses other than loopback.
        hosts: Names by which clients call the server, besides its address.
        files: Pipelines besides those of the catalogue.
        every: Seconds between two points of the plots.

    Raises:
        ConfigError: config; the address cannot be used, or requires a token.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        hosts: Collection[str] = (),
        files: Sequence[Path] = (),
        every: float = EVERY,
    ) -> None:
        access = Access(address, token, hosts)
        lookups = Lookups()
        self._recorder = Recorder(lookups, every, files)
        self._site = Site(access, self._recorder, lookups, tuple(files))
        self._map: dict[int, Any] = {}
        try:
            self._server = create_server(
                create_app(self._site),
                map=self._map,
                sockets=[_listen(access)],
                threads=_THREADS,
                connection_limit=MOST_CONNECTIONS,
                channel_timeout=REQUEST_SECONDS,
                cleanup_interval=1,
                max_request_header_size=_HEADER_BYTES,
                max_request_body_size=MOST_BYTES,
                clear_untrusted_proxy_headers=True,
                expose_tracebacks=False,
                ident=None,
            )
        except OSError as error:
            msg = f"the pages cannot be served on {address}: {error.strerror}"
            raise ConfigError(msg, remedy="choose another address") from error
        self._server.channel_class = _Channel
        access.port = int(self._server.effective_port)
        self._stop = threading.Event()
        self._closing = threading.Lock()
        """Acquired by the first `close`, and never released."""
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._thread.start()
        self._recorder.start()

    @property
    def location(self) -> str:
        """URL of the overview, with the port that was chosen."""
        host = self._site.access.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._site.access.port}/"

    def close(self) -> None:
        """Stop listening, and ask jobs to end. Twice is allowed."""
        # The thread closes the descriptor of the trigger at its end: it ends after it
        # was triggered, and only once, as the number may be another file's by then.
        if self._closing.acquire(blocking=False) and self._thread.is_alive():
            self._server.trigger.pull_trigger(self._stop.set)
        self._site.jobs.stop()
        self._thread.join()
        self._recorder.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                # Not `select`, which is limited to descriptors below 1024.
                self._server.asyncore.loop(
                    timeout=_TURN, use_poll=True, map=self._map, count=1
                )
        finally:
            self._server.task_dispatcher.shutdown(timeout=1)
            self._server.asyncore.close_all(self._map)


def _listen(access: Access) -> socket.socket:
    """A socket for one address: a name may have several, whose first one is used."""
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(
        access.host, access.port, type=socket.SOCK_STREAM, flags=flags
    )
    # `localhost` may come as ::1 first, which other programs do not try.
    family, kind, protocol, _, address = min(found, key=lambda one: one[0])
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


# Without a handler, Python prints its warnings on standard error.
logging.getLogger("waitress").addHandler(logging.NullHandler())
