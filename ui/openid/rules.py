"""What a sign-in has to keep to; needs no package of OpenID Connect."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from streamfactory.spi.addresses import is_loopback


class SignInRefused(Exception):
    """A sign-in is refused; the text has no secrets."""


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
