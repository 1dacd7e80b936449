"""Sign-in by OpenID Connect: with a real provider, and with one that lies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.proving.skipping import skip_or_fail
from tests.ui.conftest import PLACE, Client, World, application, settings
from tests.ui.test_rights import EDIT, READ, VALUES, people, users_file

from streamfactory.spi import ConfigError
from streamfactory.ui.openid import published
from streamfactory.ui.openid.attempts import SignIns
from streamfactory.ui.openid.provider import OpenIdProvider
from streamfactory.ui.openid.published import Client as OpenIdClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.ui.conftest import Browser
    from werkzeug.test import TestResponse

VERSION: Final = "9.13.3"
SECRET: Final = "a secret+of/the pages"
CALLBACK: Final = f"{PLACE}/sign-in/callback"
API: Final = "api of the pages"
RESOURCE: Final = "urn:streamfactory:pages"
"""The same at the real provider, which wants a URI."""
SESSION: Final = "streamfactory-9816"
PENDING: Final = f"{SESSION}-sign-in"
PATTERNS: Final = {"*": {READ: ["anna"], VALUES: ["@team"], EDIT: ["owner"]}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


# --- a provider that lies ---------------------------------------------------------


@cache
def first_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


@cache
def other_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


class Liar:
    """A provider whose answers a test makes: faults that a real one has not."""

    def __init__(self) -> None:
        self.key = first_key()
        self.keys = [self.key.as_dict(private=False)]
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.signs: Any = self.key
        self.token: Callable[[str], str] | None = None
        """An ID token for a nonce, in place of one that is signed."""
        self.userinfo: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.codes: dict[str, tuple[str, str]] = {}
        """Nonce and challenge, by code: each is redeemed once."""
        self.slow = 0.0
        self.padding = ""
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                liar.answer(self, {})

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                form = dict(parse_qsl(self.rfile.read(length).decode()))
                liar.answer(self, form)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        path = urlsplit(request.path).path
        self.asked.append((path, form))
        time.sleep(self.slow)
        status, found = 200, dict[str, Any]()
        if path == "/.well-known/openid-configuration":
            found = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/auth",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "userinfo_endpoint": f"{self.issuer}/me",
                "end_session_endpoint": f"{self.issuer}/out",
                **self.metadata,
            }
        elif path == "/keys":
            found = {"keys": [{"kty": "odd"}, *self.keys]}
        elif path == "/me":
            found = self.userinfo
        elif path == "/token":
            status, found = self.redeemed(form)
        content = json.dumps(found).encode() + self.padding.encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def redeemed(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        nonce, challenge = self.codes.pop(form["code"], ("", ""))
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "pages",
            "sub": "anna",
            "nonce": nonce,
            "iat": now,
            "exp": now + 300,
            **self.claims,
        }
        claims = {name: one for name, one in claims.items() if one is not None}
        algorithms = [self.header["alg"]]
        if self.token is not None:
            token = self.token(nonce)
        else:
            token = jwt.encode(self.header, claims, self.signs, algorithms=algorithms)
        return 200, {"id_token": token, "access_token": "x", "token_type": "Bearer"}

    def signed(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token that it signs; claims that are None are left out."""
        now = int(time.time())
        given = {"iss": self.issuer, "sub": "anna", "iat": now, "exp": now + 300}
        given |= claims
        kept = {name: one for name, one in given.items() if one is not None}
        found = {**self.header, **(header or {})}
        return jwt.encode(found, kept, self.signs, algorithms=[found["alg"]])

    def sign_in(self, address: str, code: str = "code") -> dict[str, str]:
        """What a browser brings back that was sent to an address."""
        asked = {key: one[0] for key, one in parse_qs(urlsplit(address).query).items()}
        assert asked["code_challenge_method"] == "S256"
        self.codes[code] = asked["nonce"], asked["code_challenge"]
        return {"code": code, "state": asked["state"]}


@pytest.fixture
def liar() -> Iterator[Liar]:
    found = Liar()
    yield found
    found.server.shutdown()
    found.server.server_close()


@contextmanager
def pages(
    tmp_path: Path, issuer: str, *, secure: bool = False, **client: Any
) -> Iterator[Client]:
    client.setdefault("audience", API)
    made = OpenIdProvider(OpenIdClient(issuer, "pages", SECRET, CALLBACK, **client))
    file = users_file(tmp_path / "users.toml", PATTERNS)
    with people(
        file, sign_ins=SignIns(made, "localhost:9816" if secure else "")
    ) as found:
        yield found


@pytest.fixture
def client(small: World, tmp_path: Path, liar: Liar) -> Iterator[Client]:
    del small
    with pages(tmp_path, liar.issuer) as found:
        yield found


def begun(client: Client) -> str:
    """Where a browser is sent to sign in."""
    found = client.get("/sign-in")
    assert found.status_code == 303, found.get_data(as_text=True)
    return str(found.headers["Location"])


def signed_in(client: Client, liar: Liar) -> TestResponse:
    return client.get("/sign-in/callback", **liar.sign_in(begun(client)))


def test_a_user_signs_in_and_out(client: Client, liar: Liar) -> None:
    liar.claims["groups"] = ["team", "*", "@team", "(token)", 7]
    assert client.get("/").status_code == 302
    assert "/sign-in" in client.text("/log-in")
    found = signed_in(client, liar)
    assert found.status_code == 200, found.get_data(as_text=True)
    assert 'content="0;url=/"' in found.get_data(as_text=True)
    (cookie,) = (
        one
        for one in found.headers.getlist("Set-Cookie")
        if one.startswith(f"{SESSION}=")
    )
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Max-Age=28800" in cookie
    assert client.get("/").status_code == 200
    assert "anna" in client.text("/")
    assert client.get("/messages", stream="clicks").status_code == 200
    assert client.get("/process").status_code == 200  # read, for everything
    assert client.get("/edit/").status_code == 403

    csrf = client.text("/").split('name="csrf" value="')[1].split('"')[0]
    out = client.client.post("/log-out", data={"csrf": csrf}, base_url=PLACE)
    text = html.unescape(out.get_data(as_text=True))
    address = re.search(r'content="0;url=([^"]*)"', text)
    assert address is not None
    query = dict(parse_qsl(urlsplit(address[1]).query))
    assert address[1].startswith(f"{liar.issuer}/out?")
    assert query["post_logout_redirect_uri"] == f"{PLACE}/"
    assert query["id_token_hint"].count(".") == 2
    assert client.get("/").status_code == 302


def _by_another_key(liar: Liar) -> None:
    liar.signs = other_key("one")


def _segment(part: dict[str, Any] | bytes) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _by_hand(liar: Liar, algorithm: str, secret: bytes | None) -> None:
    """A token with a symmetric signature, or without one; its nonce is right."""

    def token(nonce: str) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {"iss": liar.issuer, "aud": "pages", "sub": "anna"}
        claims |= {"groups": [], "nonce": nonce, "iat": now, "exp": now + 300}
        text = f"{_segment({'alg': algorithm, 'kid': 'one'})}.{_segment(claims)}"
        if secret is None:
            return f"{text}."
        return f"{text}.{_segment(hmac.digest(secret, text.encode(), 'sha256'))}"

    liar.token = token


def _without_signature(liar: Liar) -> None:
    _by_hand(liar, "none", None)


def _by_the_public_key(liar: Liar) -> None:
    """The public key as the secret of a symmetric signature."""
    _by_hand(liar, "HS256", liar.key.as_pem(private=False))


def _by_the_secret_of_the_client(liar: Liar) -> None:
    _by_hand(liar, "HS256", SECRET.encode())


def _with_its_own_key(liar: Liar) -> None:
    other = other_key("own")
    liar.header = {"alg": "RS256", "jwk": other.as_dict(private=False)}
    liar.signs = other


LIES: Final[dict[str, Callable[[Liar], object]]] = {
    "another key": _by_another_key,
    "an unknown key": lambda liar: liar.header.update(kid="two"),
    "alg none": _without_signature,
    "the public key": _by_the_public_key,
    "the secret": _by_the_secret_of_the_client,
    "its own key": _with_its_own_key,
    "no token": lambda liar: setattr(liar, "token", lambda nonce: nonce),
    "another issuer": lambda liar: liar.claims.update(iss="https://evil.example"),
    "another audience": lambda liar: liar.claims.update(aud="other"),
    "several audiences": lambda liar: liar.claims.update(aud=["pages", "other"]),
    "another party": lambda liar: liar.claims.update(azp="other"),
    "another nonce": lambda liar: liar.claims.update(nonce="other"),
    "no nonce": lambda liar: liar.claims.update(nonce=None),
    "expired": lambda liar: liar.claims.update(exp=int(time.time()) - 61),
    "no end": lambda liar: liar.claims.update(exp=None),
    "issued later": lambda liar: liar.claims.update(iat=int(time.time()) + 3600),
    "issued long ago": lambda liar: liar.claims.update(iat=int(time.time()) - 3600),
    "valid later": lambda liar: liar.claims.update(nbf=int(time.time()) + 3600),
    "no name": lambda liar: liar.claims.update(sub="<script>"),
    "the holder": lambda liar: liar.claims.update(sub="(token)"),
    "a group as name": lambda liar: liar.claims.update(sub="@team"),
    "no list": lambda liar: liar.claims.update(groups={"team": 1}),
    "another user": lambda liar: liar.userinfo.update(sub="owner", groups=["team"]),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(client: Client, liar: Liar, lie: str) -> None:
    if lie != "another user":
        liar.claims["groups"] = ["team"]
    LIES[lie](liar)
    found = signed_in(client, liar)
    text = found.get_data(as_text=True)
    assert found.status_code == 403, text
    assert "The sign-in is refused" in text
    assert not [
        one
        for one in found.headers.getlist("Set-Cookie")
        if one.startswith(f"{SESSION}=")
    ]
    assert client.get("/").status_code == 302


def test_small_differences_of_clocks_are_allowed(client: Client, liar: Liar) -> None:
    now = int(time.time())
    liar.claims |= {"iat": now + 30, "exp": now - 30, "groups": []}
    assert signed_in(client, liar).status_code == 200


def test_what_the_token_lacks_is_asked_for(client: Client, liar: Liar) -> None:
    liar.userinfo = {"sub": "anna", "groups": "team"}
    assert signed_in(client, liar).status_code == 200
    assert client.get("/messages", stream="clicks").status_code == 200
    assert ("/me", {}) in liar.asked


def test_a_new_key_of_the_provider_is_fetched(
    client: Client, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar.claims["groups"] = []
    assert signed_in(client, liar).status_code == 200
    liar.signs = other_key("two")
    liar.header["kid"] = "two"
    liar.keys = [liar.signs.as_dict(private=False)]
    assert signed_in(client, liar).status_code == 403  # the keys were just fetched
    count = [path for path, _ in liar.asked].count("/keys")
    assert count == 1
    monkeypatch.setattr(published, "_KEYS_AGAIN", 0.0)
    assert signed_in(client, liar).status_code == 200


def test_an_answer_counts_once_and_in_its_browser(client: Client, liar: Liar) -> None:
    liar.claims["groups"] = []
    back = liar.sign_in(begun(client))
    other = Client(client.site, client.client.application.test_client())
    assert other.get("/sign-in/callback", **back).status_code == 403
    wrong = {**back, "state": "other"}
    assert client.get("/sign-in/callback", **wrong).status_code == 403
    # The wrong one ended it: nobody may guess.
    assert client.get("/sign-in/callback", **back).status_code == 403
    back = liar.sign_in(begun(client))
    assert client.get("/sign-in/callback", **back).status_code == 200
    assert client.get("/sign-in/callback", **back).status_code == 403
    # The code once more, in a sign-in of its own.
    address = begun(client)
    state = liar.sign_in(address, "another")["state"]
    replayed = {"code": back["code"], "state": state}
    assert client.get("/sign-in/callback", **replayed).status_code == 403
    for odd in (
        {},
        {"error": "access_denied", "state": state},
        {"code": "x" * 5000, "state": state},
        {"code": ["a", "b"], "state": state},
    ):
        begun(client)
        assert client.get("/sign-in/callback", **odd).status_code == 403


def test_the_issuer_of_an_answer_is_checked(client: Client, liar: Liar) -> None:
    liar.metadata["authorization_response_iss_parameter_supported"] = True
    liar.claims["groups"] = []
    for issuer, status in (
        ("", 403),
        ("https://evil.example", 403),
        (liar.issuer, 200),
    ):
        back = {**liar.sign_in(begun(client)), "iss": issuer}
        assert client.get("/sign-in/callback", **back).status_code == status


def test_a_session_is_a_new_one_and_ends_the_old(client: Client, liar: Liar) -> None:
    """A cookie that somebody else chose is no session, nor becomes one."""
    liar.claims["groups"] = []
    client.client.set_cookie(SESSION, "chosen", domain="localhost")
    signed_in(client, liar)
    first = client.client.get_cookie(SESSION).value
    assert first != "chosen"
    signed_in(client, liar)
    second = client.client.get_cookie(SESSION).value
    access = client.site.access
    assert access.session("chosen") is access.session(first) is None
    assert access.session(second) is not None
    assert client.client.get_cookie(PENDING) is None


def test_nothing_leads_to_another_site(client: Client, liar: Liar) -> None:
    liar.claims["groups"] = []
    for name in ("next", "redirect_uri", "url", "return_to"):
        assert (
            client.get("/sign-in", **{name: "https://evil.example"}).status_code == 400
        )
        back = {**liar.sign_in(begun(client)), name: "https://evil.example"}
        found = client.get("/sign-in/callback", **back)
        assert found.status_code == 200
        assert "evil" not in found.get_data(as_text=True)


def test_cookies_are_for_tls_only_where_browsers_use_it(
    small: World, tmp_path: Path, liar: Liar
) -> None:
    del small
    liar.claims["groups"] = []
    with pages(tmp_path, liar.issuer, secure=True) as client:
        (cookie,) = client.get("/sign-in").headers.getlist("Set-Cookie")
        for word in ("Secure", "HttpOnly", "SameSite=Lax", "Max-Age=600"):
            assert word in cookie


def test_a_provider_that_cannot_be_used_is_named(
    small: World, tmp_path: Path, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    del small
    monkeypatch.setattr(published, "_SECONDS", 0.5)
    for metadata, padding, slow, status in (
        ({"issuer": "https://evil.example"}, "", 0.0, 400),
        ({"token_endpoint": "http://evil.example/token"}, "", 0.0, 400),
        ({"authorization_endpoint": "javascript:alert(1)"}, "", 0.0, 400),
        ({"jwks_uri": None}, "", 0.0, 400),
        ({}, " " * (1 << 20), 0.0, 503),
        ({}, "nonsense", 0.0, 503),
        ({}, "", 30.0, 503),
    ):
        liar.metadata, liar.padding, liar.slow = metadata, padding, slow
        with pages(tmp_path, liar.issuer) as client:
            begin = time.monotonic()
            found = client.get("/sign-in")
            assert found.status_code == status, (metadata, found.get_data(as_text=True))
            assert time.monotonic() - begin < 20
            assert "Location" not in found.headers


# --- tokens of programs -----------------------------------------------------------


def asked_with(client: Client, token: str, path: str = "streams") -> TestResponse:
    """An answer of `/api/v1` to a program that sends a token."""
    found: TestResponse = client.client.get(
        f"/api/v1/{path}",
        headers={"Authorization": f"Bearer {token}"},
        base_url=PLACE,
    )
    return found


def test_programs_send_access_tokens(client: Client, liar: Liar) -> None:
    """Rights are those of the user and the groups that the claims name."""
    rows = "streams/clicks/rows"
    plain = liar.signed(aud=API)
    assert asked_with(client, plain).status_code == 200
    assert asked_with(client, plain, rows).status_code == 403
    for header, claims in (
        ({}, {"aud": API}),
        ({"typ": "at+jwt"}, {"aud": [API, "another"]}),
        ({"typ": "application/at+JWT"}, {"aud": API, "iat": None, "azp": "robot"}),
    ):
        token = liar.signed(header, groups=["team"], **claims)
        assert asked_with(client, token, rows).status_code == 200, claims
    stranger = liar.signed(aud=API, sub="nobody-here")
    assert asked_with(client, stranger).status_code == 403
    # The keys were fetched once, and the provider was not asked about a token.
    assert [path for path, _ in liar.asked].count("/keys") == 1
    assert {path for path, _ in liar.asked} == {
        "/.well-known/openid-configuration",
        "/keys",
    }


def test_a_program_changes_with_an_access_token(client: Client, liar: Liar) -> None:
    def sent(token: str) -> int:
        found: TestResponse = client.client.post(
            "/api/v1/streams/clicks/messages",
            json={"row": {"id": 7}},
            headers={"Authorization": f"Bearer {token}"},
            base_url=PLACE,
        )
        return found.status_code

    assert sent(liar.signed(aud=API)) == 403
    assert sent(liar.signed(aud=API, sub="owner")) == 201
    assert sent(liar.signed(aud="pages", sub="owner")) == 401


def by_another(liar: Liar) -> Liar:
    _by_another_key(liar)
    return liar


def by_its_own(liar: Liar) -> Liar:
    _with_its_own_key(liar)
    return liar


FORGED: Final[dict[str, Callable[[Liar], str]]] = {
    "an ID token": lambda liar: liar.signed(aud="pages", nonce="n"),
    "an ID token for both": lambda liar: liar.signed(aud=["pages", API], at_hash="h"),
    "a logout token for both": lambda liar: liar.signed(aud=API, events=EVENTS),
    "another audience": lambda liar: liar.signed(aud="other"),
    "no audience": lambda liar: liar.signed(),
    "another issuer": lambda liar: liar.signed(aud=API, iss="https://evil.example"),
    "expired": lambda liar: liar.signed(aud=API, exp=int(time.time()) - 61),
    "no end": lambda liar: liar.signed(aud=API, exp=None),
    "valid later": lambda liar: liar.signed(aud=API, nbf=int(time.time()) + 3600),
    "issued later": lambda liar: liar.signed(aud=API, iat=int(time.time()) + 3600),
    "a logout token": lambda liar: liar.signed({"typ": "logout+jwt"}, aud=API),
    "bound to a key": lambda liar: liar.signed(aud=API, cnf={"jkt": "x"}),
    "no user": lambda liar: liar.signed(aud=API, sub=None),
    "no name": lambda liar: liar.signed(aud=API, sub="<script>"),
    "the holder": lambda liar: liar.signed(aud=API, sub="(token)"),
    "no list": lambda liar: liar.signed(aud=API, groups={"team": 1}),
    "another key": lambda liar: by_another(liar).signed(aud=API),
    "its own key": lambda liar: by_its_own(liar).signed(aud=API),
    "alg none": lambda liar: hand_made(liar, "none", None),
    "the public key": lambda liar: hand_made(
        liar, "HS256", liar.key.as_pem(private=False)
    ),
    "the secret": lambda liar: hand_made(liar, "HS256", SECRET.encode()),
    "no JSON": lambda liar: "a.b.c",
    "empty": lambda liar: "..",
    "deep": lambda liar: f"{_segment(b'[' * 9000)}.e30.x",
    "cut off": lambda liar: liar.signed(aud=API)[:-40],
    "changed": lambda liar: swapped(liar.signed(aud=API), {"sub": "owner"}),
}


def hand_made(liar: Liar, algorithm: str, secret: bytes | None) -> str:
    now = int(time.time())
    claims = {"iss": liar.issuer, "aud": API, "sub": "owner", "exp": now + 300}
    text = f"{_segment({'alg': algorithm, 'kid': 'one'})}.{_segment(claims)}"
    signature = b"" if secret is None else hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{_segment(signature)}"


def swapped(token: str, claims: dict[str, Any]) -> str:
    """A token with other claims, and the signature that it had."""
    header, payload, signature = token.split(".")
    old = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{_segment({**old, **claims})}.{signature}"


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_tokens_of_programs_are_refused(
    client: Client, liar: Liar, forgery: str
) -> None:
    found = asked_with(client, FORGED[forgery](liar))
    assert found.status_code == 401, found.get_data(as_text=True)
    assert found.headers["WWW-Authenticate"] == "Bearer"


def test_forged_tokens_lock_nobody_out(client: Client, liar: Liar) -> None:
    """A signature is not guessed: a program whose token ended may get a new one."""
    for _ in range(12):
        asked_with(client, liar.signed(aud=API, exp=1))
    assert asked_with(client, liar.signed(aud=API)).status_code == 200


def test_tokens_of_unknown_keys_ask_the_provider_once_a_minute(
    client: Client, liar: Liar
) -> None:
    assert asked_with(client, liar.signed(aud=API)).status_code == 200
    for number in range(5):
        token = liar.signed({"kid": f"unknown-{number}"}, aud=API)
        assert asked_with(client, token).status_code == 401
    assert [path for path, _ in liar.asked].count("/keys") == 1


def test_tokens_do_not_wait_for_a_silent_provider_one_after_the_other(
    client: Client, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else forged tokens would occupy all threads of the pages."""
    monkeypatch.setattr(published, "_SECONDS", 0.3)
    liar.slow = 30.0
    for _ in range(5):
        found = asked_with(client, "a.b.c")
        assert found.status_code == 503, found.get_data(as_text=True)
        assert found.headers["Retry-After"]
    assert len(liar.asked) == 1
    liar.slow = 0.0
    monkeypatch.setattr(published, "_SECONDS", 10.0)
    sign_ins = client.site.access.sign_ins
    assert sign_ins is not None
    sign_ins.provider._issuer._silent_until -= published._PAUSE
    assert asked_with(client, liar.signed(aud=API)).status_code == 200


def test_access_tokens_count_where_their_audience_is_set_only(
    small: World, tmp_path: Path, liar: Liar
) -> None:
    del small
    with pages(tmp_path, liar.issuer, audience=None) as client:
        liar.claims["groups"] = ["team"]
        signed_in(client, liar)
        session = client.site.access.session(client.client.get_cookie(SESSION).value)
        assert session is not None
        assert session.signed is not None
        for token in (session.signed.token, liar.signed(aud=API), "x"):
            assert asked_with(client, token).status_code == 401


# --- log-out at the provider ------------------------------------------------------

EVENTS: Final[dict[str, Any]] = {
    "http://schemas.openid.net/event/backchannel-logout": {}
}


def logout_token(liar: Liar, **claims: Any) -> str:
    given = {"aud": "pages", "jti": "1", "events": EVENTS, **claims}
    return liar.signed({"typ": "logout+jwt"}, **given)


def ended(client: Client, token: str, **headers: str) -> TestResponse:
    """The provider says whose session has ended; it keeps no cookie.

    Values beside the token are ignored (OpenID Connect Back-Channel Logout, 2.5).
    """
    calls = client.client.application.test_client()
    found: TestResponse = calls.post(
        "/sign-in/ended",
        data={"logout_token": token, "client": "pages"},
        base_url=PLACE,
        headers=headers,
    )
    return found


def browser_of(client: Client, liar: Liar, **claims: Any) -> Client:
    """Somebody who signed in with a browser of his own."""
    liar.claims = {"groups": ["team"], **claims}
    found = Client(client.site, client.client.application.test_client())
    assert signed_in(found, liar).status_code == 200
    return found


def test_a_log_out_at_the_provider_ends_sessions_here(
    client: Client, liar: Liar
) -> None:
    first = browser_of(client, liar, sub="anna", sid="s1")
    second = browser_of(client, liar, sub="anna", sid="s2")
    unnamed = browser_of(client, liar, sub="anna")
    owner = browser_of(client, liar, sub="owner", sid="s3")

    def inside() -> list[bool]:
        return [
            one.get("/").status_code == 200 for one in (first, second, unnamed, owner)
        ]

    assert inside() == [True] * 4
    # A session that is named; whoever has no name of it may be the one.
    found = ended(client, logout_token(liar, sub="anna", sid="s1"))
    assert found.status_code == 200, found.get_data(as_text=True)
    assert found.headers["Cache-Control"] == "no-store"
    assert inside() == [False, True, False, True]
    assert ended(client, logout_token(liar, sub=None, sid="s9")).status_code == 200
    assert ended(client, logout_token(liar, sub="owner", sid="s2")).status_code == 200
    assert inside() == [False, True, False, True]
    assert ended(client, logout_token(liar, sub=None, sid="s3")).status_code == 200
    assert inside() == [False, True, False, False]
    assert ended(client, logout_token(liar, sub="anna")).status_code == 200
    assert inside() == [False] * 4


def test_a_logout_token_ends_no_later_session(client: Client, liar: Liar) -> None:
    """A token that is sent again is answered as before, and ends nothing."""
    now = int(time.time())
    first = browser_of(client, liar, sub="anna", iat=now - 20)
    liar.claims = {}
    token = logout_token(liar, sub="anna", iat=now - 10)
    assert ended(client, token).status_code == 200
    assert first.get("/").status_code == 302
    second = browser_of(client, liar, sub="anna", iat=now - 5)
    liar.claims = {}
    assert ended(client, token).status_code == 200
    assert second.get("/").status_code == 200
    assert ended(client, logout_token(liar, sub="anna")).status_code == 200
    assert second.get("/").status_code == 302


def test_a_log_out_is_that_of_its_subject_and_not_of_a_name(
    small: World, tmp_path: Path, liar: Liar
) -> None:
    del small
    with pages(tmp_path, liar.issuer, user_claim="preferred_username") as client:
        found = browser_of(client, liar, sub="7", preferred_username="anna")
        ended(client, logout_token(liar, sub="anna"))
        assert found.get("/").status_code == 200
        ended(client, logout_token(liar, sub="7"))
        assert found.get("/").status_code == 302


NO_LOGOUT: Final[dict[str, Callable[[Liar], str]]] = {
    "an ID token": lambda liar: liar.signed(aud="pages", nonce="n"),
    "a nonce": lambda liar: logout_token(liar, nonce="n"),
    "an access token": lambda liar: liar.signed({"typ": "at+jwt"}, aud=API),
    "the kind of another": lambda liar: liar.signed(
        {"typ": "at+jwt"}, aud="pages", jti="1", events=EVENTS
    ),
    "no event": lambda liar: logout_token(liar, events=None),
    "another event": lambda liar: logout_token(liar, events={"https://a": {}}),
    "an event as a text": lambda liar: logout_token(liar, events=[*EVENTS]),
    "no number": lambda liar: logout_token(liar, jti=None),
    "nobody": lambda liar: logout_token(liar, sub=None),
    "odd names": lambda liar: logout_token(liar, sub="anna", sid=["s1"]),
    "another audience": lambda liar: logout_token(liar, aud=API),
    "another issuer": lambda liar: logout_token(liar, iss="https://evil.example"),
    "expired": lambda liar: logout_token(liar, exp=int(time.time()) - 61),
    "no end": lambda liar: logout_token(liar, exp=None),
    "long ago": lambda liar: logout_token(liar, iat=int(time.time()) - 3600),
    "another key": lambda liar: logout_token(by_another(liar), sub="anna"),
    "alg none": lambda liar: hand_made(liar, "none", None),
    "the secret": lambda liar: hand_made(liar, "HS256", SECRET.encode()),
    "changed": lambda liar: swapped(logout_token(liar, sub="owner"), {"sub": "anna"}),
    "no JSON": lambda liar: "a.b.c",
    "deep": lambda liar: f"{_segment(b'[' * 9000)}.e30.x",
}


@pytest.mark.parametrize("forgery", NO_LOGOUT)
def test_forged_logout_tokens_end_nothing(
    client: Client, liar: Liar, forgery: str
) -> None:
    browser = browser_of(client, liar, sub="anna", sid="s1")
    liar.claims = {}
    found = ended(client, NO_LOGOUT[forgery](liar))
    assert found.status_code == 400, found.get_data(as_text=True)
    assert found.get_json()["error"] == "invalid_request"
    assert browser.get("/").status_code == 200


def test_only_the_provider_says_who_logged_out(client: Client, liar: Liar) -> None:
    """A form of another site is refused, and one where there is no provider."""
    token = logout_token(liar, sub="anna")
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert ended(client, token, **headers).status_code == 403
    assert ended(client, "").status_code == 400
    with application() as other:
        assert ended(other, token).status_code == 404


WRONG: Final = [
    ({"oidc_issuer": "https://a.example"}, r"oidc\.issuer: requires access\.file"),
    ({"oidc_issuer": "http://a.example"}, "is no URL of HTTPS"),
    ({"oidc_issuer": "https://u:p@a.example"}, "is no URL of HTTPS"),
    ({"oidc_redirect_url": "https://a.example/"}, "does not end in /sign-in/callback"),
    ({"oidc_api_audience": "api"}, r"oidc\.api\.audience: requires oidc\.issuer"),
    (
        {"oidc_api_audience": "pages", "oidc_client_id": "pages"},
        "ID tokens would be accepted as access tokens",
    ),
    ({"oidc_scopes": "profile"}, "lacks the scope openid"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_settings_that_do_not_fit_are_refused(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(**options)


# --- a real provider --------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with npm's oidc-provider."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        skip_or_fail("npm and node are not installed (on Debian: apt install npm)")
    folder = tmp_path_factory.mktemp("openid")
    (folder / "package.json").write_text('{"private": true}')
    done = subprocess.run(
        [npm, "install", "--silent", f"oidc-provider@{VERSION}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        skip_or_fail(f"npm has no oidc-provider {VERSION}: {done.stderr[-300:]}")
    shutil.copy(Path(__file__).with_name("openid-provider.mjs"), folder)
    return folder


@contextmanager
def running(folder: Path, callback: str) -> Iterator[str]:
    """The issuer of a provider that runs."""
    port, home = free_port(), callback.removesuffix("sign-in/callback")
    with subprocess.Popen(
        ["node", "openid-provider.mjs", str(port), callback, home],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "ready":
                break
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def filled(
    page: httpx2.Response, browser: httpx2.Client, **fields: str
) -> httpx2.Response:
    """Send the form of a page of the provider."""
    form = re.search(
        r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', page.text, re.DOTALL
    )
    assert form is not None, page.text
    hidden = re.findall(r'<input[^>]*type="hidden"[^>]*>', form[2])
    for one in hidden:
        name = re.search(r'name="([^"]*)"', one)
        value = re.search(r'value="([^"]*)"', one)
        assert name is not None
        fields[name[1]] = html.unescape(value[1]) if value else ""
    return browser.post(page.url.join(html.unescape(form[1])), data=fields)


def test_with_a_certified_provider(
    small: World, tmp_path: Path, installed: Path, serve: Callable[..., Browser]
) -> None:
    del small
    port = free_port()
    place = f"http://127.0.0.1:{port}"
    file = tmp_path / "users.toml"
    file.write_text('[streams."*"]\nread = ["anna", "robot"]\nvalues = ["@team"]\n')
    with running(installed, f"{place}/sign-in/callback") as issuer:
        (tmp_path / "secret").write_text(SECRET)
        serve(
            f"127.0.0.1:{port}",
            access_file=file,
            oidc_issuer=issuer,
            oidc_client_id="pages",
            oidc_client_secret=f"${{file:{tmp_path}/secret}}",
            oidc_redirect_url=f"{place}/sign-in/callback",
            oidc_api_audience=RESOURCE,
        )
        with httpx2.Client(follow_redirects=True, timeout=60) as browser:
            page = browser.get(f"{place}/")
            assert page.url.path == "/log-in"
            page = browser.get(f"{place}/sign-in")
            assert str(page.url).startswith(issuer)
            page = filled(page, browser, login="anna", password="any")
            page = filled(page, browser)  # the consent
            assert page.status_code == 200, page.text
            assert "Signed in" in page.text
            page = browser.get(f"{place}/messages?stream=clicks")
            assert page.status_code == 200
            assert "anna" in page.text
            csrf = page.text.split('name="csrf" value="')[1].split('"')[0]
            page = browser.post(f"{place}/log-out", data={"csrf": csrf})
            address = re.search(r'content="0;url=([^"]*)"', page.text)
            assert address is not None
            page = browser.get(html.unescape(address[1]))
            page = filled(page, browser, logout="yes")
            assert page.url.path == "/log-in", page.text  # the pages again, logged out
            # Nobody is signed in at the provider any more.
            page = browser.get(f"{place}/sign-in")
            assert 'name="login"' in page.text
            # Signed in once more, and logged out there: not here, in this browser.
            page = filled(page, browser, login="anna", password="any")
            page = filled(page, browser)
            assert "Signed in" in page.text
            assert browser.get(f"{place}/").url.path == "/"
            with httpx2.Client(cookies=browser.cookies, timeout=60) as other:
                other.cookies.delete(f"streamfactory-{port}")
                page = other.get(f"{issuer}/session/end")
                filled(page, other, logout="yes")
            deadline = time.monotonic() + 30
            while browser.get(f"{place}/").url.path != "/log-in":
                assert time.monotonic() < deadline
                time.sleep(0.05)
        asked = {"grant_type": "client_credentials", "resource": RESOURCE}
        found = httpx2.post(f"{issuer}/token", data=asked, auth=("robot", "robot"))
        token = found.json()["access_token"]
        for path, status in (("clicks", 200), ("clicks/rows", 403)):
            found = httpx2.get(
                f"{place}/api/v1/streams/{path}",
                headers={"Authorization": f"Bearer {token}"},
            )
            assert found.status_code == status, found.text
