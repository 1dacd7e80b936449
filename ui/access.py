"""Who may see the pages and change something: hosts, tokens, sessions and CSRF.

Without a token everything is read-only, and only loopback addresses are listened on.
With one, a client logs in for actions, and on other addresses for reading, too.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi.addresses import is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamfactory.ui.changes import AnyShown

SESSION_SECONDS: Final = 8 * 3600
MOST_SESSIONS: Final = 100
MOST_CHANGES: Final = 4
"""Changes that a session keeps until they are confirmed."""
MOST_FAILURES: Final = 10
"""Refused tokens of one client in `FAILURE_SECONDS`, after which its log-ins are
refused for a while."""
FAILURE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """A client that gave the token."""

    csrf: str
    """What the forms of its pages send."""
    ends: float
    """By the monotonic clock."""
    changes: deque[AnyShown] = field(default_factory=lambda: deque(maxlen=MOST_CHANGES))
    """The changes that its pages showed last."""


@final
class Access:
    """Decides who may do what. Thread-safe.

    Args:
        address: ``host:port`` that the pages are served on.
        token: Allows actions; None: there are none.
        hosts: Further names by which clients may call the server.
        must_log_in: Whether reading requires the token, too.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        hosts: Collection[str] = (),
        *,
        must_log_in: bool = False,
    ) -> None:
        self.host, self.port = parse_address(address)
        self.must_log_in = must_log_in
        self._token = None if token is None else _digest(token)
        own = "localhost" if is_loopback(self.host) else socket.gethostname().lower()
        self._hosts = {own, self.host.lower(), *(host.lower() for host in hosts)}
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Session] = {}
        self._failures: deque[tuple[float, str]] = deque(maxlen=1000)

    @property
    def has_token(self) -> bool:
        """Whether clients can log in."""
        return self._token is not None

    def knows_host(self, header: str) -> bool:
        """Whether a ``Host`` header names this server.

        A page of another site, whose name was made to resolve to this machine, sends
        its own name. Addresses cannot be rebound by the DNS, and are allowed.
        """
        name = header.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        else:
            name = name.partition(":")[0]
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def log_in(self, token: str, client: str = "") -> str | None:
        """Begin a session.

        Args:
            token: What the client gave.
            client: Its address.

        Returns:
            The secret of the session, for a cookie; None if the token is wrong, or too
            many were wrong lately.
        """
        now = time.monotonic()
        with self._lock:
            if not self._is_token(token, client, now):
                return None
            self._forget(now)
            secret = secrets.token_urlsafe(32)
            session = Session(secrets.token_urlsafe(32), now + SESSION_SECONDS)
            self._sessions[_digest(secret)] = session
            return secret

    def knows_token(self, token: str, client: str = "") -> bool:
        """Whether a request has the token; refused as `log_in` refuses it."""
        with self._lock:
            return self._is_token(token, client, time.monotonic())

    def _is_token(self, token: str, client: str, now: float) -> bool:
        failures = sum(
            who == client and now - at < FAILURE_SECONDS for at, who in self._failures
        )
        if failures >= MOST_FAILURES or self._token is None:
            return False
        if not hmac.compare_digest(_digest(token), self._token):
            self._failures.append((now, client))
            return False
        return True

    def session(self, secret: str | None) -> Session | None:
        """The session of a cookie; None if there is none, or it has ended."""
        if not secret:
            return None
        with self._lock:
            found = self._sessions.get(_digest(secret))
        if found is None or found.ends < time.monotonic():
            return None
        return found

    def log_out(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(secret), None)

    def _forget(self, now: float) -> None:
        """Make room for one more session."""
        kept = {key: one for key, one in self._sessions.items() if one.ends > now}
        newest = sorted(kept.items(), key=lambda item: item[1].ends)
        self._sessions = dict(newest[-(MOST_SESSIONS - 1) :])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
