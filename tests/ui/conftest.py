"""A catalogue with streams, groups, dead letters and a pipeline, and its pages."""

from __future__ import annotations

import http.client
import time
import urllib.parse
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.checkpoints.conftest import Topic
from tests.checkpoints.test_checkpoint_commands import pipeline
from tests.checkpoints.test_offsets_and_lag import grouped, ran_pipeline

from streamfactory.transfer.auditing import AuditTrail
from streamfactory.ui.access import Access
from streamfactory.ui.app import create_app
from streamfactory.ui.editing.applying import Edits
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.recording import Recorder
from streamfactory.ui.server import PageServer
from streamfactory.ui.settings import page_settings
from streamfactory.ui.site import Site
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from werkzeug.test import TestResponse

    from streamfactory.spi import StreamConfig

TOKEN = "correct-horse-battery-staple"
PLACE = "http://localhost:9816"
"""Where clients call the application without a server."""
SCRIPT = "<script>alert(1)</script>"
HOSTILE = {
    "script": f"{SCRIPT}<img src=x onerror=alert(1)>".encode(),
    "broken": b"\xff\xfe\x00 not UTF-8",
    "control": b"a\x00b\x1b[31mred\x07\r\nnext",
    "direction": "user\u202etxt.exe\u2066\u200b".encode(),
    "template": b"{{ 7 * 7 }} {% raw %} ${7*7}",
    "attribute": b'" onmouseover="alert(1)" x=\'',
    "huge": b"x" * 3_000_000,
    "empty": b"",
}
"""Payloads of messages that a page shows."""


@dataclass
class Page:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Browser:
    """A client that keeps cookies, and sends forms as a browser does."""

    location: str
    cookies: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    """Of locations with https."""

    @property
    def place(self) -> str:
        return urllib.parse.urlsplit(self.location).netloc

    def ask(
        self,
        path: str,
        form: dict[str, str] | None = None,
        *,
        method: str | None = None,
        **headers: str,
    ) -> Page:
        connection = self._connection()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            pairs = (f"{name}={value}" for name, value in self.cookies.items())
            sent.setdefault("Cookie", "; ".join(pairs))
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(
                method or ("GET" if form is None else "POST"), path, body, sent
            )
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, rest = cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return Page(answer.status, dict(answer.headers.items()), text)

    def _connection(self) -> http.client.HTTPConnection:
        if self.location.startswith("https:"):
            return http.client.HTTPSConnection(self.place, timeout=30, context=self.tls)
        return http.client.HTTPConnection(self.place, timeout=30)

    def get(self, path: str, **arguments: Any) -> Page:
        """A page whose look-ups have all ended."""
        if arguments:
            path += f"?{urllib.parse.urlencode(arguments)}"
        deadline = time.monotonic() + 60
        while True:
            page = self.ask(path)
            if 'http-equiv="refresh"' not in page.text:
                return page
            assert time.monotonic() < deadline, page.text
            time.sleep(0.05)

    def log_in(self, token: str = TOKEN) -> Page:
        return self.ask("/log-in", {"token": token})

    def csrf(self, page: Page) -> str:
        return page.text.split('name="csrf" value="')[1].split('"')[0]


@dataclass
class World:
    """What the pages are about."""

    folder: Path
    topic: Topic

    @property
    def catalogue(self) -> Path:
        return self.folder / "configs" / "streams"

    def letters(
        self, values: dict[str, bytes], message: str = f"cannot read {SCRIPT}"
    ) -> None:
        """Dead letters of the stream clicks, in the stream letters."""
        made = Topic(self.folder / "topics", "letters")
        made.file(self.catalogue)
        count = len(values)
        columns: dict[str, Any] = {
            "value": list(values.values()),
            "topic": ["clicks"] * count,
            "partition": [0] * count,
            "offset": list(range(count)),
            "error_code": list(values),
            "error_message": [message] * count,
            "failed_at": ["2026-01-01T00:00:00.000000Z"] * count,
            "stream": ["clicks"] * count,
        }
        rows = pa.table(
            {
                one.name: pa.array(columns.get(one.name, [None] * count), one.type)
                for one in DEAD_LETTER_SCHEMA
            }
        )
        partitions = pa.array([0] * count, pa.int32())
        with open_sink(made.options) as sink:
            sink.put(
                rows.append_column("_partition", partitions), writer_id="w", epoch=0
            )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The stream clicks with the group billing, and the pipeline delays."""
    made = World(tmp_path, Topic(tmp_path / "topics", "clicks"))
    made.topic.write(10, 4)
    made.catalogue.mkdir(parents=True)
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(made.catalogue))
    grouped(made.topic, tmp_path, made.catalogue)
    folder = tmp_path / "configs" / "pipelines"
    folder.mkdir()
    with ExitStack() as stack:
        ran_pipeline(made.topic, tmp_path, stack)
    pipeline(tmp_path, made.topic).rename(folder / "delays.toml")
    return made


def settings(**options: str | Path) -> StreamConfig:
    """Settings of the pages, with ``_`` for the dots of their keys."""
    given = {"address": "127.0.0.1:0", **options}
    return page_settings(
        [
            Property(key.replace("_", "."), str(text), "argument")
            for key, text in given.items()
        ]
    )


@pytest.fixture
def serve() -> Iterator[Callable[..., Browser]]:
    """Serves the pages, and answers a client of them."""
    with ExitStack() as stack:

        def start(
            address: str = "127.0.0.1:0", every: float = 15, **options: str | Path
        ) -> Browser:
            config = settings(address=address, **options)
            server = stack.enter_context(PageServer(config, every=every))
            return Browser(server.location)

        yield start


@dataclass
class Client:
    """Calls the application without a server and without a browser."""

    site: Site
    client: Any

    def get(self, path: str, **arguments: Any) -> TestResponse:
        found: TestResponse = self.client.get(
            path, query_string=arguments or None, base_url=PLACE
        )
        return found

    def text(self, path: str, **arguments: Any) -> str:
        return self.get(path, **arguments).get_data(as_text=True)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The stream clicks, without groups and pipelines."""
    made = World(tmp_path, Topic(tmp_path / "topics", "clicks"))
    made.topic.write(10, 4)
    made.catalogue.mkdir(parents=True)
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(made.catalogue))
    made.topic.file(made.catalogue)
    return made


@contextmanager
def application(
    *, edit: bool = False, trail: AuditTrail | None = None, **access: Any
) -> Iterator[Client]:
    """A client of the application, which waits for look-ups until they end."""
    lookups = Lookups(wait=60)
    site = Site(
        Access("127.0.0.1:9816", TOKEN, **access),
        Recorder(lookups, 15.0, ()),
        lookups,
        edits=Edits(allowed=edit),
        trail=trail,
    )
    try:
        yield Client(site, create_app(site).test_client())
    finally:
        site.feeds.stop()


@contextmanager
def recorded(world: World, name: str = "changes") -> Iterator[AuditTrail]:
    """A record of changes in a stream of the catalogue."""
    made = Topic(world.folder / "topics", name)
    made.options["audit.record"] = "true"
    made.file(world.catalogue)
    with AuditTrail(lambda: Catalogue().get(name)) as trail:
        yield trail


@pytest.fixture
def client(small: World) -> Iterator[Client]:
    del small
    with application() as found:
        yield found


@pytest.fixture
def program(world: World) -> Iterator[Client]:
    """A client of a catalogue with a stream, a group, a pipeline and a record."""
    with recorded(world) as trail, application(trail=trail) as found:
        yield found
