"""A server with the part of Vault's HTTP interface that the scheme uses.

Written after its documentation: KV 1 and 2, mounts, tokens, AppRole, namespaces. It
refuses what the real one refuses, and can misbehave on request.
"""

from __future__ import annotations

import json
import secrets
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "kit-root-token"


class Interface:
    """The server, in a thread. Attributes may be set while it runs."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.mounts: dict[str, dict[str, Any]] = {
            "secret/": {"type": "kv", "options": {"version": "2"}},
            "kv1/": {"type": "kv", "options": {"version": "1"}},
            "a b/c/": {"type": "kv", "options": {"version": "2"}},
            "database/": {"type": "database", "options": None},
        }
        self.secrets: dict[str, dict[str, Any] | None] = {}
        self.tokens: dict[str, dict[str, Any]] = {TOKEN: {"ttl": 0}}
        self.roles: dict[str, str] = {}
        self.namespace = ""
        self.login_seconds = 3600
        self.requests: list[tuple[str, str]] = []
        self.answer: tuple[int, bytes, dict[str, str]] | None = None
        """What every request gets, instead of its answer."""
        self.running = threading.Event()
        self.running.set()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner.handle(self)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if tls is not None:
            socket = self._server.socket
            self._server.socket = tls.wrap_socket(socket, server_side=True)
            scheme = "https"
        self.address = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self.running.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("content-length") or 0)
        body = json.loads(request.rfile.read(length)) if length else {}
        path = unquote(urlsplit(request.path).path.removeprefix("/v1/"))
        self.requests.append((request.command, path))
        self.running.wait(30)
        if self.answer is not None:
            status, content, headers = self.answer
        else:
            status, plain = self._answered(request, path, body)
            content, headers = json.dumps(plain).encode(), {}
        try:
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.send_header("content-length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)
        except OSError:
            request.close_connection = True

    def _answered(
        self, request: BaseHTTPRequestHandler, path: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if request.headers.get("x-vault-namespace", "") != self.namespace:
            return 404, {"errors": ["no handler for route"]}
        if path == "auth/approle/login":
            return self._login(body)
        token = request.headers.get("x-vault-token", "")
        known = self.tokens.get(token)
        if known is None or known.get("until", time.monotonic() + 1) < time.monotonic():
            return 403, {"errors": ["permission denied", "invalid token"]}
        if path == "auth/token/lookup-self":
            return 200, {"data": known}
        if path == "auth/token/renew-self":
            known["renewed"] = known.get("renewed", 0) + 1
            return 200, {"auth": {"client_token": token, "lease_duration": 1}}
        if path.startswith("sys/internal/ui/mounts/"):
            return self._mount(path.removeprefix("sys/internal/ui/mounts/"))
        return self._secret(request.command, path, body)

    def _login(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        role = body.get("role_id", "")
        if self.roles.get(role) != body.get("secret_id"):
            return 400, {"errors": ["invalid role or secret ID"]}
        token = f"login-{secrets.token_hex(8)}"
        self.tokens[token] = {"until": time.monotonic() + self.login_seconds}
        auth = {"client_token": token, "lease_duration": self.login_seconds}
        return 200, {"auth": auth}

    def _mount(self, path: str) -> tuple[int, dict[str, Any]]:
        for mount, facts in self.mounts.items():
            if f"{path}/".startswith(mount):
                return 200, {"data": {"path": mount, **facts}}
        return 403, {"errors": ["preflight capability check returned 403"]}

    def _secret(
        self, method: str, path: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if method == "DELETE":
            self.secrets[path] = None
        elif method in ("POST", "PUT"):
            self.secrets[path] = body
        if method != "GET":
            return 200, {"data": {}}
        if path not in self.secrets:
            return 404, {"errors": []}
        found = self.secrets[path]
        if found is None:
            return 404, {"data": {"data": None, "metadata": {"deletion_time": "now"}}}
        if path.startswith("kv1/"):
            return 200, {"data": found, "lease_duration": int(found.get("ttl", 0))}
        return 200, {"data": {"data": found["data"], "metadata": {"version": 1}}}
