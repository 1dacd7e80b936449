"""Sign-ins that have begun and not come back: each belongs to one browser.

Needs no package of OpenID Connect, as `provider` does.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi.users import digest_of

if TYPE_CHECKING:
    from streamfactory.ui.openid.provider import OpenIdProvider

_MOST: Final = 10_000


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """One sign-in. Its values are secrets of the server and the provider."""

    state: str = field(default_factory=secrets.token_urlsafe, repr=False)
    nonce: str = field(default_factory=secrets.token_urlsafe, repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)
    """Of PKCE."""
    began: float = field(default_factory=time.monotonic)


@final
class SignIns:
    """The sign-ins that have begun. Thread-safe.

    Args:
        provider: The provider.
        secure_host: By which browsers call the pages with TLS; empty for none.
    """

    age: Final = 600
    """Seconds in which a user signs in."""

    def __init__(self, provider: OpenIdProvider, secure_host: str = "") -> None:
        self.provider, self.secure_host = provider, secure_host
        self._lock = threading.Lock()
        self._attempts: OrderedDict[bytes, Attempt] = OrderedDict()

    def judges(self, token: str) -> bool:
        """Whether a token that a program sends is for the provider to judge."""
        return self.provider.client.audience is not None and token.count(".") == 2

    def begin(self) -> tuple[str, Attempt]:
        """Begin one; with the secret of the browser, for a cookie."""
        secret, attempt = secrets.token_urlsafe(32), Attempt()
        with self._lock:
            self._attempts[digest_of(secret)] = attempt
            if len(self._attempts) > _MOST:
                self._attempts.popitem(last=False)
        return secret, attempt

    def take(self, secret: str) -> Attempt | None:
        """The sign-in of a browser, once; None if there is none, or it is too old."""
        with self._lock:
            found = self._attempts.pop(digest_of(secret), None)
        if found is None or time.monotonic() - found.began > self.age:
            return None
        return found
