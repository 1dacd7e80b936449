"""Streams and pipelines that are made and changed in the pages."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.ui.conftest import PLACE, SCRIPT, TOKEN, Client, World

from streamfactory.ui.access import Access
from streamfactory.ui.app import create_app
from streamfactory.ui.editing.applying import Edits
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.recording import Recorder
from streamfactory.ui.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = """\
# Kept by the web team
name = "orders"
description = "Orders"

[properties]
streamType = "memory"   # in one process
"out.of.range" = "earliest"

[properties.stream.memory]
"topic.name" = "orders"  # the topic
partitions = 4
"""


@dataclass
class Editor:
    """A client that may edit."""

    site: Site
    client: Client
    csrf: str
    folder: Path
    """The catalogue."""

    def get(self, path: str, **arguments: str) -> str:
        answer = self.client.get(path, **arguments)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return answer.get_data(as_text=True)

    def post(self, path: str, form: dict[str, str]) -> tuple[int, str]:
        answer = self.client.client.post(
            path, data={"csrf": self.csrf, **form}, base_url=PLACE
        )
        location = answer.headers.get("Location", "")
        return answer.status_code, location or answer.get_data(as_text=True)

    def opened(self, page: str, *, text: bool = True) -> dict[str, str]:
        """The fields that a browser would send of a page's form."""
        part = page.split('action="/edit/text"' if text else 'action="/edit/form"')[1]
        return fields_of(part.split("</form>")[0])

    def plan(self, path: str, form: dict[str, str]) -> str:
        """The key of the change that is shown."""
        status, where = self.post(path, {**form, "show": ""})
        assert status == 303, where
        return where.rpartition("=")[2]

    def confirm(self, key: str) -> tuple[int, str]:
        return self.post("/edit/change", {"change": key})

    def edit(self, name: str, text: str) -> str:
        """The key of a change of a file's text."""
        form = self.opened(self.get("/edit/file", kind="stream", file=name))
        return self.plan("/edit/text", {**form, "text": text})


def fields_of(form: str) -> dict[str, str]:
    """The values of a form's fields, as a browser reads them."""
    found = {}
    for tag in re.findall(r"<(?:input|textarea|select)[^>]*>", form):
        name = re.search(r'name="([^"]*)"', tag)
        if name is None:
            continue
        rest = form.split(tag, 1)[1]
        if tag.startswith("<textarea"):
            value = rest.partition("</textarea>")[0].removeprefix("\n")
        elif tag.startswith("<select"):
            options = rest.partition("</select>")[0]
            chosen = re.search(r'value="([^"]*)" selected', options)
            value = "" if chosen is None else chosen[1]
        else:
            given = re.search(r'value="([^"]*)"', tag)
            value = "" if given is None else given[1]
        found[html.unescape(name[1])] = html.unescape(value).replace("\n", "\r\n")
    return found


@pytest.fixture
def person(small: World) -> Iterator[Editor]:
    (small.catalogue / "orders.toml").write_text(TEXT)
    access, lookups = Access("127.0.0.1:9816", TOKEN), Lookups(wait=60)
    recorder = Recorder(lookups, 15.0, ())
    site = Site(access, recorder, lookups, edits=Edits(allowed=True))
    client = Client(site, create_app(site).test_client())
    secret = access.log_in(TOKEN)
    session = access.session(secret)
    assert secret is not None
    assert session is not None
    client.client.set_cookie("streamfactory-9816", secret, domain="localhost")
    yield Editor(site, client, session.csrf, small.catalogue)
    site.feeds.stop()


# --- the form ---------------------------------------------------------------------


def test_a_stream_is_created_in_a_form_checked_saved_and_shown(
    person: Editor, small: World, caplog: pytest.LogCaptureFixture
) -> None:
    page = person.get("/edit/new", kind="stream", name="copies", type="file")
    assert "stream.file.path: is required" in html.unescape(page)
    form = person.opened(page, text=False)
    form["set stream.file.path"] = small.topic.options["stream.file.path"]
    form["set stream.file.topic.name"] = "clicks"
    form["set stream.file.partitions"] = "2"
    form["set metadata.columns"] = "true"
    form["description"] = f'All "clicks" {SCRIPT}'
    key = person.plan("/edit/form", form)
    shown = html.unescape(person.get("/edit/change", change=key))
    assert '+"metadata.columns" = true' in shown
    assert "partitions, 14 offsets" in shown  # the check reached the topic
    assert "First rows" in shown
    assert not (person.folder / "copies.toml").exists()
    assert person.confirm(key) == (303, "/stream?name=copies")
    assert person.confirm(key)[0] == 400  # once
    saved = (person.folder / "copies.toml").read_text()
    assert '"stream.file.partitions"' not in saved  # in the table of the type
    assert "partitions = 2" in saved
    assert "Type</dt><dd>file" in person.get("/stream", name="copies")
    said = [text for text in caplog.messages if text.startswith("stream copies")]
    assert said == [
        "stream copies: is being created as copies.toml by 127.0.0.1",
        "stream copies: was created as copies.toml by 127.0.0.1",
    ]


def test_comments_and_order_are_kept(person: Editor) -> None:
    form = person.opened(
        person.get("/edit/file", kind="stream", file="orders.toml"), text=False
    )
    form |= {"set stream.memory.topic.name": "sold", "set out.of.range": ""}
    form["set stream.memory.retention.rows"] = "500"
    assert person.confirm(person.plan("/edit/form", form))[0] == 303
    expected = TEXT.replace('"out.of.range" = "earliest"\n', "")
    expected = expected.replace('"topic.name" = "orders" ', '"topic.name" = "sold" ')
    assert (person.folder / "orders.toml").read_text() == (
        f'{expected}"retention.rows" = 500\n'
    )
