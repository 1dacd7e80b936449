"""Requests to the HTTP interface of OpenBao and Vault, each within a deadline."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import httpx
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    StreamTimeout,
)

from streamfactory_vault.settings import Settings, is_header, shows_secrets, tls_context

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_BYTES: Final = 4 << 20
"""Of an answer: a value has 1 MiB at most."""
_SHOWN: Final = 200
_MOVED: Final = (307, 308)
"""A standby server names the active one."""


@dataclass(slots=True)
class _Login:
    """The token of the process, by what it was had for."""

    settings: Settings | None = None
    token: str = field(default="", repr=False)
    until: float = 0.0
    """When it is asked for again, or renewed, by the monotonic clock."""


_lock = threading.Lock()
_login = _Login()


class Vault:
    """The server, for one look-up. Closed by its block.

    Args:
        settings: How to reach it.
        seconds: Until the deadline of all requests together.
    """

    def __init__(self, settings: Settings, seconds: float) -> None:
        self._settings = settings
        self._deadline = time.monotonic() + seconds
        # No proxies of the environment: they would see the token of a plain address.
        self._client = httpx.Client(verify=tls_context(), trust_env=False)

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def read(self, path: str) -> Mapping[str, Any]:
        """Return the answer to reading a path; signs in where that is necessary.

        Args:
            path: Below ``/v1/``, quoted.

        Raises:
            ConfigError: config; there is nothing there.
            NotAuthorized: permanent; the token may not read it.
            ConnectionFailed, StreamTimeout: transient; the server does not answer, is
                sealed, or is overloaded.
        """
        token = self._token()
        try:
            return self._request("GET", path, token)
        except NotAuthorized:
            if not self._forget(token):
                raise
            # Revoked, or used up: sign in once more.
            return self._request("GET", path, self._token())

    def _token(self) -> str:
        settings = self._settings
        if settings.token:
            self._renew(settings.token)
            return settings.token
        with _lock:
            if _login.settings == settings and time.monotonic() < _login.until:
                return _login.token
        path = f"auth/{settings.auth_mount}/login"
        body = {"role_id": settings.role_id, "secret_id": settings.secret_id}
        answer = self._request("POST", path, "", body)
        auth = answer.get("auth")
        auth = auth if isinstance(auth, dict) else {}
        token = auth.get("client_token")
        if not isinstance(token, str) or not token or not is_header(token):
            msg = "the server answered a login without a token that can be sent"
            raise ConnectionFailed(msg)
        self._remember(token, auth)
        return token

    def _renew(self, token: str) -> None:
        """Renew a token that has a time, when half of it is over."""
        with _lock:
            known = _login.settings == self._settings
            if known and time.monotonic() < _login.until:
                return
        try:
            path = "auth/token/renew-self" if known else "auth/token/lookup-self"
            answer = self._request("POST" if known else "GET", path, token)
        except (NotAuthorized, ConfigError):
            answer = {}  # it may read secrets and nothing else, or cannot be renewed
        data = answer.get("auth") or answer.get("data")
        self._remember(token, data if isinstance(data, dict) else {})

    def _remember(self, token: str, facts: Mapping[str, Any]) -> None:
        ttl = facts.get("lease_duration", facts.get("ttl"))
        seconds = ttl if isinstance(ttl, int) and ttl > 0 else 3600
        with _lock:
            _login.settings, _login.token = self._settings, token
            _login.until = time.monotonic() + min(seconds, 86_400) / 2

    def _forget(self, token: str) -> bool:
        """Forget a token of a login that was refused; whether it can be had again."""
        with _lock:
            if _login.token == token:
                _login.until = 0.0
        return not self._settings.token

    # --- HTTP -----------------------------------------------------------------------

    def _request(
        self, method: str, path: str, token: str, body: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        url = f"{self._settings.address}/v1/{path}"
        headers = {"X-Vault-Request": "true"}
        if token:
            headers["X-Vault-Token"] = token
        if self._settings.namespace:
            headers["X-Vault-Namespace"] = self._settings.namespace
        try:
            status, content, moved = self._send(method, url, headers, body)
            if status in _MOVED:
                there = _active(url, moved)
                status, content, _ = self._send(method, there, headers, body)
        except httpx.TimeoutException:
            raise _late() from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            # Others may quote a header, which has the token.
            shown = isinstance(error, httpx.NetworkError)
            reason = str(error)[:_SHOWN] if shown else ""
            reason = reason or type(error).__name__
            msg = f"the server {self._settings.address} cannot be reached: {reason}"
            raise ConnectionFailed(msg) from None
        return _checked(status, content)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Mapping[str, str] | None,
    ) -> tuple[int, bytes, str]:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _late()
        content = bytearray()
        with self._client.stream(
            method, url, headers=dict(headers), json=body, timeout=left
        ) as answer:
            for part in answer.iter_bytes():
                content += part
                if len(content) > _MOST_BYTES:
                    msg = "the answer of the server is longer than 4 MiB"
                    raise ConfigError(msg)
                if time.monotonic() > self._deadline:
                    raise _late()
            moved = answer.headers.get("location", "")
            return answer.status_code, bytes(content), moved


def _late() -> StreamTimeout:
    return StreamTimeout("the server did not answer in time")


def _active(url: str, moved: str) -> str:
    """The address of the active server; a token is not sent in the clear instead."""
    there = urljoin(url, moved)
    weaker = urlsplit(url).scheme == "https" and urlsplit(there).scheme != "https"
    if weaker or shows_secrets(there):
        msg = "the server names an active one whose address is not encrypted"
        raise ConfigError(msg)
    return there


def _checked(status: int, content: bytes) -> Mapping[str, Any]:
    """The answer; an error where the server refused."""
    try:
        plain = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        plain = None
    if status in (200, 204) and isinstance(plain, dict):
        return plain
    reason = _reason(plain)
    if status == 404 and not reason:
        reason = ": there is no such secret, or it was deleted"
    what = f"the server answered {status}{reason}"
    if status in (401, 403):
        remedy = "allow it by a policy, and check VAULT_NAMESPACE and the token"
        raise NotAuthorized(what, remedy=remedy)
    if status == 429 or status >= 500 or status in (200, 204, 412, 472, 473):
        raise ConnectionFailed(what)
    raise ConfigError(what)


def _reason(plain: Any) -> str:
    errors = plain.get("errors") if isinstance(plain, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, str):
        return ""
    shown = "".join(c if c.isprintable() else " " for c in first)
    return f": {' '.join(shown.split())[:_SHOWN]}"
