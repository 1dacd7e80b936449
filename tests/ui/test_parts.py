"""Pipelines whose parts are lists in the pages."""

from __future__ import annotations

import html
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.ui.conftest import SCRIPT, World
from tests.ui.test_editor import Editor, fields_of, person

from streamfactory.spi import MisuseError
from streamfactory.ui.editing.files import MOST_BYTES
from streamfactory.ui.editing.parts import MOST_PARTS, parts_of, with_parts

__all__ = ["person"]

PATH = Path("daily.toml")
TEXT = '''\
# Every day
name = "daily"
checkpoint = "kept"

# From the shop
[source]
stream = "clicks"  # all of them
startingOffsets = "earliest"

# The first step
[[steps]]
id = "first"
sql = """
-- [[steps]]
select * from input
"""
watermark.column = "at"

[[steps]]
id = "second"
sql = "select id from first" # short

[spark]
"spark.sql.shuffle.partitions" = 2

# Where it goes
[[sinks]]
stream = "orders"
'''


def acted(text: str, action: str, **fields: str) -> str:
    return with_parts(PATH, text, fields, action)


def steps(text: str) -> list[str]:
    return [one["id"] for one in tomllib.loads(text).get("steps", ())]


def test_a_part_moves_with_its_comments() -> None:
    moved = acted(TEXT, "down steps 0")
    assert steps(moved) == ["second", "first"]
    assert '# The first step\n[[steps]]\nid = "first"' in moved
    assert moved.index("# short") < moved.index("# The first step")
    assert acted(moved, "up steps 1").split() == TEXT.split()
    for action in ("up steps 0", "down steps 1", "up sinks 0", "down sources 0"):
        with pytest.raises(MisuseError, match="end of its list"):
            acted(TEXT, action)


def test_a_part_is_removed_and_added() -> None:
    left = acted(TEXT, "remove steps 0")
    assert steps(left) == ["second"]
    assert "The first step" not in left
    assert "# From the shop" in left
    assert "steps" not in tomllib.loads(acted(left, "remove steps 0"))
    more = acted(TEXT, "add steps")
    assert steps(more) == ["first", "second", ""]
    assert more.index('id = ""') < more.index("[spark]")
    assert tomllib.loads(acted(TEXT, "add lookups"))["lookups"][0]["key"] == ""
    assert "source" not in tomllib.loads(acted(TEXT, "remove sources 0"))


def test_a_second_source_makes_a_list_of_the_same_ids() -> None:
    more = acted(TEXT, "add sources")
    body = tomllib.loads(more)
    assert [one.get("id") for one in body["sources"]] == ["input", None]
    assert "# From the shop\n[[sources]]" in more
    assert steps(acted(more, "remove sources 1")) == ["first", "second"]


def test_fields_change_values_and_keep_the_rest() -> None:
    found = parts_of(PATH, TEXT)
    assert found is not None
    assert found["sources"][0].others == ("startingOffsets",)
    names = {one.key: one.name for one in found["steps"][0].fields}
    assert names["watermark.column"] == "part steps 0 watermark.column"
    fields = {
        "part steps 0 sql": "\r\nselect 1\r\nfrom input",
        "part steps 0 watermark.column": "",
        "part steps 1 id": " later ",
        "part sources 0 stream": "orders",
    }
    changed = acted(TEXT, "", **fields)
    body = tomllib.loads(changed)
    assert body["steps"][0]["sql"] == "\nselect 1\nfrom input"
    assert not body["steps"][0].get("watermark")
    assert steps(changed) == ["first", "later"]
    assert 'stream = "orders"  # all of them' in changed
    assert acted(TEXT, "") == TEXT
    with pytest.raises(MisuseError, match="the text has not"):
        acted(TEXT, "", **{"part steps 9 id": "x"})


@pytest.mark.parametrize(
    "action", ["add", "up steps x", "jump steps 0", "add spark", "up steps 99", SCRIPT]
)
def test_other_actions_are_refused(action: str) -> None:
    with pytest.raises(MisuseError):
        acted(TEXT, action)


@pytest.mark.parametrize(
    "text",
    [
        'steps = [{id = "a", sql = "x"}, {id = "b"}]\n[source]\nstream="x"\n',
        '[[steps]]\nid = "a"\n["steps".x]\n',
        "name = [",
    ],
)
def test_texts_that_a_list_cannot_change_are_left_alone(text: str) -> None:
    for action in ("down steps 0", "remove steps 0"):
        try:
            changed = acted(text, action)
        except MisuseError:
            continue
        before: Any = tomllib.loads(text)
        assert len(tomllib.loads(changed).get("steps", ())) == (
            len(before["steps"]) - ("remove" in action)
        )


@pytest.mark.parametrize("text", ['sinks = [{stream = "a"}]\n', 'source.stream="a"\n'])
def test_a_part_that_cannot_be_added_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(MisuseError, match="cannot change this text"):
        acted(text, "add sinks" if "sinks" in text else "add sources")


def test_a_part_takes_no_table_of_another_one_with_it() -> None:
    text = "[source]\n[[steps]]\n[[sinks]]\n[steps.kept]\n"
    with pytest.raises(MisuseError, match="cannot change this text"):
        acted(text, "remove sinks 0")


def test_many_parts_are_changed_as_text() -> None:
    assert parts_of(PATH, "[[sinks]]\n" * (MOST_PARTS + 1)) is None


# --- in the pages -----------------------------------------------------------------


def opened(page: str) -> dict[str, str]:
    part = page.split('action="/edit/parts"')[1].split("</form>", maxsplit=1)[0]
    return fields_of(part)


def test_a_pipeline_is_made_of_parts_without_its_text(
    person: Editor, small: World
) -> None:
    page = person.get("/edit/new", kind="pipeline", name="daily")
    form = opened(page)
    form["part sources 0 stream"] = "clicks"
    form["part sinks 0 stream"] = "orders"
    form["do"] = "add steps"
    status, page = person.post("/edit/parts", form)
    assert status == 200
    form = opened(page) | {"part steps 0 id": "big"}
    form["part steps 0 sql"] = "select * from input"
    place = f'checkpoint = "{small.folder}/k"'
    form["text"] = form["text"].replace('checkpoint = ""', place)
    assert "The definition is valid" not in page
    key = person.plan("/edit/parts", form)
    assert person.confirm(key) == (303, "/pipeline?name=daily")
    saved = (small.folder / "configs" / "pipelines" / "daily.toml").read_text()
    assert steps(saved) == ["big"]
    page = person.get("/edit/file", kind="pipeline", file="daily.toml")
    picture = page.split("<svg")[1].split("</svg>")[0]
    assert 'aria-label="Pipeline"' in picture
    assert picture.count('class="link"') == 3  # clicks, input, big, orders
    assert 'aria-label="Remove: Step 1: big"' in page


def test_the_parts_of_the_largest_file_fit_a_form_in_any_script(
    person: Editor, small: World
) -> None:
    text = TEXT.replace("-- [[steps]]", "-- " + "ж" * ((MOST_BYTES - len(TEXT)) // 2))
    folder = small.folder / "configs" / "pipelines"
    folder.mkdir()
    (folder / "daily.toml").write_text(text, "utf-8")
    page = person.get("/edit/file", kind="pipeline", file="daily.toml")
    form = opened(page)
    assert sum("ж" * 1000 in one for one in form.values()) == 2
    status, page = person.post("/edit/parts", form | {"do": "down steps 0"})
    assert status == 200
    assert "Step 2: first" in page


def test_spaces_of_a_value_are_kept_where_it_is_not_changed() -> None:
    text = TEXT.replace('"select id from first"', '" select id from first "')
    fields = {"part steps 1 sql": "select id from first", "part steps 1 id": "second"}
    assert acted(text, "", **fields) == text


def test_hostile_parts_are_escaped(person: Editor) -> None:
    form = opened(person.get("/edit/new", kind="pipeline", name="daily"))
    form["do"] = "add steps"
    _, page = person.post("/edit/parts", form)
    hostile = f"{SCRIPT}\"'\n{{{{ 7 }}}}"
    form = opened(page) | {"part steps 0 sql": hostile, "part steps 0 id": SCRIPT}
    form |= {"part sinks 0 stream": SCRIPT, "part sources 0 stream": SCRIPT}
    status, page = person.post("/edit/parts", form)
    assert status == 200
    assert SCRIPT not in page
    assert html.unescape(opened(page)["part steps 0 sql"]).replace("\r", "") == hostile
    form["part steps 0 password"] = "hunter2"
    assert person.post("/edit/parts", form)[0] == 400
    form = opened(page) | {"part sources 0 stream": "kafka://u:hunter2@x"}
    status, page = person.post("/edit/parts", form)
    assert status == 400
    assert "hunter2" not in page
