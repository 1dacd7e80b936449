"""Who asks the pages, and what is masked for them: headers, tokens, masked rows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.checkpoints.conftest import Topic
from tests.fuzz import mutating
from tests.fuzz.entries.base import Entry

from streamfactory.spi import MisuseError
from streamfactory.spi.users import UserFile
from streamfactory.ui.access import Access
from streamfactory.ui.app import create_app
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.masking import Masker
from streamfactory.ui.people import TABLES
from streamfactory.ui.proxies import Proxy, parse_networks
from streamfactory.ui.recording import Recorder
from streamfactory.ui.site import Site
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.reading.opened import opened_source
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

_SECRET: Final = "a-secret-of-the-proxy-0123456789"
_OWNED: Final = "the-token-of-owner-is-long"
_USERS: Final = f"""
[tokens]
owner = "{_OWNED}"
[streams."*"]
read = ["anna"]
edit = ["owner", "@owners"]
"""
_ANNA: Final = {"X-Forwarded-User": "anna", "X-Proxy-Secret": _SECRET}
_STRANGE: Final = ("owner", "*", "@owners", "(token)", "anna, owner", "\u00e4", "", " ")


class PageHeaders(Entry):
    """Headers that say who asks; nobody becomes the owner but by its secret."""

    NAME = "page-headers"

    def prepare(self) -> None:
        catalogue = self.folder / "configs" / "streams"
        catalogue.mkdir(parents=True)
        os.environ["STREAMFACTORY_STREAMS"] = str(catalogue)
        topic = Topic(self.folder / "topics", "clicks")
        topic.write(1, 1)
        topic.file(catalogue)
        file = self.folder / "users.toml"
        file.write_text(_USERS)
        networks = parse_networks(("127.0.0.1",))
        names = "X-Forwarded-User", "X-Forwarded-Groups", "X-Proxy-Secret"
        access = Access(
            "127.0.0.1:9816",
            file=UserFile(str(file), TABLES, others=True),
            proxy=Proxy(_SECRET, networks, *names),
        )
        lookups = Lookups()
        site = Site(access, Recorder(lookups, 15.0, ()), lookups)
        self._client = create_app(site).test_client()

    def make(self, chance: random.Random) -> bytes:
        headers: dict[str, str] = dict(_ANNA)
        if chance.random() < 0.3:
            headers["X-Forwarded-Groups"] = chance.choice(("team", "a, b", "owners "))
        if chance.random() < 0.5:
            key = chance.choice(list(headers))
            if chance.random() < 0.5:
                headers[key] = chance.choice(_STRANGE)
            else:
                damaged = mutating.text_of(headers[key].encode(), chance)
                headers[key] = damaged.decode("latin-1")
        if chance.random() < 0.2:
            headers["Authorization"] = f"Bearer {chance.choice(('x', _OWNED[:-1]))}"
        return json.dumps(headers).encode()

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        headers: dict[str, str] = json.loads(data)
        try:
            answer = self._client.get(
                "/actions/topic?stream=clicks",
                headers=headers,
                base_url="http://localhost:9816",
            )
        except ValueError as error:  # no header of HTTP
            raise MisuseError(str(error)) from None
        owned = headers.get("X-Proxy-Secret") == _SECRET and (
            headers.get("X-Forwarded-User", "").strip() == "owner"
            or "owners" in headers.get("X-Forwarded-Groups", "")
        )
        assert answer.status_code != 500, "the page failed"
        assert answer.status_code != 200 or owned, "somebody else became the owner"
        self._client.delete_cookie("streamfactory-9816", domain="localhost")
        text = answer.get_data(as_text=True)
        assert _SECRET not in text, "the secret is in the page"
        if "anna may not" not in text and answer.status_code != 200:
            raise MisuseError(f"status {answer.status_code}")
        yield from ()


_PLANTED: Final = "planted-secret-4711"
_MASKS: Final = "note.auth.token=hide, email=hash, phone=cut:3"


class PageMasks(Entry):
    """Rows whose masked parts have a secret, in JSON of any form: it is never shown."""

    NAME = "page-masks"
    TOLERANT = True  # what is no JSON is hidden as a whole

    def prepare(self) -> None:
        topic = Topic(self.folder / "topics", "rows")
        options = {
            **topic.options,
            "mask.columns": _MASKS,
            "mask.key": "a-key-of-hashes-0123456789",
        }
        names = ("note", "email", "phone")
        with open_sink(topic.options) as sink:
            sink.put(pa.table({"id": [1], **{name: [""] for name in names}}))
        with opened_source(from_mapping(options, name="rows")) as source:
            self._masker = Masker(source)

    def make(self, chance: random.Random) -> bytes:
        text = json.dumps(self._note(chance, 0), ensure_ascii=chance.random() < 0.5)
        if chance.random() < 0.2:
            text = json.dumps(text)  # JSON within a text
        if chance.random() < 0.2:
            text = chance.choice(("", " ", "\ufeff", "[", "x")) + text
        if chance.random() < 0.1:
            text += chance.choice((" ", "\n", "}", ",", "\0", text))
        return text.encode("utf-8", "surrogatepass")

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        note = data.decode("utf-8", "replace")
        given = [note, _PLANTED, _PLANTED]
        columns: dict[str, Any] = dict(
            zip(("note", "email", "phone"), ([one] for one in given), strict=True)
        )
        rows = self._masker.rows(pa.record_batch({"id": [1], **columns}))
        shown = json.dumps(rows.to_pylist()).lower()
        assert _PLANTED not in shown, "a masked value is shown"
        assert "4711" not in shown, "a part of a masked value is shown"
        assert self._masker.searched(rows).schema.names == ["id"]
        yield rows

    def _note(self, chance: random.Random, depth: int) -> Any:
        """A value that has the secret at the masked path, or not at all."""
        kind = chance.random()
        if depth < 3 and kind < 0.2:
            return [self._note(chance, depth + 1) for _ in range(chance.randrange(3))]
        name = chance.choice(("auth", "AUTH", "Auth"))
        inner: Any = {chance.choice(("token", "Token")): self._leaf(chance), "ok": 1}
        if kind < 0.4:
            inner = [inner, {"other": None}, inner]
        elif kind < 0.6:
            inner = json.dumps(inner)
        return {name: inner, "id": chance.choice((1, None, 1.5, True))}

    def _leaf(self, chance: random.Random) -> Any:
        return chance.choice(
            (_PLANTED, [_PLANTED], {"a": _PLANTED}, {_PLANTED: 1}, None, 4711)
        )
