"""Streams that are begun in the pages from what is at a place."""

from __future__ import annotations

import html
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.checkpoints.conftest import Topic
from tests.ui.conftest import SCRIPT, World
from tests.ui.test_editor import Editor, fields_of, person

from streamfactory.transfer import discovering

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["person"]


def looked(person: Editor, **form: str) -> str:
    """The page of what is at a place."""
    status, where = person.post("/edit/look", form)
    assert status == 303, where
    return html.unescape(person.get(where))


def action(page: str, path: str) -> dict[str, str]:
    """What the form of a page sends."""
    return fields_of(page.split(f'action="{path}"')[1].split("</form>", maxsplit=1)[0])


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = pa.table({"id": [1, 2], SCRIPT: [SCRIPT, "b"]})
    pq.write_table(rows, folder / "a.parquet")
    return folder


def test_a_folder_becomes_a_stream_whose_rows_are_seen_before(
    person: Editor, parquet: Path
) -> None:
    index = person.get("/edit/")
    assert "<option>iceberg</option>" in index
    assert "<option>memory</option>" not in index.split('name="type"')[2]
    status, where = person.post("/edit/look", {"name": "rows", "place": str(parquet)})
    assert status == 303
    raw = person.get(where)
    assert SCRIPT not in raw
    assert "First rows" in raw
    assert "1 partition, 2 offsets" in raw
    form = action(raw, "/edit/text")
    assert f'"stream.file.path" = "{parquet}"' in form["text"]
    _, shown = person.post("/edit/text", {**form, "check": ""})
    assert 'name="set stream.file.path"' in shown  # the form
    key = person.plan("/edit/text", form)
    assert person.confirm(key) == (303, "/stream?name=rows")
    assert (person.folder / "rows.toml").exists()


def test_one_topic_of_a_place_or_of_a_known_server_is_chosen(
    person: Editor, small: World
) -> None:
    for more in ("letters", f"a&{SCRIPT[:3]}"):
        Topic(small.folder / "topics", more).write(1, 1)
    place = str(small.folder / "topics")
    for given in ({"place": place}, {"like": "clicks"}):
        _, where = person.post("/edit/look", {"name": "more", **given})
        raw = person.get(where)
        assert "There are 3 topics" in raw
        assert SCRIPT[:3] not in raw
        chosen = action(raw, "/edit/look") | {"topic": "letters"}
        page = looked(person, **chosen)
        assert '"stream.file.topic.name" = "letters"' in page
        assert "First rows" in page


def test_text_files_show_rows_and_how_they_are_published(
    person: Editor, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(f"id,text\n7,{SCRIPT}\n")
    _, where = person.post("/edit/look", {"name": "t", "place": str(tmp_path)})
    raw = person.get(where)
    assert SCRIPT not in raw
    assert f"streamfactory publish t {tmp_path}/*.csv --writer t" in raw
    assert "<td" in raw.split("First rows")[1]
    key = person.plan("/edit/text", action(raw, "/edit/text"))
    assert "schema = &#34;id bigint, text string&#34;" in person.get(
        "/edit/change", change=key
    )


def test_a_place_that_cannot_be_read_says_why(
    person: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, refused in {
        f"{tmp_path}/pipe": "neither a file nor a folder",
        f"{tmp_path}/{SCRIPT}": "there is no file",
        "s3://bucket/x": "cannot be recognised",
    }.items():
        status, where = person.post("/edit/look", {"name": "x", "place": place})
        assert status == 303
        raw = person.get(where)
        assert refused in html.unescape(raw)
        assert SCRIPT not in raw
        assert "Remedy" in raw
    block, free = os.pipe()
    monkeypatch.setattr(discovering, "SECONDS", -0.4)
    monkeypatch.setattr(discovering, "_discover", lambda _: os.read(block, 1))
    page = looked(person, name="x", place="slow")
    os.write(free, b"x")
    assert "no answer within" in page


def test_names_places_and_secrets_are_checked_before_anything_is_looked_at(
    person: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovering, "_discover", None)
    for form in (
        {"name": "../x", "place": "/tmp"},
        {"name": "x"},
        {"name": "x", "place": "/tmp", "like": "clicks"},
        {"name": "x", "place": "s3://key:hunter2@bucket/x"},
        {"name": "x", "place": "/" * 5000},
        {"name": "x", "place": "/tmp", "csrf": "other"},
    ):
        status, page = person.post("/edit/look", form)
        assert status in (400, 403), form
        assert "hunter2" not in page
    assert person.post("/edit/look", {"name": "x", "like": "nobody"})[0] == 404
    assert person.client.get("/edit/found", change="other").status_code == 400


def test_a_connection_with_literal_secrets_is_not_copied(
    person: Editor, small: World
) -> None:
    small.topic.options["stream.file.storage.secret.key"] = "hunter2"
    (person.folder / "clicks.toml").unlink(missing_ok=True)
    small.topic.file(person.folder)
    page = looked(person, name="x", like="clicks", topic="clicks")
    assert "hunter2" not in page
    assert "has literal secrets" in page
