"""What a provider of OpenID Connect publishes, and requests to it, within limits."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlencode, urlsplit

import httpx2
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, import_key

from streamfactory.spi import ConfigError, ConnectionFailed
from streamfactory.ui.openid.rules import SignInRefused, is_safe_address
from streamfactory.wiring.core.bounded import Hung, bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from joserfc.jwk import Key

    Document = Mapping[str, Any]

_SECONDS: Final = 10.0
"""For an answer of the provider, as a whole."""
_MOST_BYTES: Final = 256 * 1024
_KEPT: Final = 3600.0
"""Seconds for which what the provider publishes is kept."""
_KEYS_AGAIN: Final = 60.0
"""Seconds between two look-ups of keys for a token of an unknown one."""
_PAUSE: Final = 10.0
"""Seconds for which a provider that did not answer is not asked again."""
_AT_ONCE: Final = 2
"""Requests to the provider at a time: each occupies a thread of the pages."""


@final
@dataclass(frozen=True, slots=True)
class Client:
    """The pages as the provider knows them."""

    issuer: str
    id: str
    secret: str | None = field(repr=False)
    redirect: str
    """URL to which the provider returns."""
    user_claim: str = "sub"
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = ("openid", "profile")
    audience: str | None = None
    """Of access tokens that programs send; None: they are refused."""

    @property
    def home(self) -> str:
        """URL of the pages, to which the provider returns after a log-out."""
        parts = urlsplit(self.redirect)
        return f"{parts.scheme}://{parts.netloc}/"


@final
class Issuer:
    """Asks one provider. Thread-safe; connects on first use.

    Args:
        client: The pages as the provider knows them.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._metadata: tuple[float, Document] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._keys_asked = 0.0
        """When the keys were asked for last, whatever came of it."""
        self._silent_until = 0.0
        """By the monotonic clock; requests that waited meanwhile fail at once."""

    def published(self) -> Document:
        """The metadata of the provider.

        Raises:
            ConnectionFailed: transient; the provider cannot be reached.
            ConfigError: config; it is another provider, or lacks what is needed.
        """
        with self._lock:
            kept = self._metadata
        if kept is not None and time.monotonic() - kept[0] < _KEPT:
            return kept[1]
        issuer = self.client.issuer
        found = self.ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            other = str(found.get("issuer"))[:200]
            msg = f"{issuer} names itself as the issuer {other!r}"
            raise ConfigError(msg, remedy="set oidc.issuer to the name it has")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            check_address(found.get(key), issuer)
        if "userinfo_endpoint" in found:
            check_address(found["userinfo_endpoint"], issuer)
        with self._lock:
            self._metadata = time.monotonic(), found
        return found

    def keys(self, *, again: bool = False) -> KeySet:
        """The public keys of the provider.

        Args:
            again: Whether those that are kept lack the key of a token. They are then
                fetched once in a minute, however many tokens come.

        Raises:
            ConnectionFailed: transient; the provider cannot be reached.
        """
        with self._lock:
            now, kept = time.monotonic(), self._keys
            recent = not again or now - self._keys_asked < _KEYS_AGAIN
            if kept is not None and now - kept[0] < _KEPT and recent:
                return kept[1]
            # Others that want the keys again get those that are kept, meanwhile.
            self._keys_asked = now
        found = self.ask(self.published()["jwks_uri"])
        keys = KeySet([*_usable(found.get("keys"))])
        with self._lock:
            self._keys = time.monotonic(), keys
        return keys

    def ask(
        self, address: str, form: Document | None = None, *, token: str = ""
    ) -> Document:
        """The JSON object of an address, within a time and a size.

        Raises:
            SignInRefused: The provider refused it.
            ConnectionFailed: transient; there was no such answer.
        """
        what = f"the identity provider {self.client.issuer}"
        if not self._turns.acquire(timeout=_SECONDS):
            msg = f"{what}: too many requests wait for it"
            raise ConnectionFailed(msg, remedy="try again")
        try:
            if time.monotonic() < self._silent_until:
                msg = f"{what}: it did not answer a moment ago"
                raise ConnectionFailed(msg, remedy="try again later")
            status, content = bounded(
                what, _SECONDS, lambda: self._sent(address, form, token)
            )
            found = json.loads(content)
        except (httpx2.HTTPError, Hung, ValueError, RecursionError) as error:
            if isinstance(error, (httpx2.TimeoutException, Hung)):
                self._silent_until = time.monotonic() + _PAUSE
            msg = f"{what}: no answer that can be used ({type(error).__name__})"
            raise ConnectionFailed(msg, remedy="try again later") from None
        finally:
            self._turns.release()
        if 400 <= status < 500 and (form is not None or token):
            reason = found.get("error") if isinstance(found, dict) else None
            msg = f"the provider refused it: {str(reason)[:100]}"
            raise SignInRefused(msg)
        if status != 200 or not isinstance(found, dict):
            msg = f"{what}: it answered with status {status}"
            raise ConnectionFailed(msg, remedy="try again later")
        return found

    def _sent(
        self, address: str, form: Document | None, token: str
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        auth, data = None, None if form is None else dict(form)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif data is not None and self.client.secret is None:
            data["client_id"] = self.client.id
        elif data is not None and self._takes_basic():
            # RFC 6749, 2.3.1: both are form-encoded first.
            pair = (
                urlencode({"": self.client.id})[1:],
                urlencode({"": self.client.secret})[1:],
            )
            auth = httpx2.BasicAuth(*pair)
        elif data is not None:
            data |= {"client_id": self.client.id, "client_secret": self.client.secret}
        method = "GET" if data is None else "POST"
        content = b""
        with (
            httpx2.Client(timeout=_SECONDS, follow_redirects=False) as http,
            http.stream(
                method, address, data=data, headers=headers, auth=auth
            ) as found,
        ):
            for part in found.iter_raw():
                content += part
                if len(content) > _MOST_BYTES:
                    msg = "the answer is too large"
                    raise ValueError(msg)
            return found.status_code, content

    def _takes_basic(self) -> bool:
        """Whether the secret is sent as HTTP has it, which is the default."""
        with self._lock:
            kept = self._metadata
        given = (
            None
            if kept is None
            else kept[1].get("token_endpoint_auth_methods_supported")
        )
        return not isinstance(given, list) or "client_secret_basic" in given


def _usable(keys: Any) -> Iterator[Key]:
    """Yield the public keys that can verify a signature; others are left out."""
    for one in keys if isinstance(keys, list) else ():
        if isinstance(one, dict) and one.get("kty") in ("RSA", "EC", "OKP"):
            with suppress(JoseError, ValueError, TypeError, KeyError):
                yield import_key(one)


def check_address(address: Any, issuer: str) -> None:
    """Refuse an address whose answers another could send.

    Raises:
        ConfigError: config; it is not HTTPS, but for a provider of this machine.
    """
    if not is_safe_address(address):
        shown = str(address)[:200]
        msg = f"the provider {issuer} names an address that is no HTTPS: {shown!r}"
        raise ConfigError(msg, remedy="use a provider with TLS")
