"""The client of a configuration, and what the status of an answer means."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
from streamfactory import spi

LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
_LONGEST: Final = 3600.0
"""Seconds of Retry-After that are believed."""


def make_client(config: spi.StreamConfig) -> httpx.Client:
    """A client without redirects: a batch is posted where it was configured.

    Raises:
        spi.NotAuthorized: permanent; the token is no value of a header.
    """
    timeout = config["connection.timeout.millis"] / 1000
    # Answers are read as they travel: a small one may unpack to any size.
    headers = {"user-agent": "streamfactory-http", "accept-encoding": "identity"}
    if config.given("token"):
        headers["authorization"] = f"Bearer {_checked(config['token'])}"
    return httpx.Client(
        headers=headers,
        timeout=timeout,
        verify=ssl.create_default_context(cafile=config.get("ca.file")),
    )


def _checked(token: str) -> str:
    """A token, which an error of the client would print where it is malformed."""
    if not (token.isascii() and token.isprintable()) or " " in token or not token:
        msg = "token has a space, a line break or another character that no header has"
        raise spi.NotAuthorized(msg, remedy="correct the value that token refers to")
    return token


def interrupt(answer: httpx.Response) -> None:
    """Make a thread that waits for bytes of an answer return."""
    found = answer.extensions["network_stream"].get_extra_info("socket")
    with suppress(OSError):  # it is broken already
        found.shutdown(socket.SHUT_RDWR)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait; None if it does not."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), _LONGEST) if len(text) < 10 else _LONGEST
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.timestamp() - datetime.now(UTC).timestamp()
    return min(max(0.0, seconds), _LONGEST)


class Circuit:
    """Refuses requests for a while after several failures in a row.

    Args:
        failures: In a row.
        seconds: How long.
    """

    def __init__(self, failures: int, seconds: float) -> None:
        self._most, self._seconds = failures, seconds
        self._failed, self._until = 0, 0.0

    def wait(self) -> float:
        """Seconds until a request may be tried; 0 for now."""
        return max(0.0, self._until - time.monotonic())

    def succeeded(self) -> None:
        """Count an answer of any kind but a failure."""
        self._failed = 0

    def failed(self) -> None:
        """Count a failure; with as many as are allowed, requests are refused again."""
        self._failed += 1
        if self._failed >= self._most:
            self._until = time.monotonic() + self._seconds
