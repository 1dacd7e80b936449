"""Programs that post and receive are killed at random moments: no row is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import streamfactory

ROUNDS = int(os.environ.get("ROUNDS", "6"))
SEED = int(os.environ.get("SEED", "0"))
PROGRAM = Path(__file__).with_name("killed_http_programs.py")
EACH = 5
LONGEST = 0.4
"""Seconds that one that is killed may have run."""


def start(
    what: str, properties: dict[str, str], folder: Path
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a program; it, and the line that it prints when it runs."""
    command = [sys.executable, str(PROGRAM), what, json.dumps(properties), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line
    return process, line.decode().strip()


def end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


def report(found: Counter[int], count: int) -> None:
    lost = len(set(range(count)) - found.keys())
    twice = sum(found.values()) - len(found)
    print(f"kills={ROUNDS} lost={lost} twice={twice} rows={count}")
    assert lost == 0
    assert set(found) == set(range(count))


class Endpoint(ThreadingHTTPServer):
    """An endpoint that answers late at times, and stores each key once."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.draw = random.Random(SEED)
        self.bodies: dict[str, bytes] = {}
        self.requests = 0
        self.requested = threading.Event()

    def wait_for_request(self) -> None:
        """Return when there is another request."""
        self.requested.clear()
        assert self.requested.wait(60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:  # its sender was killed: no request
            self.close_connection = True
            return
        key = self.headers["idempotency-key"]
        with self.server.lock:
            self.server.requests += 1
            wait = self.server.draw.uniform(0.0, 0.02)
            before = self.server.bodies.setdefault(key, body)
        self.server.requested.set()
        assert before == body
        time.sleep(wait)
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.shutdown()
            thread.join()


def test_a_poster_that_is_killed_posts_each_batch(tmp_path: Path) -> None:
    """An endpoint that knows keys again has each row once."""
    draw = random.Random(SEED)
    with serving() as endpoint:
        properties = {
            "streamType": "http",
            "stream.http.url": endpoint.url,
            "stream.http.batch.messages": "2",
            "stream.http.decoder.class.name": "raw",
        }
        for _ in range(ROUNDS):
            process, _ = start("post", properties, tmp_path)
            if draw.random() < 0.7:
                endpoint.wait_for_request()
            time.sleep(draw.uniform(0.0, LONGEST))
            end(process)
        process, _ = start("post", properties, tmp_path)
        (tmp_path / "stop").touch()
        assert process.wait(60) == 0
        end(process)
        repeated = endpoint.requests - len(endpoint.bodies)
        lines = [n for body in endpoint.bodies.values() for n in body.splitlines()]
    found = Counter(map(int, lines))
    report(found, EACH * int((tmp_path / "epoch").read_text()))
    assert max(found.values()) == 1
    print(f"{repeated} requests were repeated, under the same keys")
    assert len(found) >= ROUNDS


def test_webhooks_of_a_receiver_that_is_killed_are_stored(tmp_path: Path) -> None:
    """A sender repeats what was not answered with 202: that may be there twice."""
    draw = random.Random(SEED + 1)
    log = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "hooks"),
        "stream.file.topic.name": "hooks",
    }
    sender = Sender()
    try:
        for _ in range(ROUNDS):
            process, port = start("receive", log, tmp_path)
            sender.port = int(port)
            if draw.random() < 0.7:
                sender.wait_for_answer()
            time.sleep(draw.uniform(0.0, LONGEST))
            end(process)
        process, port = start("receive", log, tmp_path)
        sender.port = int(port)
        sender.stop()
    finally:
        sender.stop()
    end(process)
    with streamfactory.open(log, start="earliest") as stream:
        bodies = stream.to_reader().read_all()["body"].to_pylist()
    found = Counter(map(int, bodies))
    report(found, sender.count)
    assert sum(found.values()) - len(found) <= sender.unanswered
    assert sender.count > ROUNDS // 2


class Sender:
    """Sends numbers, each until it is answered with 202."""

    def __init__(self) -> None:
        self.port: int | None = None
        self.count = 0
        self.unanswered = 0
        self._answered = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_answer(self) -> None:
        """Return when another number is stored."""
        self._answered.clear()
        assert self._answered.wait(60)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _run(self) -> None:
        with httpx.Client(timeout=20) as client:
            while self.port is None and not self._stopped.wait(0.01):
                pass
            while not self._stopped.is_set():
                self._send(client, str(self.count).encode())
                self.count += 1
                self._answered.set()

    def _send(self, client: httpx.Client, body: bytes) -> None:
        while True:
            try:
                url = f"http://127.0.0.1:{self.port}/"
                if client.post(url, content=body).status_code == 202:
                    return
            except httpx.TransportError:
                time.sleep(0.01)
            self.unanswered += 1
