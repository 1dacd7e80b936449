"""What a sign-in has to keep to; needs no package of OpenID Connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final
from urllib.parse import urlsplit

from streamfactory.spi.addresses import is_loopback


class SignInRefused(Exception):
    """A sign-in is refused; the text has no secrets."""


@final
@dataclass(frozen=True, slots=True)
class LoggedOut:
    """Whose sessions ended at the provider: by its user, its session, or both."""

    subject: str | None
    session: str | None
    at: float
    """When, by the clock of the provider, in seconds since 1970."""

    def ends(self, subject: str, session: str | None, began: float) -> bool:
        """Whether a session here is one of them.

        Args:
            subject: To whom the provider issued its ID token.
            session: The session at the provider, if the ID token named it.
            began: When the ID token was issued, by the clock of the provider. A later
                session is another one: a logout token that is sent twice ends none.
        """
        if began > self.at:
            return False
        if self.subject is None:
            return session == self.session
        if self.subject != subject:
            return False
        # Without a name it may be the one that ended.
        return self.session is None or session in (None, self.session)


def is_safe_address(address: Any) -> bool:
    """Whether a URL is one of HTTPS, or of this machine, without a user in it."""
    if not isinstance(address, str) or not address.isprintable() or " " in address:
        return False
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
