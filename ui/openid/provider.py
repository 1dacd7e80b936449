"""The tokens of an OpenID Connect provider: ID, access and logout tokens.

The code flow with PKCE (RFC 7636). A token counts if its signature, issuer, audience
and times do, and it is of the kind that is expected.
"""

from __future__ import annotations

import base64
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError

from streamfactory.spi.users import is_user_name
from streamfactory.ui.openid.published import Issuer, check_address
from streamfactory.ui.openid.rules import LoggedOut, SignInRefused
from streamfactory.ui.people import User

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from joserfc.jwt import ClaimsOption

    from streamfactory.ui.openid.published import Client, Document

_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
"""Signatures that a public key verifies: a key that the pages share with the provider
could forge them."""
SKEW: Final = 60
"""Seconds by which the clocks of provider and server may differ."""
_OLDEST: Final = 600
"""Seconds since an ID token was issued, which was asked for a moment ago, or a logout
token, which is sent at once."""
_MOST_GROUPS: Final = 1000
_LOG_OUT: Final = "http://schemas.openid.net/event/backchannel-logout"
_OF_OTHERS: Final = frozenset({"at_hash", "c_hash", "events"})
"""Claims that no access token has: providers may add its audience to ID tokens, too."""
_ACCESS_TYPES: Final = ("jwt", "at+jwt")
_LOGOUT_TYPES: Final = ("jwt", "logout+jwt")


@final
@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who signed in."""

    user: User
    token: str = field(repr=False)
    """The ID token, a hint for the log-out."""
    subject: str
    """The claim ``sub``, which need not be the name of the user."""
    session: str | None
    """The claim ``sid``: the session at the provider, if it names it."""
    issued: float
    """The claim ``iat``, in seconds since 1970."""


@final
class OpenIdProvider:
    """Checks the tokens of one provider. Thread-safe; connects on first use.

    Args:
        client: The pages as the provider knows them.
        now: The clock, in seconds since 1970.
    """

    def __init__(self, client: Client, now: Callable[[], float] = time.time) -> None:
        self.client = client
        self._now = now
        self._issuer = Issuer(client)

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
        return _with_query(self._issuer.published()["authorization_endpoint"], query)

    def log_out_address(self, token: str) -> str | None:
        """Where a browser is sent to log out of the provider; None if it has none."""
        address = self._issuer.published().get("end_session_endpoint")
        if not isinstance(address, str):
            return None
        check_address(address, self.client.issuer)
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
        published = self._issuer.published()
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
        found = self._issuer.ask(published["token_endpoint"], form)
        token = found.get("id_token")
        if not isinstance(token, str):
            msg = "the provider answered without an ID token"
            raise SignInRefused(msg)
        claims = self._checked_id(token, nonce)
        wanted = {self.client.user_claim, self.client.groups_claim}
        if not wanted <= claims.keys() and "userinfo_endpoint" in published:
            claims = {**self._userinfo(published, found, claims), **claims}
        session = claims.get("sid")
        return SignedIn(
            self._user(claims),
            token,
            claims["sub"],
            session if isinstance(session, str) else None,
            claims["iat"],
        )

    def user_of(self, token: str) -> User:
        """Who an access token is of, that a program sent.

        It is judged by itself (RFC 9068): the provider is not asked about it.

        Raises:
            SignInRefused: The token is refused.
            ConnectionFailed: transient; the provider cannot be reached.
        """
        audience = self.client.audience
        if audience is None:
            msg = "access tokens are not accepted: oidc.api.audience is not set"
            raise SignInRefused(msg)
        claims = self._checked("access", token, audience, _ACCESS_TYPES, sub={})
        if not _OF_OTHERS.isdisjoint(claims):
            msg = "the access token has claims of an ID token or a logout token"
            raise SignInRefused(msg)
        if "cnf" in claims:
            msg = "the access token is bound to a key, which a bearer token cannot show"
            raise SignInRefused(msg)
        return self._user(claims)

    def logged_out(self, token: str) -> LoggedOut:
        """Whose sessions have ended at the provider, by a logout token.

        Raises:
            SignInRefused: The token is refused.
            ConnectionFailed: transient; the provider cannot be reached.
        """
        claims = self._checked(
            "logout", token, self.client.id, _LOGOUT_TYPES, iat={}, jti={}, events={}
        )
        events = claims["events"]
        if not isinstance(events, dict) or not isinstance(events.get(_LOG_OUT), dict):
            msg = "the logout token is not about a log-out"
            raise SignInRefused(msg)
        if "nonce" in claims:
            msg = "the logout token has a nonce, as only ID tokens have"
            raise SignInRefused(msg)
        self._check_age("logout", claims)
        found = LoggedOut(claims.get("sub"), claims.get("sid"), claims["iat"])
        named = [one for one in (found.subject, found.session) if one is not None]
        if not named or not all(isinstance(one, str) for one in named):
            msg = "the logout token names no user and no session"
            raise SignInRefused(msg)
        return found

    # --- claims ---------------------------------------------------------------

    def _checked_id(self, token: str, nonce: str) -> Document:
        """The claims of an ID token that is the answer to our request."""
        claims = self._checked(
            "ID",
            token,
            self.client.id,
            (),
            sub={},
            iat={},
            nonce={"value": nonce},
        )
        audiences = claims["aud"]
        others = isinstance(audiences, list) and len(audiences) > 1
        if (others or "azp" in claims) and claims.get("azp") != self.client.id:
            msg = "the ID token was issued for another client"
            raise SignInRefused(msg)
        self._check_age("ID", claims)
        return claims

    def _checked(
        self,
        kind: str,
        token: str,
        audience: str,
        types: tuple[str, ...],
        **required: ClaimsOption,
    ) -> Document:
        """The claims of a token of the provider, for an audience, and for now.

        Args:
            kind: Of the token, for messages.
            token: As it was received.
            audience: That it has to name.
            types: What the header ``typ`` may be, if the token has it; empty for any.
            required: Claims that it has to have, with their value if that is known.
        """
        issuer = self.client.issuer
        required |= {"iss": {"value": issuer}, "aud": {"value": audience}, "exp": {}}
        for one in required.values():
            one["essential"] = True
        now = int(self._now())
        try:
            found = self._decoded(token)
            rules = jwt.JWTClaimsRegistry(now, SKEW, **required)
            rules.validate(found.claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            msg = f"the {kind} token is refused: {str(error)[:200]}"
            raise SignInRefused(msg) from None
        given = str(found.header.get("typ", "JWT")).lower()
        if types and given.removeprefix("application/") not in types:
            msg = f"the {kind} token is a token of another kind: {given[:100]!r}"
            raise SignInRefused(msg)
        return found.claims

    def _decoded(self, token: str) -> jwt.Token:
        try:
            keys = self._issuer.keys()
            return jwt.decode(token, keys, algorithms=_ALGORITHMS)
        except (JoseError, ValueError):
            # The provider may have a new key.
            keys = self._issuer.keys(again=True)
            return jwt.decode(token, keys, algorithms=_ALGORITHMS)

    def _check_age(self, kind: str, claims: Document) -> None:
        if self._now() - claims["iat"] > _OLDEST + SKEW:
            msg = f"the {kind} token was issued too long ago"
            raise SignInRefused(msg)

    def _userinfo(
        self, published: Document, found: Document, claims: Document
    ) -> Document:
        access = found.get("access_token")
        if not isinstance(access, str):
            return {}
        more = self._issuer.ask(published["userinfo_endpoint"], token=access)
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


def _with_query(address: str, query: Mapping[str, str]) -> str:
    joint = "&" if urlsplit(address).query else "?"
    return f"{address}{joint}{urlencode(query)}"
