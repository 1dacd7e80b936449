"""The pages: forms that a client with a session sends, queries, expressions."""

from __future__ import annotations

import json
import os
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.checkpoints.conftest import Topic
from tests.checkpoints.test_offsets_and_lag import grouped, store_of
from tests.fuzz import mutating
from tests.fuzz.entries.base import VARIED, Entry

from streamfactory.engines.search.process import Evaluator, Refused
from streamfactory.spi import MisuseError
from streamfactory.ui.access import Access, Session
from streamfactory.ui.app import create_app
from streamfactory.ui.editing.applying import Edits
from streamfactory.ui.editing.files import digest_of
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.recording import Recorder
from streamfactory.ui.runs import Runs
from streamfactory.ui.shown import ShownEdit
from streamfactory.ui.site import Site
from streamfactory.wiring.streams.checkpoints import merged

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

_TOKEN: Final = "correct-horse-battery-staple"
_SCRIPT: Final = "<script>alert(1)</script>"
_PLACES: Final = (
    "earliest",
    "latest",
    "0",
    "2",
    "0=1 1=0",
    "1=latest",
    "2d",
    json.dumps({"clicks": {"0": 2, "1": 1}}),
    "2026-01-01T00:00:00Z",
)
_WORDS: Final = (_SCRIPT, "clicks", "../clicks", "", "x" * 300, "\0", "é\u202e", "a b")
_PIPELINE: Final = """
name = "delays"
checkpoint = "{}"
[source]
stream = "clicks"
[[sinks]]
stream = "hours"
"""
_SECRET: Final = "hunter2-hunter2"
_DEFINITION: Final = """\
name = "edited"
[properties]
streamType = "memory"
"stream.memory.topic.name" = "edited"
"""
_GOOD: Final = 0.6
"""How many forms and expressions are sound."""


class PageActions(Entry):
    """Forms of all actions, with the secret of a session and without."""

    NAME = "page-actions"
    SHARE = 2

    def prepare(self) -> None:
        topic = Topic(self.folder / "topics", "clicks")
        topic.write(4, 2)
        catalogue = self.folder / "configs" / "streams"
        catalogue.mkdir(parents=True)
        os.environ["STREAMFACTORY_STREAMS"] = str(catalogue)
        grouped(topic, self.folder, catalogue)
        Topic(self.folder / "topics", "hours").file(catalogue)
        self._pipeline = self.folder / "delays.toml"
        self._pipeline.write_text(_PIPELINE.format(self.folder / "kept"))
        self._access = access = Access("127.0.0.1:9816", _TOKEN)
        lookups = Lookups()
        files = (self._pipeline,)
        self._runs = Runs(("/bin/sh", "-c", "cat", "run"))  # ends with its input
        self._edited = catalogue / "edited.toml"
        self._edited.write_text(_DEFINITION)
        site = Site(
            access,
            Recorder(lookups, 15.0, files),
            lookups,
            files,
            runs=self._runs,
            edits=Edits(allowed=True),
        )
        self._client = create_app(site).test_client()
        self._secret = ""
        self._before = self._position()
        self._files = {one.name for one in self.folder.iterdir()}
        self._last = self._runs.last(self._pipeline)

    def close(self) -> None:
        self._runs.close()

    def make(self, chance: random.Random) -> bytes:
        path, form = "/actions/offsets", self._move(chance)
        if chance.random() < 0.4:
            form = {"change": "@"}
            if chance.random() < 0.3:
                path = chance.choice(("/actions/run", "/edit/change"))
        elif chance.random() < 0.3:
            path, form = "/actions/topic", self._topic(chance)
        elif chance.random() < 0.3:
            path, form = self._edit(chance)
        elif chance.random() < 0.15:
            path, form = "/actions/run", self._run(chance)
        elif chance.random() < 0.2:
            path, form = chance.choice(
                (
                    ("/actions/jobs/1/stop", {}),
                    ("/actions/replay", {"stream": "letters", "to": "clicks"}),
                    ("/log-in", {"token": chance.choice((_TOKEN, "wrong"))}),
                )
            )
        if chance.random() > _GOOD:
            for _ in range(chance.choice((1, 1, 2)) if form else 0):
                key = chance.choice(list(form))
                form[key] = self._damaged(form[key], chance)
        form["csrf"] = "@" if chance.random() < 0.95 else chance.choice(_WORDS)
        data = urllib.parse.urlencode(form).encode()
        if chance.random() < 0.05:
            data = mutating.text_of(data, chance)
        return path.encode() + b"\n" + data

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        path, _, body = data.partition(b"\n")
        session = self._logged_in()
        kept = session.changes
        body = body.replace(b"csrf=%40", b"csrf=" + session.csrf.encode())
        self._edited.write_text(_DEFINITION)  # an input may have deleted it
        digest = digest_of(_DEFINITION.encode())
        body = body.replace(b"digest=%40", b"digest=" + digest.encode())
        edits = path.startswith(b"/edit")
        fit = [one for one in kept if isinstance(one, ShownEdit) is edits] or [*kept]
        if fit:
            body = body.replace(b"change=%40", b"change=" + fit[-1].key.encode())
        answer = self._client.post(
            urllib.parse.quote(path.decode("utf-8", "replace") or "/"),
            data=body,
            content_type="application/x-www-form-urlencoded",
            base_url="http://localhost:9816",
        )
        run = self._runs.last(self._pipeline)
        if run is not self._last:
            assert answer.status_code == 303, "a refused action started a pipeline"
            assert b"change=" in body, "a run was not shown before"
        self._last = run
        text = answer.get_data(as_text=True)
        strays = {one.name for one in self.folder.iterdir()} - self._files
        assert not strays, f"files were written beside the catalogue: {strays}"
        assert _SCRIPT not in text, "a script is in the page"
        assert _TOKEN not in text, "the token is in the page"
        assert _SECRET not in text, "a literal secret is in the page"
        assert answer.status_code not in (500, 501), "the page failed"
        assert "\r" not in str(answer.headers.get("Location", "")), "a header was added"
        after = self._position()
        if answer.status_code >= 400:
            assert after == self._before, "a refused action changed a position"
            raise MisuseError(f"status {answer.status_code}")
        if after != self._before:
            assert kept or b"change=" in body, "a change was not shown before"
        self._before = after
        yield from ()

    def _logged_in(self) -> Session:
        """The session of the client; a new one where log-ins of inputs ended it."""
        found = self._access.session(self._secret)
        if found is None:
            self._secret = self._access.log_in(_TOKEN) or ""
            found = self._access.session(self._secret)
            assert found is not None
        # An input may have logged in.
        self._client.set_cookie("streamfactory-9816", self._secret, domain="localhost")
        return found

    def _topic(self, chance: random.Random) -> dict[str, str]:
        kind, text = chance.choice(
            (
                ("produce", '{"id": 5, "_partition": 1}'),
                ("grow", "3"),
                ("truncate", "0=1"),
                ("delete", "clicks"),
                ("create", "id bigint, name string|3"),
            )
        )
        # Shown only: `change` confirms what an input before it was shown.
        return {"kind": kind, "stream": "clicks", "text": text, "format": "json"}

    def _edit(self, chance: random.Random) -> tuple[str, dict[str, str]]:
        text = _DEFINITION
        if chance.random() < 0.2:
            text += f'"stream.memory.api.key" = "{_SECRET}"\n'
        name = chance.choice(("edited.toml", "", "new.toml", "../delays.toml"))
        form = {"kind": "stream", "file": name, "text": text, "digest": "@"}
        path = chance.choice(("form", "text", "text", "delete", "undo"))
        if path == "form":
            form |= {"name": "edited", "set stream.memory.partitions": "3"}
        if chance.random() < 0.7:
            form["show"] = ""
        return f"/edit/{path}", form

    def _run(self, chance: random.Random) -> dict[str, str]:
        kind = chance.choice(("start", "start", "stop", "restart"))
        pace = chance.choice(("configured", "once", "continuous"))
        return {"kind": kind, "pipeline": "delays", "pace": pace}

    def _move(self, chance: random.Random) -> dict[str, str]:
        place = chance.choice(_PLACES)
        return {"stream": "clicks", "group": "billing", "place": place}

    def _damaged(self, text: str, chance: random.Random) -> str:
        if chance.random() < 0.4:
            return chance.choice(_WORDS)
        return mutating.text_of(text.encode(), chance).decode("utf-8", "replace")

    def _position(self) -> dict[Any, int]:
        return dict(merged(store_of(self.folder).load("billing")).items())


_QUERIES: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("/messages", {"stream": "clicks", "count": "3"}),
    ("/messages", {"stream": "clicks", "from": "0=1 1=0", "direction": "forward"}),
    ("/messages", {"stream": "clicks", "from": '{"clicks":{"0":2}}', "as": "raw"}),
    ("/messages", {"stream": "clicks", "partition": "1:clicks", "from": "2h"}),
    (
        "/message",
        {"stream": "clicks", "topic": "clicks", "partition": "0", "offset": "1"},
    ),
    ("/download", {"stream": "clicks", "format": "csv", "from": "1"}),
    ("/download", {"stream": "clicks", "format": "parquet"}),
    ("/follow", {"stream": "clicks", "where": "id > 1"}),
    ("/map", {}),
    ("/", {"q": "cli", "sort": "size", "page": "1"}),
    ("/stream", {"name": "clicks", "set": "only"}),
)
"""Without expressions, each of which starts a process: see `SearchExpressions`."""


class PageQueries(Entry):
    """Queries of pages that anybody who may read can ask for."""

    NAME = "page-queries"

    def prepare(self) -> None:
        topic = Topic(self.folder / "topics", "clicks")
        topic.write(4, 2)
        catalogue = self.folder / "configs" / "streams"
        catalogue.mkdir(parents=True)
        os.environ["STREAMFACTORY_STREAMS"] = str(catalogue)
        topic.file(catalogue)
        lookups = Lookups(wait=30.0, fresh=0.0)
        access = Access("127.0.0.1:9816")
        site = Site(access, Recorder(lookups, 15.0, ()), lookups)
        self._client = create_app(site).test_client()

    def make(self, chance: random.Random) -> bytes:
        path, sound = chance.choice(_QUERIES)
        query = dict(sound)
        for key in list(query) if chance.random() > VARIED else ():
            # Most arguments may have any value: one damaged is often accepted.
            if chance.random() < 0.4:
                query[key] = chance.choice(_WORDS)
            else:
                damaged = mutating.text_of(query[key].encode(), chance)
                query[key] = damaged.decode("utf-8", "replace")
        return f"{path}?{urllib.parse.urlencode(query)}".encode()

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        answer = self._client.get(data.decode(), base_url="http://localhost:9816")
        text = answer.get_data().decode("utf-8", "replace")  # Parquet is no text
        assert _SCRIPT not in text, "a script is in the page"
        assert answer.status_code not in (500, 501), "the page failed"
        if answer.status_code >= 400 or 'role="alert"' in text:
            raise MisuseError(f"status {answer.status_code}")
        yield from ()


_EXPRESSIONS: Final = (
    "id > 1 AND name LIKE 'a%'",
    "upper(name) = 'A' OR id IN (1, 2, 3)",
    "nested.x IS NULL AND CASE WHEN id = 1 THEN true ELSE false END",
    "list_contains(list_transform([1, 2], lambda v: v + id), 3)",
    "regexp_matches(name, '^a+$') AND id::VARCHAR ~ '[0-9]'",
    "json_extract_string('{\"a\": 1}', '$.a') = '1'",
    "now() > TIMESTAMP '2026-01-01' - INTERVAL 2 DAY",
    "abs(id) BETWEEN 0 AND 1e3 AND NOT (name IS NULL)",
)
_READ_ELSEWHERE: Final = (
    "read_text", "glob", "COPY", "ATTACH", "rows", "FROM", "SELECT", "$1", ";", "--",
    "sum(id)", "*", "getenv('HOME')", "COLUMNS('x')", "OVER ()", "unnest([1])",
)  # fmt: skip


class SearchExpressions(Entry):
    """Expressions of searches, in the engine as their process has it."""

    NAME = "search-expressions"

    def prepare(self) -> None:
        self._evaluator = Evaluator()
        self._rows = pa.record_batch(
            {
                "id": [1, 2, None],
                "name": ["a", None, "\u202e<b>"],
                "nested": pa.array([{"x": 1}, None, {"x": None}]),
            }
        )

    def make(self, chance: random.Random) -> bytes:
        text = chance.choice(_EXPRESSIONS)
        if chance.random() > _GOOD:
            if chance.random() < 0.4:
                words = text.split(" ")
                at = chance.randrange(len(words) + 1)
                words.insert(at, chance.choice(_READ_ELSEWHERE))
                return " ".join(words).encode()
            return mutating.text_of(text.encode(), chance)
        return text.encode()

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        text = data.decode("utf-8", "replace")
        try:
            self._evaluator.prepare(text, self._rows.schema.names)
            hits = self._evaluator.evaluate(self._rows)
        except Refused as error:
            raise MisuseError(str(error)) from None
        assert len(hits) == self._rows.num_rows
        assert set(hits) <= {0, 1}
        yield from ()
