"""Programs that are killed: one posts epochs, the other one receives webhooks.

Run as ``python killed_http_programs.py post|receive PROPERTIES FOLDER``: the properties
as JSON. Each prints one line when it runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import streamfactory

from streamfactory_http.webhooks import Webhooks

EACH = 5
"""Rows of an epoch."""


def post(properties: dict[str, str], folder: Path) -> None:
    """Post epochs of numbers, from the one behind the last that is known as posted."""
    state, part = folder / "epoch", folder / "epoch.part"
    epoch = int(state.read_text()) if state.exists() else 0
    with streamfactory.open_sink(properties) as sink:
        print("ready", flush=True)
        while True:
            numbers = range(EACH * epoch, EACH * (epoch + 1))
            values = [str(number).encode() for number in numbers]
            rows = pa.record_batch({"value": pa.array(values, pa.binary())})
            sink.put(rows, writer_id="w", epoch=epoch)
            epoch += 1
            part.write_text(str(epoch))
            part.rename(state)
            # Asked last: the epoch that a killed program has begun is posted again.
            if (folder / "stop").exists():
                break


def receive(properties: dict[str, str], folder: Path) -> None:
    """Serve the application by the server of the standard library."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    with streamfactory.open_sink(properties) as sink:
        app = Webhooks(sink, secret=None)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answered = asyncio.run_coroutine_threadsafe(ask(app, body), loop)
                self.send_response(answered.result())
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_address[1], flush=True)
        server.serve_forever()


async def ask(app: Webhooks, body: bytes) -> int:
    """The status that the application answers."""
    sent: list[Any] = []

    async def take() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    await app(scope, take, send)
    status: int = sent[0]["status"]
    return status


if __name__ == "__main__":
    {"post": post, "receive": receive}[sys.argv[1]](
        json.loads(sys.argv[2]), Path(sys.argv[3])
    )
