"""Who sends a request: hosts, tokens, trusted proxies, sessions and CSRF.

Without tokens everything is read-only, and only loopback addresses are listened on.
With one, a client logs in for actions, and on other addresses for reading, too; with
a file of users always. `people` has what users may do.
"""

from __future__ import annotations

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
from streamfactory.spi.users import digest_of
from streamfactory.ui.people import ANYBODY, HOLDER, Rights, User

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamfactory.spi.users import UserFile
    from streamfactory.ui.openid.attempts import SignIns
    from streamfactory.ui.openid.provider import SignedIn
    from streamfactory.ui.openid.rules import LoggedOut
    from streamfactory.ui.proxies import Proxy
    from streamfactory.ui.shown import AnyShown

SESSION_SECONDS: Final = 8 * 3600
MOST_SESSIONS: Final = 100
MOST_OF_USER: Final = 10
"""Sessions of one user of a proxy or a provider. Clients of a proxy may keep no
cookies: each of their requests begins one, and the sessions of others have to stay."""
MOST_CHANGES: Final = 4
"""Changes that a session keeps until they are confirmed."""
MOST_FAILURES: Final = 10
"""Refused tokens of one client in `FAILURE_SECONDS`, after which its log-ins are
refused for a while."""
FAILURE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """A client that gave a token, or that a proxy or a provider said the name of."""

    user: User
    token: bytes | None
    """The digest of the token; None if somebody else says who the user is: a proxy with
    each request, or a provider at the sign-in."""
    csrf: str
    """What the forms of its pages send."""
    ends: float
    """By the monotonic clock."""
    signed: SignedIn | None = field(default=None, repr=False)
    """The sign-in at a provider, for the log-out there and from there."""
    changes: deque[AnyShown] = field(default_factory=lambda: deque(maxlen=MOST_CHANGES))
    """The changes that its pages showed last."""


@final
class Access:
    """Identifies the sender of a request. Thread-safe.

    Args:
        address: ``host:port`` that the pages are served on.
        token: Allows everything; None: there is none.
        hosts: Further names by which clients may call the server.
        must_log_in: Whether reading requires a token, too.
        file: Users with tokens and rights of their own.
        proxy: Says who users are.
        sign_ins: Those at a provider of OpenID Connect.
    """

    session_seconds: Final = SESSION_SECONDS

    def __init__(
        self,
        address: str,
        token: str | None = None,
        hosts: Collection[str] = (),
        *,
        must_log_in: bool = False,
        file: UserFile | None = None,
        proxy: Proxy | None = None,
        sign_ins: SignIns | None = None,
    ) -> None:
        self.host, self.port = parse_address(address)
        self.must_log_in = must_log_in or file is not None
        self.rights = Rights(file)
        self.proxy, self.sign_ins = proxy, sign_ins
        self._file = file
        self._token = None if token is None else digest_of(token)
        own = "localhost" if is_loopback(self.host) else socket.gethostname().lower()
        self._hosts = {own, self.host.lower(), *(host.lower() for host in hosts)}
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Session] = {}
        self._failures: deque[tuple[float, str]] = deque(maxlen=1000)

    @property
    def has_token(self) -> bool:
        """Whether clients can log in."""
        return self._token is not None or self._file is not None

    @property
    def anybody(self) -> User | None:
        """Who a client is that says nothing; None where it has to log in."""
        return None if self.must_log_in else ANYBODY

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
        with self._lock:
            user = self._user_of(token, client)
            return None if user is None else self._begin(user, digest_of(token))

    def user_of(self, token: str, client: str = "") -> User | None:
        """Who has a token that a program sends; refused as `log_in` refuses it.

        Where the provider's access tokens are accepted, what has their form is one:
        such a token is signed, so that nobody guesses it.

        Raises:
            SignInRefused: It is an access token, and refused.
            ConnectionFailed: transient; the provider cannot be reached.
        """
        if self.sign_ins is not None and self.sign_ins.judges(token):
            return self.sign_ins.provider.user_of(token)
        with self._lock:
            return self._user_of(token, client)

    def begin(self, user: User) -> str:
        """Begin a session of a user of the proxy; the secret, for a cookie."""
        with self._lock:
            return self._begin(user, None)

    def begin_signed(self, signed: SignedIn) -> str:
        """Begin a session of a user who signed in; the secret, for a cookie.

        Args:
            signed: Who it is, with the groups of now: they last as long as the session.
        """
        with self._lock:
            return self._begin(signed.user, None, signed)

    def end_signed(self, logged_out: LoggedOut) -> int:
        """End the sessions of a user who logged out at the provider; their number."""
        with self._lock:
            ended = [
                key
                for key, one in self._sessions.items()
                if one.signed is not None
                and logged_out.ends(
                    one.signed.subject, one.signed.session, one.signed.issued
                )
            ]
            for key in ended:
                del self._sessions[key]
        return len(ended)

    def _begin(
        self, user: User, token: bytes | None, signed: SignedIn | None = None
    ) -> str:
        now = time.monotonic()
        self._forget(now, None if token is not None else user.name)
        secret = secrets.token_urlsafe(32)
        csrf = secrets.token_urlsafe(32)
        session = Session(user, token, csrf, now + SESSION_SECONDS, signed)
        self._sessions[digest_of(secret)] = session
        return secret

    def _user_of(self, token: str, client: str) -> User | None:
        now = time.monotonic()
        failures = sum(
            who == client and now - at < FAILURE_SECONDS for at, who in self._failures
        )
        if failures >= MOST_FAILURES or not self.has_token:
            return None
        found = None if self._file is None else self._file.user_of(token)
        if self._token is not None and hmac.compare_digest(
            digest_of(token), self._token
        ):
            return HOLDER
        if found is None:
            self._failures.append((now, client))
            return None
        return User(found)

    def session(self, secret: str | None, user: User | None = None) -> Session | None:
        """The session of a cookie.

        Args:
            secret: Of the cookie.
            user: Who the proxy says the client is.

        Returns:
            None if there is none, it has ended, its token is valid no more, or it is
            that of another user.
        """
        if not secret:
            return None
        with self._lock:
            found = self._sessions.get(digest_of(secret))
        if found is None or found.ends < time.monotonic():
            return None
        if found.signed is not None:
            return found if user is None else None
        if user is not None or found.token is None:
            same = user is not None and user.name == found.user.name
            return found if same and found.token is None else None
        if found.user is HOLDER:
            return found
        assert self._file is not None
        return found if self._file.has(found.user.name, found.token) else None

    def log_out(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(digest_of(secret), None)

    def _forget(self, now: float, proxied: str | None) -> None:
        """Make room for one more session, which may be of a user of the proxy."""
        kept = [item for item in self._sessions.items() if item[1].ends > now]
        kept.sort(key=lambda item: item[1].ends)
        own = [
            key for key, one in kept if one.token is None and one.user.name == proxied
        ]
        dropped = set(own[: max(0, len(own) - MOST_OF_USER + 1)])
        others = [item for item in kept if item[0] not in dropped]
        self._sessions = dict(others[-(MOST_SESSIONS - 1) :])
