"""Streams and pipelines that are made and changed in the pages."""

from __future__ import annotations

import html
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.ui.conftest import PLACE, SCRIPT, TOKEN, Client, World, application

from streamfactory.spi import MisuseError
from streamfactory.ui import catalogue
from streamfactory.ui.editing.checking import difference
from streamfactory.ui.editing.drafts import draft_of
from streamfactory.ui.editing.files import MOST_BYTES, Folder, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.ui.site import Site

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


def listed(folder: Path) -> list[str]:
    """The files of a folder, without that of the stream clicks."""
    return sorted(path.name for path in folder.iterdir() if "clicks" not in path.name)


@pytest.fixture
def person(small: World) -> Iterator[Editor]:
    (small.catalogue / "orders.toml").write_text(TEXT)
    with application(edit=True) as client:
        access = client.site.access
        secret = access.log_in(TOKEN)
        session = access.session(secret)
        assert secret is not None
        assert session is not None
        client.client.set_cookie("streamfactory-9816", secret, domain="localhost")
        yield Editor(client.site, client, session.csrf, small.catalogue)


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


def test_a_form_that_changes_nothing_changes_no_character(person: Editor) -> None:
    page = person.get("/edit/file", kind="stream", file="orders.toml")
    for text in (True, False):
        form = person.opened(page, text=text)
        path = "/edit/text" if text else "/edit/form"
        status, shown = person.post(path, {**form, "check": ""})
        assert status == 200
        assert person.opened(shown)["text"] == TEXT.replace("\n", "\r\n")
        status, shown = person.post(path, {**form, "show": ""})
        assert status == 400
        assert "there is nothing to save" in shown


def test_fields_come_from_the_declarations_with_their_rules(person: Editor) -> None:
    page = person.get("/edit/file", kind="stream", file="orders.toml")
    found = re.search(
        r'<code>includeHeaders</code>.*?<p class="hint">(.*?)</p>', page, re.DOTALL
    )
    assert found is not None
    assert "Needs <code>metadata.columns</code>" in found[1]
    found = re.search(
        r"<code>subscribePattern</code>.*?Excludes (.*?)\.</p>", page, re.DOTALL
    )
    assert found is not None
    assert found[1] == "topic.name, subscribe, assign"
    assert '<option value="drop-oldest"' in page
    assert "(required)" in page


def test_problems_are_at_their_fields_and_at_their_lines(person: Editor) -> None:
    page = person.get("/edit/file", kind="stream", file="orders.toml")
    form = person.opened(page)
    text = TEXT.replace("partitions = 4", 'partitions = "<b>"\nparttions = 2')
    status, shown = person.post("/edit/text", {**form, "text": text, "show": ""})
    assert status == 400
    lines = re.findall(r'class="marked"><code>(.*?)</code>', shown)
    assert lines == ["partitions = &#34;&lt;b&gt;&#34;", "parttions = 2"]
    assert shown.count("aria-invalid") == 1
    assert "error, line 11: stream.memory.partitions" in shown
    status, shown = person.post("/edit/text", {**form, "text": "name = [", "show": ""})
    assert status == 400
    assert "error, line 1: new.toml" not in shown
    assert "is not TOML" in shown
    assert person.opened(shown)["text"] == "name = ["


def test_a_stream_is_begun_of_a_topic_that_is_there(
    person: Editor, small: World
) -> None:
    page = person.get("/edit/new", kind="stream", name="x", type="file")
    form = person.opened(page, text=False)
    form["text"] += f'path = "{small.topic.options["stream.file.path"]}"\n'
    status, shown = person.post("/edit/topics", form)
    assert status == 200, shown
    assert re.findall("<option value=.*?>(.*?)</option>", shown) == ["clicks"]
    begun = person.opened(shown, text=False)
    begun |= {"set stream.file.topic.name": "clicks", "name": "begun"}
    shown = person.get(f"/edit/change?change={person.plan('/edit/form', begun)}")
    assert "First rows" in shown
    assert "+name = &#34;begun&#34;" in shown
    # As the file spells it: the topic would be left out otherwise.
    form["text"] += '"Topic.Name" = "others"\n'
    _, shown = person.post("/edit/topics", form)
    begun = person.opened(shown, text=False)
    field = next(name for name in begun if name.startswith("set "))
    begun |= {field: "clicks", "name": "begun"}
    _, shown = person.post("/edit/form", {**begun, "check": ""})
    assert '"Topic.Name" = "clicks"' in person.opened(shown)["text"]
    page = person.get("/edit/new", kind="stream", name="x", type="push")
    status, shown = person.post("/edit/topics", person.opened(page, text=False))
    assert status == 400
    assert "Remedy" in shown


# --- files: rename, copy, delete, undo --------------------------------------------


def test_a_stream_is_renamed_copied_deleted_and_restored(person: Editor) -> None:
    folder = person.folder
    key = person.edit("orders.toml", TEXT.replace('"orders"\ndesc', '"sales"\ndesc'))
    assert person.confirm(key) == (303, "/stream?name=sales")
    assert listed(folder) == ["sales.toml"]
    back = person.plan("/edit/undo", {})
    assert "stream orders?" in person.get("/edit/change", change=back)
    assert person.confirm(back) == (303, "/stream?name=orders")
    assert listed(folder) == ["orders.toml"]
    again = person.plan("/edit/undo", {})
    assert person.confirm(again) == (303, "/stream?name=sales")
    copy = person.opened(
        person.get("/edit/file", kind="stream", file="sales.toml", copy="1")
    )
    assert person.confirm(person.plan("/edit/text", copy))[0] == 303
    assert 'name = "sales-copy"' in (folder / "sales-copy.toml").read_text()
    form = person.opened(person.get("/edit/file", kind="stream", file="sales.toml"))
    deletion = person.plan("/edit/delete", form)
    assert "its rows, its spool" in person.get("/edit/change", change=deletion)
    assert person.confirm(deletion) == (303, "/edit/")
    assert listed(folder) == ["sales-copy.toml"]
    restored = person.plan("/edit/undo", {})
    assert person.confirm(restored)[0] == 303
    assert "# Kept by the web team" in (folder / "sales.toml").read_text()
    again = person.plan("/edit/undo", {})  # what was undone is done again
    assert person.confirm(again)[0] == 303
    assert listed(folder) == ["sales-copy.toml"]


def test_a_file_named_otherwise_keeps_its_name(person: Editor) -> None:
    (person.folder / "orders.toml").rename(person.folder / "01.toml")
    key = person.edit("01.toml", TEXT.replace('"orders"\ndesc', '"sales"\ndesc'))
    assert person.confirm(key)[0] == 303
    assert listed(person.folder) == ["01.toml"]


def test_a_file_of_the_largest_size_fits_a_form_in_any_script(person: Editor) -> None:
    text = TEXT + "# " + "ж" * ((MOST_BYTES - len(TEXT) - 2) // 2)
    (person.folder / "orders.toml").write_text(text, "utf-8")
    page = person.get("/edit/file", kind="stream", file="orders.toml")
    form = {**person.opened(page, text=False), "set stream.memory.partitions": "5"}
    assert person.confirm(person.plan("/edit/form", form))[0] == 303
    expected = text.replace("= 4", "= 5")
    assert (person.folder / "orders.toml").read_text("utf-8") == expected


@pytest.mark.parametrize("name", ["orders", "sales"])
def test_permissions_and_line_ends_are_kept(person: Editor, name: str) -> None:
    path = person.folder / "orders.toml"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    changed = TEXT.replace("= 4", "= 5").replace('"orders"\ndesc', f'"{name}"\ndesc')
    assert person.confirm(person.edit("orders.toml", changed))[0] == 303
    assert listed(person.folder) == [f"{name}.toml"]
    path = person.folder / f"{name}.toml"
    assert path.read_bytes() == changed.replace("\n", "\r\n").encode()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_renamed_is_left_alone(
    person: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = person.edit("orders.toml", TEXT.replace('"orders"\ndesc', '"sales"\ndesc'))
    delete = Folder.delete

    def changed(folder: Folder, name: str, digest: str) -> None:
        if name == "orders.toml":  # by another program, at this moment
            (folder.path / name).write_text(TEXT + "# theirs")
        delete(folder, name, digest)

    monkeypatch.setattr(Folder, "delete", changed)
    status, shown = person.confirm(key)
    assert status == 409
    assert "Nothing was saved" in shown
    assert listed(person.folder) == ["orders.toml"]


def test_who_refers_to_a_stream_is_shown(person: Editor, small: World) -> None:
    pipelines = small.folder / "configs" / "pipelines"
    pipelines.mkdir()
    (pipelines / "daily.toml").write_text(
        f'name = "daily"\ncheckpoint = "{small.folder}/kept"\n[source]\n'
        'stream = "clicks"\n[[sinks]]\nstream = "orders"\n'
    )
    small.topic.options["dead.letter.stream"] = "01"  # by its file
    small.topic.file(person.folder)
    spooled = TEXT.replace('"memory"', '"socket"').replace("memory]", "socket]")
    spooled = spooled.replace('"out.of.range" = "earliest"', '"spool.path" = "kept"')
    (person.folder / "orders.toml").unlink()
    (person.folder / "01.toml").write_text(spooled)
    form = person.opened(person.get("/edit/file", kind="stream", file="01.toml"))
    shown = person.get("/edit/change", change=person.plan("/edit/delete", form))
    assert "<li>spool kept, and its receiver</li>" in shown
    assert "<li>stream clicks: its dead letters</li>" in shown
    assert "<li>pipeline daily</li>" in shown
    assert "They fail when they are opened again" in shown


# --- pipelines --------------------------------------------------------------------


def test_a_pipeline_is_written_as_text_with_problems_at_their_lines(
    person: Editor, small: World
) -> None:
    form = person.opened(person.get("/edit/new", kind="pipeline", name="daily"))
    assert 'name = "daily"' in form["text"]
    text = (
        f'name = "daily"\ncheckpoint = "{small.folder}/kept"\n[source]\n'
        'stream = "klicks"\n[[sinks]]\nstream = "orders"\n'
    )
    status, shown = person.post("/edit/text", {**form, "text": text, "show": ""})
    assert status == 400
    assert "error, line 4" in shown
    key = person.plan("/edit/text", {**form, "text": text.replace("kl", "cl")})
    assert person.confirm(key) == (303, "/pipeline?name=daily")
    file = small.folder / "configs" / "pipelines" / "daily.toml"
    assert file.read_text() == text.replace("kl", "cl")
    form = person.opened(person.get("/edit/file", kind="pipeline", file="daily.toml"))
    for more in (
        'hook.command = "touch /tmp/x"',
        '"Hook.command" = "touch /tmp/x"',
        '[spark]\n"spark.driver.extraJavaOptions" = "-x"',
    ):
        changed = text.replace("kl", "cl").replace("[source]", f"{more}\n[source]")
        status, shown = person.post("/edit/text", {**form, "text": changed})
        assert status == 400
        assert "are not changed in the pages" in shown


def test_tests_of_pipelines_are_no_pipelines(person: Editor, small: World) -> None:
    (small.folder / "configs" / "pipelines").mkdir(exist_ok=True)
    (small.folder / "configs" / "pipelines" / "daily.test.toml").write_text("")
    assert "daily.test" not in person.get("/edit/")
    asked = {"kind": "pipeline", "file": "daily.test.toml"}
    assert person.client.get("/edit/file", **asked).status_code == 404
    asked = {"kind": "pipeline", "name": "daily.test"}
    assert person.client.get("/edit/new", **asked).status_code == 400


# --- attacks ----------------------------------------------------------------------


NAMES = (
    *("../x", "..", ".", "/etc/x", "a/b", "a\\b", ".hidden", "", " ", "x\0y", "x\ny"),
    *("x" * 250, "é" * 150, "\u202ex"),
)


def test_names_that_are_paths_are_refused(person: Editor) -> None:
    before = listed(person.folder.parent), listed(person.folder)
    form = person.opened(person.get("/edit/new", kind="stream", name="x", type="push"))
    for name in NAMES:
        answer = person.client.get("/edit/new", kind="stream", name=name, type="push")
        assert answer.status_code == 400, name
        quoted = json.dumps(name)[1:-1]
        text = TEXT.replace('"orders"\ndesc', f'"{quoted}"\ndesc')
        status, _ = person.post("/edit/text", {**form, "text": text, "show": ""})
        assert status == 400, name
    assert before == (listed(person.folder.parent), listed(person.folder))


def test_files_outside_of_the_folder_are_unknown(person: Editor) -> None:
    for name in ("../streams/orders.toml", "/etc/passwd", "orders", "none.toml", "."):
        answer = person.client.get("/edit/file", kind="stream", file=name)
        assert answer.status_code == 404, name
        form = {"kind": "stream", "file": name, "text": TEXT, "digest": "x"}
        assert person.post("/edit/text", {**form, "show": ""})[0] == 409, name
        assert person.post("/edit/delete", form)[0] == 404, name


def test_a_link_and_a_pipe_are_not_opened(person: Editor, small: World) -> None:
    outside = small.folder / "outside.toml"
    outside.write_text(TEXT)
    (person.folder / "link.toml").symlink_to(outside)
    answer = person.client.get("/edit/file", kind="stream", file="link.toml")
    assert answer.status_code == 400
    assert "is a link" in answer.get_data(as_text=True)
    (person.folder / "link.toml").unlink()
    catalogue.forget()
    key = person.edit("orders.toml", TEXT.replace("= 4", "= 5"))
    (person.folder / "orders.toml").unlink()
    (person.folder / "orders.toml").symlink_to(outside)
    assert person.confirm(key)[0] == 400
    assert outside.read_text() == TEXT
    (person.folder / "orders.toml").unlink()
    os.mkfifo(person.folder / "orders.toml")
    answer = person.client.get("/edit/file", kind="stream", file="orders.toml")
    assert answer.status_code == 400


def test_of_two_editors_the_second_is_shown_both(person: Editor) -> None:
    path = person.folder / "orders.toml"
    mine, theirs = (TEXT.replace("= 4", f"= {count}") for count in (5, 6))
    first = person.edit("orders.toml", mine)
    second = person.edit("orders.toml", theirs)
    opened = person.opened(person.get("/edit/file", kind="stream", file="orders.toml"))
    assert person.confirm(first)[0] == 303
    status, shown = person.confirm(second)
    assert status == 409
    assert "was changed meanwhile" in shown
    assert "-partitions = 5" in shown
    assert "+partitions = 6" in shown
    assert path.read_text() == mine
    status, shown = person.post("/edit/text", {**opened, "text": theirs, "show": ""})
    assert status == 409
    key = person.plan("/edit/text", person.opened(shown))
    assert person.confirm(key)[0] == 303
    assert path.read_text() == theirs
    path.unlink()
    status, shown = person.post("/edit/text", {**opened, "text": theirs, "show": ""})
    assert status == 409
    assert "was deleted meanwhile" in shown


def test_two_new_streams_of_a_name_do_not_replace_each_other(person: Editor) -> None:
    form = person.opened(person.get("/edit/new", kind="stream", name="n", type="push"))
    form["text"] = TEXT.replace('"orders"\ndesc', '"n"\ndesc')
    first, second = person.plan("/edit/text", form), person.plan("/edit/text", form)
    assert person.confirm(first)[0] == 303
    (person.folder / "n.toml").write_text("mine")
    assert person.confirm(second)[0] == 409
    assert (person.folder / "n.toml").read_text() == "mine"
    status, shown = person.post("/edit/text", {**form, "show": ""})
    assert status == 400
    assert "is in" in shown


def test_a_folder_that_cannot_be_written_is_shown(
    person: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = person.edit("orders.toml", TEXT.replace("= 4", "= 5"))
    # Root may write everywhere: the system call answers as for another user.
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "cannot be written by the process" in person.get("/edit/")
    page = person.get("/edit/file", kind="stream", file="orders.toml")
    assert "cannot be written by the process" in page
    assert 'name="show"' not in page

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("streamfactory.ui.editing.files.replace_file", refuse)
    status, shown = person.confirm(key)
    assert status == 400
    assert "cannot be written: Permission denied" in html.unescape(shown)
    assert (person.folder / "orders.toml").read_text() == TEXT


LITERAL = "hunter2-hunter2"
KAFKA = f"""\
name = "k"
[properties]
streamType = "kafka"
"stream.kafka.topic.name" = "k"
"stream.kafka.decoder.class.name" = "raw"
"stream.kafka.bootstrap.servers" = "localhost:1"
"stream.kafka.consumer.prop.sasl.password" = "{LITERAL}"
"""
LITERALS = [
    KAFKA,
    KAFKA.replace("consumer.prop.sasl.password", "sasl.password"),
    KAFKA.replace('"stream.kafka.consumer', '# "stream.kafka.consumer'),
    KAFKA.replace("k.consumer.prop.sasl.password", "a.no.such.password"),
    KAFKA.replace("localhost:1", f"kafka://me:{LITERAL}@localhost:1"),
    KAFKA.replace('streamType = "kafka"', "streamType = "),
    KAFKA.replace('name = "k"', "name = 1"),
    KAFKA.replace(f'"{LITERAL}"', f"'''\n{LITERAL}'''"),
    f"# http://me:{LITERAL}@host\n{TEXT}",
    f'api-key = "{LITERAL}"\n',
]


REFERRED = KAFKA.replace(LITERAL, "${env:P}")
COMMENTED = [
    REFERRED + f'# "stream.kafka.consumer.prop.sasl.password" = "{LITERAL}"\n',
    REFERRED + f"# sasl.password = {LITERAL}\n",
    REFERRED.replace('P}"', f'P}}"  # password = "{LITERAL}"'),
    REFERRED.replace('"raw"', f'"raw"  # password = "{LITERAL}"'),
    REFERRED + f'# x = {{ a = 1, password = "{LITERAL}" }}\n',
    f"# https://me:{LITERAL}@host/${{env:P}}\n" + TEXT,
]
UNPARSED = [
    REFERRED + f'x = {{ a = 1, password = "{LITERAL}"\n',
    REFERRED + f'[[[\npassword = [\n"{LITERAL}"\n]\n',
    REFERRED + f'[[[\npassword = """\n{LITERAL}"""\n',
    REFERRED + f'[[[\npassword = "{LITERAL}"  # ${{env:P}}\n',
]
PIPELINE = '[source]\nstream = "clicks"\n[[sinks]]\nstream = "orders"\n'
IN_PIPELINES = [
    PIPELINE + f'options = {{ password = "{LITERAL}" }}\n',
    PIPELINE + f'[spark]\n"fs.s3a.secret.key" = """\n{LITERAL}"""\n',
    PIPELINE + f'[[steps]]\nurl = ["https://me:{LITERAL}@host/${{env:P}}"]\n',
]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("stream", text) for text in COMMENTED + UNPARSED),
        *(("pipeline", text) for text in IN_PIPELINES),
    ],
)
def test_a_literal_secret_is_found_wherever_it_is(
    small: World, kind: str, text: str
) -> None:
    with pytest.raises(MisuseError, match="has literal secrets") as caught:
        draft_of(kind, small.catalogue / "k.toml", text)
    assert LITERAL not in str(caught.value)


def test_what_is_no_literal_secret_is_accepted(small: World) -> None:
    for more in (
        "",
        "# sasl.password = ${env:P}\n",
        "# sasl.password =\n",
        '# key = "value"  # password.file = /run/secret\n',
        "# https://me:${env:P}@host\n",
        "# the password of me@host is in the vault\n",
    ):
        assert draft_of("stream", small.catalogue / "k.toml", REFERRED + more).valid


def test_a_literal_secret_is_refused_and_never_shown(
    person: Editor, caplog: pytest.LogCaptureFixture
) -> None:
    form = person.opened(person.get("/edit/new", kind="stream", name="k", type="kafka"))
    asked = {"kind": "stream", "file": "k.toml", "text": "", "digest": "x"}
    for text in LITERALS:
        status, shown = person.post("/edit/text", {**form, "text": text, "show": ""})
        assert status == 400, text
        assert "has literal secrets" in shown, text
        assert LITERAL not in shown
        (person.folder / "k.toml").write_text(text)
        more: dict[str, str]
        for more in ({}, {"copy": "1"}):
            answer = person.client.get(
                "/edit/file", kind="stream", file="k.toml", **more
            )
            assert answer.status_code == 400
            assert LITERAL not in answer.get_data(as_text=True)
        for path in ("/edit/delete", "/edit/text", "/edit/form"):
            assert LITERAL not in person.post(path, {**asked, "show": ""})[1]
        clean = {**asked, "text": TEXT, "digest": digest_of(text.encode()), "show": ""}
        status, shown = person.post("/edit/text", clean)  # its difference shows it
        assert status == 400, text
        assert LITERAL not in shown
    assert LITERAL not in caplog.text


def test_a_secret_in_a_field_is_left_out_and_the_rest_kept(person: Editor) -> None:
    form = person.opened(
        person.get("/edit/new", kind="stream", name="k", type="kafka"), text=False
    )
    form["set stream.kafka.broker.list"] = "localhost:1"
    form["set stream.kafka.topic.name"] = "k"
    form["set stream.kafka.decoder.class.name"] = "raw"
    form["set stream.kafka.ssl.client.key"] = LITERAL
    form["set group.id"] = f"http://me:{LITERAL}@x"
    status, shown = person.post("/edit/form", {**form, "show": ""})
    assert status == 400
    assert LITERAL not in shown
    assert "What was entered was not kept" in shown
    assert '"broker.list" = "localhost:1"' in person.opened(shown)["text"]
    form["set stream.kafka.ssl.client.key"] = "${env:KAFKA_PASSWORD}"
    status, shown = person.post("/edit/form", {**form, "check": ""})
    assert '"ssl.client.key" = "${env:KAFKA_PASSWORD}"' in person.opened(shown)["text"]


HOSTILE = [
    SCRIPT,
    '"><script>alert(1)</script>',
    "</textarea><script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "\u202eright",
    "a\r\nb",
    "'''",
    '"""\n[properties]',
    "\\",
    "x" * 5000,
    "$" * 100,
    "${env:" * 100,
    "\0",
]


def test_hostile_values_are_text_everywhere(person: Editor) -> None:
    page = person.get("/edit/file", kind="stream", file="orders.toml")
    form = person.opened(page, text=False)
    options = ("description", "set stream.memory.topic.name", "set schema")
    alone = ("name", "text", "kind", "file", "digest")
    for number, value in enumerate(HOSTILE):
        for keys in (options, *([one] for one in alone[: 5 if number < 2 else 1])):
            changed = {**form, **dict.fromkeys(keys, value), "show": ""}
            status, shown = person.post("/edit/form", changed)
            assert status in (303, 400, 404, 409), (keys, value, status)
            assert "<script>" not in shown
            if status == 303:
                assert "<script>" not in person.get(shown)
    assert (person.folder / "orders.toml").read_text() == TEXT


def test_nothing_is_edited_without_the_right(person: Editor, client: Client) -> None:
    rules = [
        (rule.rule, method)
        for rule in person.client.client.application.url_map.iter_rules()
        if rule.rule.startswith("/edit")
        for method in {"GET", "POST"} & (rule.methods or set())
    ]
    assert len(rules) == 17
    form = {"kind": "stream", "file": "orders.toml", "text": "", "digest": ""}
    for path, method in rules:
        # `client` has no session.
        answer = client.client.open(path, method=method, data=form, base_url=PLACE)
        assert answer.status_code == 401, path
        if method == "POST":
            sent = person.client.client.post(path, data=form, base_url=PLACE)
            assert sent.status_code == 403, path
    person.site.edits.allowed = False
    assert person.client.get("/edit/").status_code == 403
    assert person.post("/edit/text", form)[0] == 403
    assert 'href="/edit/' not in person.client.text("/stream", name="orders")
    person.site.edits.allowed = True
    assert 'href="/edit/' in person.client.text("/stream", name="orders")


def test_no_text_occupies_the_server_for_long(person: Editor) -> None:
    """Each of the size of a form, and with thousands of problems, or lines."""
    head = "name = 'x'\n[properties]\nstreamType = 'memory'\n"
    texts = {
        "dotted": head + "".join(f"a.b.c.d.e.f.g.h.i{n} = 1\n" for n in range(1000)),
        "tables": head
        + "".join(f"[properties.a{n}]\n[properties.b.c{n}]\n" for n in range(700)),
        "nested": head + "x = " + "[" * 20_000,
        "long key": head + "a" * 20_000 + " = 1",
        "unknown": head + "".join(f"stream.memory.offset{n} = 1\n" for n in range(900)),
        "members": "".join(f"[a{n}]\n" for n in range(3500)),
        "sinks": "[source]\n" + "[[sinks]]\n" * 2400,
        "comments": f"[source]\n[[steps]]\nid = 'a'\nsql = '{'/* ' * 7000}'\n",
    }
    for name, text in texts.items():
        kind = "pipeline" if name in ("sinks", "comments") else "stream"
        for path in ("/edit/form", "/edit/text", "/edit/parts"):
            begin = time.monotonic()
            asked = {"kind": kind, "file": "", "text": text}
            if path == "/edit/form":
                asked = {"name": "x", "description": "", **asked}
            status, shown = person.post(path, asked)
            assert status in (200, 400), (name, status)
            assert time.monotonic() - begin < 5, (name, path)
            assert len(shown) < 1_000_000, name
            if (name, path) == ("sinks", "/edit/text"):
                assert "And 2," in shown  # problems, besides those that are shown
    lines = [str(n % 100) for n in range(8000)], [str(n * 7 % 100) for n in range(8000)]
    for size in (1000, 8000):
        before, after = ("\n".join(some[:size]) for some in lines)
        begin = time.monotonic()
        removed = [one for kind, one in difference(before, after) if kind == "removed"]
        assert removed
        assert time.monotonic() - begin < 3, size


# --- other systems ----------------------------------------------------------------

HOP = Path(__file__).parents[1] / "data" / "hop"


def test_metadata_of_hop_is_pasted_edited_and_written_back(person: Editor) -> None:
    text = (HOP / "flight.json").read_text("utf-8")
    _, answer = person.post("/edit/import", {"text": text})
    page = html.unescape(answer)
    assert "the Hop variable ${BATCH} is read from the environment" in page
    assert "0.0.0.0 is an address to listen on" in page
    sent = person.opened(answer)
    assert sent["kind"] == "stream"
    assert '"stream.flight.location" = "grpc://127.0.0.1:33333"' in sent["text"]
    (person.folder / "live.toml").write_text(sent["text"].replace("\r\n", "\n"))
    shown = html.unescape(person.get("/edit/hop", file="live.toml"))
    assert '"ArrowFlightStream": {' in shown
    download = person.client.get("/edit/hop", file="live.toml", download=1)
    element = json.loads(download.get_data())
    assert element["name"] == "live"
    settings = element["dataStream"]["ArrowFlightStream"]
    assert (settings["hostname"], settings["port"]) == ("127.0.0.1", "33333")
    assert "attachment" in download.headers["Content-Disposition"]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", "Expecting value"),
        ("[1]", "object"),
        ('{"dataStream": {"Nope": {}}}', "not a known implementation"),
        ('{"a": ' * 3000, "pasted.json"),
        (
            '{"streamConfigs": {"streamType": "kafka", "api.key": "hunter2"}}',
            "literal secrets",
        ),
        (f'{{"{SCRIPT}": 1}}', "properties"),
        ("x" * 30_000, "24 KiB"),
    ],
)
def test_a_pasted_text_that_cannot_be_read_is_refused(
    person: Editor, text: str, refused: str
) -> None:
    status, page = person.post("/edit/import", {"text": text})
    assert status == 400
    assert refused in html.unescape(page)
    assert "hunter2" not in page
    assert SCRIPT not in page
