"""The HTTP server of the pages, with bounds on what clients may occupy."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, final

from waitress.server import create_server

from streamfactory.spi import ConfigError
from streamfactory.ui.app import MOST_BYTES, create_app
from streamfactory.ui.channels import RECORD_BYTES, Channel, TlsChannel
from streamfactory.ui.editing.applying import Edits
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.recording import Recorder
from streamfactory.ui.settings import open_trail, read_access, tls_context
from streamfactory.ui.site import Site
from streamfactory.wiring.core.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from ssl import SSLContext

    from streamfactory.spi import StreamConfig
    from streamfactory.ui.access import Access

EVERY: Final = 15.0
"""Seconds between two points of the plots."""
REQUEST_SECONDS: Final = 10
"""In which a client sends its request."""
MOST_CONNECTIONS: Final = 100
_THREADS: Final = 8
_HEADER_BYTES: Final = 16 * 1024
_TURN: Final = 0.5
"""Seconds between two looks at the deadlines of connections."""


@final
class PageServer(Closing):
    """Serves the pages, from its construction on. A context manager.

    Args:
        config: Of `page_settings`.
        files: Pipelines besides those of the catalogue.
        every: Seconds between two points of the plots.

    Raises:
        ConfigError: config; the address, the token or a certificate cannot be used.
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        files: Sequence[Path] = (),
        every: float = EVERY,
    ) -> None:
        address = config["address"]
        access = read_access(config)
        tls = tls_context(config)
        trail = open_trail(config)
        self._scheme = "http" if tls is None else "https"
        lookups = Lookups()
        self._recorder = Recorder(lookups, every, files)
        self._site = Site(
            access,
            self._recorder,
            lookups,
            tuple(files),
            edits=Edits(allowed=config["edit"]),
            trail=trail,
        )
        self._map: dict[int, Any] = {}
        try:
            self._server = create_server(
                create_app(self._site),
                map=self._map,
                sockets=[_listen(access, tls)],
                url_scheme=self._scheme,
                recv_bytes=RECORD_BYTES,
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
            if trail is not None:
                trail.close()
            msg = f"the pages cannot be served on {address}: {error.strerror}"
            raise ConfigError(msg, remedy="choose another address") from error
        self._server.channel_class = Channel if tls is None else TlsChannel
        access.port = int(self._server.effective_port)
        self._stop = threading.Event()
        self._pulling = threading.Lock()
        self._ended = False
        """Whether the descriptor of the trigger is closed; with the lock held."""
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._thread.start()
        self._recorder.start()

    @property
    def location(self) -> str:
        """URL of the overview, with the port that was chosen."""
        host = self._site.access.host
        shown = f"[{host}]" if ":" in host else host
        return f"{self._scheme}://{shown}:{self._site.access.port}/"

    def close(self) -> None:
        """Stop listening, and have jobs and runs end. Twice is allowed."""
        # The thread may be awake and end before the trigger's descriptor is written to,
        # whose number may be another file's by then.
        with self._pulling:
            if not self._ended:
                self._server.trigger.pull_trigger(self._stop.set)
        self._site.runs.close()
        self._site.jobs.stop()
        self._site.previews.stop()
        self._site.feeds.stop()
        self._thread.join()
        self._recorder.close()
        if self._site.trail is not None:
            self._site.trail.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                # Not `select`, which is limited to descriptors below 1024.
                self._server.asyncore.loop(
                    timeout=_TURN, use_poll=True, map=self._map, count=1
                )
        finally:
            self._server.task_dispatcher.shutdown(timeout=1)
            with self._pulling:
                self._ended = True
                self._server.asyncore.close_all(self._map)


def _listen(access: Access, tls: SSLContext | None) -> socket.socket:
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
    if tls is None:
        return listening
    # The handshake would block; `TlsChannel` makes it.
    return tls.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)


# Without a handler, Python prints its warnings on standard error.
logging.getLogger("waitress").addHandler(logging.NullHandler())
