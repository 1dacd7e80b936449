"""CURVE keys of sockets, and the allow-list of clients (ZAP)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

import zmq
from zmq.utils import z85

from streamfactory.backends.zeromq.keys import parse_key
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

log = logging.getLogger(__name__)

_PLACE: Final = "inproc://zeromq.zap.01"
"""Endpoint of authentication requests of libzmq (ZeroMQ RFC 27)."""
_VERSION: Final = b"1.0"
_MOST_WARNINGS: Final = 100
_PARTS: Final = 7
"""Frames of a request by a client with a CURVE key."""


def secure(socket: zmq.Socket[bytes], config: StreamConfig, *, binds: bool) -> None:
    """Set the keys of a socket; does nothing without ``curve.secret.key``.

    Args:
        socket: A socket that is neither bound nor connected.
        config: The configuration. Its secret is resolved here.
        binds: Whether this side is the CURVE server.

    Raises:
        ConfigError: config; the secret key is invalid or cannot be resolved.
    """
    if "curve.secret.key" not in config.settings:
        return
    text = config["curve.secret.key"]
    try:
        secret = z85.encode(parse_key(text))
        public = zmq.curve_public(secret)
    except (ValueError, zmq.ZMQError):
        msg = "the CURVE secret key is invalid: it is neither Z85 nor hexadecimal"
        remedy = f"set stream.{config.type}.curve.secret.key, as `zmq.curve_keypair()`"
        raise ConfigError(msg, stream=config.name, remedy=remedy) from None
    socket.curve_secretkey = secret
    socket.curve_publickey = public
    if binds:
        socket.curve_server = True
        socket.zap_domain = b"streamfactory"
    else:
        socket.curve_serverkey = z85.encode(config["curve.server.key"])


class AllowList:
    """Decides which clients may connect, in a thread of its own.

    Args:
        context: Context of the sockets.
        allowed: Public keys; None for any key.
    """

    def __init__(
        self, context: zmq.Context[Any], allowed: frozenset[bytes] | None
    ) -> None:
        self._allowed = allowed
        self._refused: set[bytes] = set()
        self._socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._socket.linger = 0
        try:
            self._socket.bind(_PLACE)
        except zmq.ZMQError:
            self._socket.close()
            raise
        self._thread = threading.Thread(
            target=self._serve, name="zeromq-allow-list", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, which ends with the context."""
        self._thread.join()

    def _serve(self) -> None:
        try:
            while True:
                self._socket.send_multipart(self._reply(self._socket.recv_multipart()))
        except zmq.ZMQError:
            # The context was terminated.
            self._socket.close()

    def _reply(self, request: list[bytes]) -> list[bytes]:
        known = len(request) >= 2 and request[0] == _VERSION
        number = request[1] if known else b""
        is_curve = known and len(request) == _PARTS and request[5] == b"CURVE"
        if is_curve and self._is_allowed(request[6], request[3]):
            return [_VERSION, number, b"200", b"OK", b"", b""]
        return [_VERSION, number, b"400", b"not allowed", b"", b""]

    def _is_allowed(self, key: bytes, address: bytes) -> bool:
        if self._allowed is None:
            return True
        if key in self._allowed:
            return True
        if key not in self._refused and len(self._refused) < _MOST_WARNINGS:
            self._refused.add(key)
            what = (
                "connection rejected: the key %s of a client at %s is not in "
                "curve.allowed.keys"
            )
            log.warning(what, key.hex(), address.decode(errors="replace"))
        return False
