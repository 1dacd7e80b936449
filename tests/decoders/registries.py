"""A Schema Registry on a real socket, which can be made to misbehave."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Server:
    """What the registry holds, and how it misbehaves."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    user: str | None = None
    answer: Callable[[str], tuple[int, bytes] | None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)

    def register(self, subject: str, body: dict[str, Any]) -> int:
        wanted = {
            "schema": body["schema"],
            "schemaType": body.get("schemaType", "AVRO"),
            "references": body.get("references", []),
        }
        known = [number for number, held in self.schemas.items() if held == wanted]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = wanted
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def version(self, subject: str, word: str) -> dict[str, Any] | None:
        versions = self.subjects.get(subject, [])
        at = len(versions) if word == "latest" else int(word)
        if not 1 <= at <= len(versions):
            return None
        number = versions[at - 1]
        found = {"subject": subject, "version": at, "id": number}
        return found | self.schemas[number]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self._handle(None)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self._handle(json.loads(self.rfile.read(length)))

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self, body: Any) -> None:
        held: Server = self.server.held
        path = self.path.partition("?")[0]
        held.asked.append(f"{self.command} {path}")
        special = held.answer(path)
        if special is not None:
            self._send(*special)
            return
        token = base64.b64encode((held.user or "").encode()).decode()
        if held.user and self.headers.get("Authorization") != f"Basic {token}":
            self._send(401, b'{"error_code": 401, "message": "no"}')
            return
        found = self._find(held, [part for part in path.split("/") if part], body)
        if found is None:
            self._send(404, b'{"error_code": 40403, "message": "not found"}')
        else:
            self._send(200, json.dumps(found).encode())

    def _find(self, held: Server, parts: list[str], body: Any) -> Any:
        if parts[:2] == ["schemas", "ids"]:
            return held.schemas.get(int(parts[2]))
        if parts[0] != "subjects":
            return None  # as a registry that is older than the question
        subject = parts[1]
        if body is None:
            return held.version(subject, parts[3])
        if len(parts) == 3:
            return {"id": held.register(subject, body)}
        for at, number in enumerate(held.subjects.get(subject, []), 1):
            if held.schemas[number]["schema"] == body["schema"]:
                return held.version(subject, str(at))
        return None

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Server]:
    held = Server()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.held = held  # type: ignore[attr-defined]
    held.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    yield held
    held.stop.set()
    listening.shutdown()
    thread.join(120)
    listening.server_close()
    assert not thread.is_alive()
