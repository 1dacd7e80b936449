"""An OpenID Connect provider: what it publishes, its tokens, and who they name.

The code flow with PKCE (RFC 7636). An ID token counts if its signature, issuer,
audience, nonce and times do; keys are fetched with limits, and kept for a while.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, import_key

from streamfactory.spi import ConfigError, ConnectionFailed
from streamfactory.spi.users import is_user_name
from streamfactory.ui.openid.rules import SignInRefused, is_safe_address
from streamfactory.ui.people import User
from streamfactory.wiring.core.bounded import Hung, bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from joserfc.jwk import Key

    Document = Mapping[str, Any]

_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
"""Of signatures with a public key: a shared key could also sign."""
SKEW: Final = 60
"""Seconds by which the clocks of provider and server may differ."""
_OLDEST: Final = 600
"""Seconds since an ID token was issued: it was asked for a moment ago."""
_SECONDS: Final = 10.0
"""For an answer of the provider, as a whole."""
_MOST_BYTES: Final = 256 * 1024
_KEPT: Final = 3600.0
"""Seconds for which what the provider publishes is kept."""
_KEYS_AGAIN: Final = 60.0
"""Seconds between two look-ups of keys for a token of an unknown one."""
_MOST_GROUPS: Final = 1000
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

    @property
    def home(self) -> str:
        """URL of the pages, to which the provider returns after a log-out."""
        parts = urlsplit(self.redirect)
        return f"{parts.scheme}://{parts.netloc}/"


@final
@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who signed in."""

    user: User
    token: str = field(repr=False)
    """The ID token, a hint for the log-out."""


@final
class OpenIdProvider:
    """Asks one provider. Thread-safe; connects on first use.

    Args:
        client: The pages as the provider knows them.
        now: The clock, in seconds since 1970.
    """

    def __init__(self, client: Client, now: Callable[[], float] = time.time) -> None:
        self.client = client
        self._now = now
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._metadata: tuple[float, Document] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def sign_in_address(self, state: str, nonce: str, verifier: str) -> str:
        """Where a browser is sent to sign in.

        Raises:
            ConnectionFailed: transient; the provider cannot be reached.
            ConfigError: config; it is another provider, or lacks what is needed.
        """
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.client.redirect,
            "scope": " ".join(self.client.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return _with_query(self._published()["authorization_endpoint"], query)

    def log_out_address(self, token: str) -> str | None:
        """Where a browser is sent to log out of the provider; None if it has none."""
        address = self._published().get("end_session_endpoint")
        if not isinstance(address, str):
            return None
        _check_address(address, self.client.issuer)
        query = {
            "id_token_hint": token,
            "client_id": self.client.id,
            "post_logout_redirect_uri": self.client.home,
        }
        return _with_query(address, query)

    def redeem(self, code: str, verifier: str, nonce: str, issuer: str) -> SignedIn:
        """Who a code is of, that a browser brought back.

        Args:
            code: The code.
            verifier: Of PKCE.
            nonce: That the ID token has to have.
            issuer: That the answer named (RFC 9207); empty if it named none.

        Raises:
            SignInRefused: The code or its token is refused.
            ConnectionFailed: transient; the provider cannot be reached.
        """
        published = self._published()
        named = published.get("authorization_response_iss_parameter_supported") is True
        if (issuer or named) and issuer != self.client.issuer:
            msg = "the answer is of another issuer"
            raise SignInRefused(msg)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.redirect,
            "code_verifier": verifier,
        }
        found = self._ask(published["token_endpoint"], form)
        token = found.get("id_token")
        if not isinstance(token, str):
            msg = "the provider answered without an ID token"
            raise SignInRefused(msg)
        claims = self._checked(token, nonce)
        wanted = {self.client.user_claim, self.client.groups_claim}
        if not wanted <= claims.keys() and "userinfo_endpoint" in published:
            claims = {**self._userinfo(published, found, claims), **claims}
        return SignedIn(self._user(claims), token)

    # --- claims ---------------------------------------------------------------

    def _checked(self, token: str, nonce: str) -> Document:
        """The claims of an ID token that is the answer to our request."""
        try:
            claims = self._decoded(token)
            rules = jwt.JWTClaimsRegistry(
                now=int(self._now()),
                leeway=SKEW,
                iss={"essential": True, "value": self.client.issuer},
                aud={"essential": True, "value": self.client.id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            rules.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            msg = f"the ID token is refused: {str(error)[:200]}"
            raise SignInRefused(msg) from None
        audiences = claims["aud"]
        others = isinstance(audiences, list) and len(audiences) > 1
        if (others or "azp" in claims) and claims.get("azp") != self.client.id:
            msg = "the ID token was issued for another client"
            raise SignInRefused(msg)
        if self._now() - claims["iat"] > _OLDEST + SKEW:
            msg = "the ID token was issued too long ago"
            raise SignInRefused(msg)
        return claims

    def _decoded(self, token: str) -> dict[str, Any]:
        try:
            return jwt.decode(token, self._key_set(), algorithms=_ALGORITHMS).claims
        except (JoseError, ValueError):
            # The provider may have a new key.
            keys = self._key_set(again=True)
            return jwt.decode(token, keys, algorithms=_ALGORITHMS).claims

    def _userinfo(
        self, published: Document, found: Document, claims: Document
    ) -> Document:
        access = found.get("access_token")
        if not isinstance(access, str):
            return {}
        more = self._ask(published["userinfo_endpoint"], token=access)
        if more.get("sub") != claims["sub"]:
            msg = "the provider names another user than the ID token"
            raise SignInRefused(msg)
        return more

    def _user(self, claims: Document) -> User:
        name = claims.get(self.client.user_claim)
        if not isinstance(name, str) or not is_user_name(name):
            msg = f"the claim {self.client.user_claim} is no name of a user"
            raise SignInRefused(msg)
        given = claims.get(self.client.groups_claim, [])
        groups = [given] if isinstance(given, str) else given
        if not isinstance(groups, list) or len(groups) > _MOST_GROUPS:
            msg = f"the claim {self.client.groups_claim} is no list of groups"
            raise SignInRefused(msg)
        # Other names cannot be in the file of users, and give no right.
        named = (one for one in groups if isinstance(one, str) and is_user_name(one))
        return User(name, frozenset(named))

    # --- what the provider publishes ------------------------------------------

    def _published(self) -> Document:
        with self._lock:
            kept = self._metadata
        if kept is not None and time.monotonic() - kept[0] < _KEPT:
            return kept[1]
        issuer = self.client.issuer
        found = self._ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            other = str(found.get("issuer"))[:200]
            msg = f"{issuer} names itself as the issuer {other!r}"
            raise ConfigError(msg, remedy="set oidc.issuer to the name it has")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            _check_address(found.get(key), issuer)
        if "userinfo_endpoint" in found:
            _check_address(found["userinfo_endpoint"], issuer)
        with self._lock:
            self._metadata = time.monotonic(), found
        return found

    def _key_set(self, *, again: bool = False) -> KeySet:
        with self._lock:
            kept = self._keys
        if kept is not None:
            age = time.monotonic() - kept[0]
            if age < (_KEYS_AGAIN if again else _KEPT):
                return kept[1]
        found = self._ask(self._published()["jwks_uri"])
        keys = KeySet([*_usable(found.get("keys"))])
        with self._lock:
            self._keys = time.monotonic(), keys
        return keys

    def _ask(
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
            status, content = bounded(
                what, _SECONDS, lambda: self._sent(address, form, token)
            )
            found = json.loads(content)
        except (httpx2.HTTPError, Hung, ValueError, RecursionError) as error:
            msg = f"{what}: no answer that can be used ({type(error).__name__})"
            raise ConnectionFailed(msg, remedy="try again later") from None
        finally:
            self._turns.release()
        if status >= 400 and status < 500 and (form is not None or token):
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


def _check_address(address: Any, issuer: str) -> None:
    """Refuse an address whose answers another could send.

    Raises:
        ConfigError: config; it is not HTTPS, but for a provider of this machine.
    """
    if not is_safe_address(address):
        shown = str(address)[:200]
        msg = f"the provider {issuer} names an address that is no HTTPS: {shown!r}"
        raise ConfigError(msg, remedy="use a provider with TLS")


def _with_query(address: str, query: Mapping[str, str]) -> str:
    joint = "&" if urlsplit(address).query else "?"
    return f"{address}{joint}{urlencode(query)}"
