"""Who did what: the record that pages and commands write, and what reads it."""

from __future__ import annotations

import getpass
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.checkpoints.conftest import Topic
from tests.proving.commands import Outcome, command_of
from tests.ui.conftest import PLACE, TOKEN, Client, World, recorded
from tests.ui.test_access import position
from tests.ui.test_parameters import _DEFINITION, POSTS
from tests.ui.test_rights import (
    EDIT,
    OPERATE,
    READ,
    VALUES,
    log_in,
    people,
    saved,
    users_file,
)

from streamfactory.spi import ConfigError, ConnectionFailed, StreamTimeout
from streamfactory.transfer import auditing
from streamfactory.transfer.auditing import (
    SCHEMA,
    AuditTrail,
    Change,
    Wanted,
    audit_stream,
    read_audit,
)
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from pathlib import Path

    from werkzeug.test import TestResponse

Run = Callable[..., Outcome]
SCRIPT = "<script>alert(1)</script>"


def rows(**wanted: Any) -> list[dict[str, Any]]:
    return read_audit(Catalogue().get("changes"), Wanted(**wanted), most=200).rows


def outcomes(**wanted: Any) -> list[str]:
    return [one["outcome"] for one in rows(**wanted)]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return command_of(capsys)


@pytest.fixture
def anna(world: World, tmp_path: Path) -> Iterator[Client]:
    """A client of anna, who may do everything but edit clicks."""
    patterns = {
        "*": {OPERATE: ["anna"], VALUES: ["anna"]},
        "edit*": {EDIT: ["anna"]},
        "changes": {EDIT: ["anna"], READ: ["owner"]},
    }
    file = users_file(tmp_path / "users.toml", patterns)
    with recorded(world) as trail, people(file, trail=trail) as found:
        yield found


def sent(client: Client, path: str, csrf: str, **form: str) -> TestResponse:
    found: TestResponse = client.client.post(
        path, data={**form, "csrf": csrf}, base_url=PLACE
    )
    return found


def confirmed(client: Client, path: str, csrf: str, **form: str) -> TestResponse:
    shown = sent(client, path, csrf, **form).get_data(as_text=True)
    key = shown.split('name="change" value="')[1].split('"')[0]
    return sent(client, path, csrf, change=key)


MOVE = POSTS["/actions/offsets"]


def test_a_change_is_recorded_with_who_made_it(anna: Client, world: World) -> None:
    csrf = log_in(anna, "anna")
    before = position(world)
    assert confirmed(anna, "/actions/offsets", csrf, **MOVE).status_code == 303
    begun, made = rows()
    assert (begun["outcome"], made["outcome"]) == ("begun", "made")
    assert begun["change"] == made["change"]
    for one in (begun, made):
        assert one["user"] == "anna"
        assert one["client"] == "127.0.0.1"
        assert (one["right"], one["kind"]) == (OPERATE, "group")
        assert one["name"] == "billing in clicks"
        offsets = json.loads(one["before"])["offsets"]["clicks"]
        assert list(offsets.values()) == before
        assert set(json.loads(one["after"])["offsets"]["clicks"].values()) == {0}
        assert one["time"].endswith("Z")


def test_a_change_of_a_definition_is_recorded_with_both_texts(anna: Client) -> None:
    csrf = log_in(anna, "anna")
    assert saved(anna, csrf, "stream", _DEFINITION).status_code == 303
    begun, made = rows(name="edited")
    assert begun["before"] == ""
    assert made["after"] == _DEFINITION
    assert (made["right"], made["kind"]) == (EDIT, "stream")


def test_a_replay_is_recorded_until_its_end(anna: Client, world: World) -> None:
    world.letters({"one": b"first"})
    good = Topic(world.folder / "topics", "good")
    good.options |= {
        "stream.file.messages": "true",
        "stream.file.decoder.class.name": "raw",
    }
    good.file(world.catalogue)
    with open_sink(good.options) as sink:
        sink.put(pa.table({"value": [b"zero"]}), writer_id="w", epoch=0)
    csrf = log_in(anna, "anna")
    replay = {"stream": "letters", "to": "good"}
    assert confirmed(anna, "/actions/replay", csrf, **replay).status_code == 303
    assert outcomes()[0] == "begun"
    (job,) = anna.site.jobs.list()
    deadline = time.monotonic() + 60
    while outcomes() != ["begun", "made"]:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    assert {one["what"] for one in rows()} == {"replayed into good"}


def test_two_confirmations_of_one_change_make_it_once(anna: Client) -> None:
    csrf = log_in(anna, "anna")
    shown = sent(anna, "/actions/offsets", csrf, **MOVE).get_data(as_text=True)
    key = shown.split('name="change" value="')[1].split('"')[0]
    found: list[int] = []

    def confirm() -> None:
        cookie = anna.client.get_cookie("streamfactory-9816")
        other = anna.client.application.test_client()
        other.set_cookie("streamfactory-9816", cookie.value, domain="localhost")
        form = {"csrf": csrf, "change": key}
        answer = other.post("/actions/offsets", data=form, base_url=PLACE)
        found.append(answer.status_code)

    threads = [threading.Thread(target=confirm) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert 303 in found
    assert outcomes().count("made") == found.count(303)


def test_refused_changes_are_recorded(anna: Client, world: World) -> None:
    csrf = log_in(anna, "anna")
    grow = POSTS["/actions/topic"]
    assert sent(anna, "/actions/topic", csrf, **grow).status_code == 403
    (refused,) = rows()
    assert (refused["outcome"], refused["user"]) == ("refused", "anna")
    assert (refused["right"], refused["kind"], refused["name"]) == (
        EDIT,
        "stream",
        "clicks",
    )
    assert "the right edit is missing" in refused["reason"]
    # A form of another site, and one that is confirmed too late.
    assert sent(anna, "/actions/offsets", "wrong", **MOVE).status_code == 403
    shown = sent(anna, "/actions/offsets", csrf, **MOVE).get_data(as_text=True)
    key = shown.split('name="change" value="')[1].split('"')[0]
    assert confirmed(anna, "/actions/offsets", csrf, **MOVE).status_code == 303
    moved = position(world)
    assert sent(anna, "/actions/offsets", csrf, change=key).status_code >= 400
    assert position(world) == moved
    assert outcomes() == ["refused", "refused", "begun", "made", "refused"]
    assert "changed since it was shown" in rows()[-1]["reason"]
    # What is only asked for wrongly would have changed nothing.
    wrong = {**MOVE, "place": "nonsense"}
    assert sent(anna, "/actions/offsets", csrf, **wrong).status_code == 400
    assert len(outcomes()) == 5


def test_what_cannot_be_recorded_is_not_done(anna: Client, world: World) -> None:
    csrf = log_in(anna, "anna")
    before = position(world)
    shown = sent(anna, "/actions/offsets", csrf, **MOVE).get_data(as_text=True)
    key = shown.split('name="change" value="')[1].split('"')[0]
    made = next(one for one in world.catalogue.iterdir() if "changes" in one.name)
    made.unlink()
    assert anna.site.trail is not None
    anna.site.trail._sink = None  # as after an error
    found = sent(anna, "/actions/offsets", csrf, change=key)
    assert found.status_code >= 400
    assert position(world) == before


def test_an_outcome_that_cannot_be_recorded_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    del world
    done: list[str] = []
    with pytest.raises(ConnectionFailed, match=r"has ended \(made\), but"):
        record_once(monkeypatch, lambda: done.append("made"))
    assert done == ["made"]

    def fail() -> None:
        raise StreamTimeout("late")

    with pytest.raises(ConnectionFailed, match=r"has ended \(failed\), but"):
        record_once(monkeypatch, fail)


def record_once(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    """Make a change of which only the beginning can be recorded."""
    monkeypatch.undo()

    def write(_: Any, __: Any, outcome: str, *___: str) -> None:
        if outcome != "begun":
            raise ConnectionFailed("cannot be recorded")

    monkeypatch.setattr(AuditTrail, "write", write)
    monkeypatch.setattr(AuditTrail, "__init__", lambda _: None)
    trail = AuditTrail()  # type: ignore[call-arg]
    with trail.recorded(Change("anna", "here", "edit", "topic", "t"), "grown"):
        function()


def test_a_row_is_written_over_a_connection_that_is_alive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was kept has died since: the outcome of a change is recorded."""
    dead, opened = list[Sink](), list[Dead]()
    put = Sink.put

    def put_if_alive(sink: Sink, *rows: Any) -> bool:
        if sink in dead:
            raise ConnectionFailed("broken pipe")
        return put(sink, *rows)

    monkeypatch.setattr(Sink, "put", put_if_alive)
    with recorded(world) as trail:
        with trail.recorded(Change("anna", "here", "edit", "topic", "t"), "grown"):
            assert trail._sink is not None
            dead.append(trail._sink)
        assert outcomes() == ["begun", "made"]
        dead.append(trail._sink)

        def open_dead(_: Any) -> Dead:
            opened.append(Dead())
            return opened[-1]

        # A new connection that fails is not tried again.
        monkeypatch.setattr(auditing, "open_sink", open_dead)
        for count in (1, 2):
            with pytest.raises(ConnectionFailed, match="cannot be recorded"):
                trail.write(Change("anna", "here", "edit", "topic", "t"), "refused")
            assert len(opened) == count
            assert trail._sink is None


class Dead:
    """A sink whose connection fails."""

    def put(self, *_: Any) -> bool:
        raise ConnectionFailed("broken pipe")

    def close(self) -> None:
        pass


def test_the_record_is_only_appended_to(anna: Client) -> None:
    """Not even by who may edit its stream."""
    csrf = log_in(anna, "anna")
    for kind, text in (
        ("truncate", "latest"),
        ("delete", "changes"),
        ("produce", "{}"),
    ):
        form = {"kind": kind, "stream": "changes", "text": text, "format": "json"}
        found = sent(anna, "/actions/topic", csrf, **form)
        assert found.status_code == 403
        assert "only appended to" in found.get_data(as_text=True)
    replay = {"stream": "clicks", "to": "changes"}
    assert sent(anna, "/actions/replay", csrf, **replay).status_code == 403
    text = _DEFINITION.replace('"edited"', '"changes"')
    assert saved(anna, csrf, "stream", text).status_code == 403
    assert set(outcomes()) == {"refused"}


def test_a_message_by_hand_leaves_no_value_in_the_record(
    world: World, tmp_path: Path
) -> None:
    file = users_file(tmp_path / "users.toml", {"*": {EDIT: ["anna"]}})
    with recorded(world) as trail, people(file, trail=trail) as client:
        csrf = log_in(client, "anna")
        form = {"kind": "produce", "stream": "clicks", "format": "json"}
        form["text"] = '{"id": 424242, "_partition": 1}'
        assert confirmed(client, "/actions/topic", csrf, **form).status_code == 303
        text = json.dumps(rows())
        assert "424242" not in text
        assert "31 bytes, sha256 " in text


def test_texts_of_others_stay_within_their_row(anna: Client, run: Run) -> None:
    """Line breaks, scripts and control characters in what is asked for."""
    csrf = log_in(anna, "owner")
    name = f"x\r\n2026 (token) made{SCRIPT}\x1b[31m\u202e"
    form = {**POSTS["/actions/topic"], "stream": name}
    assert sent(anna, "/actions/topic", csrf, **form).status_code >= 400
    (one,) = rows(outcome="refused")
    assert "\n" not in "".join(one[key] for key in SCHEMA.names)
    assert one["name"].startswith("x\\r\\n2026")
    log_in(anna, "anna")
    text = anna.text("/audit")
    assert one["name"].replace("<", "&lt;").replace(">", "&gt;") in text
    assert SCRIPT not in text
    assert "\x1b" not in text
    printed = run("audit")
    assert printed.out.count("\n") == 2
    assert "\x1b" not in printed.out


def test_the_record_is_shown_to_who_may_see_its_rows(
    world: World, tmp_path: Path
) -> None:
    patterns = {"clicks": {VALUES: ["anna"]}, "changes": {VALUES: ["owner"]}}
    file = users_file(tmp_path / "users.toml", patterns)
    with recorded(world) as trail, people(file, trail=trail) as client:
        trail.write(Change("anna", "here", "edit", "topic", "t"), "made", "grown")
        log_in(client, "anna")
        assert client.get("/audit").status_code == 403
        assert client.get("/api/v1/audit").status_code == 403
        assert "/audit" not in client.text("/stream?name=clicks")
        client.client.delete_cookie("streamfactory-9816", domain="localhost")
        log_in(client, "owner")
        assert "grown" in client.text("/audit?user=anna")
        assert "grown" not in client.text("/audit?user=else")
        found = client.get("/api/v1/audit", name="t").get_json()
        assert [one["what"] for one in found["items"]] == ["grown"]
        for at in range(4):
            trail.write(Change("anna", "here", "edit", "topic", f"t{at}"), "made")
        client.site.lookups.forget([])
        newest = client.get("/api/v1/audit", count="2", user="anna").get_json()
        assert [one["name"] for one in newest["items"]] == ["t2", "t3"]
        place = {"from": newest["previous"]}
        older = client.get("/api/v1/audit", count="2", **place).get_json()
        assert [one["name"] for one in older["items"]] == ["t0", "t1"]


def test_without_a_record_there_is_no_page_of_it(client: Client) -> None:
    client.client.post("/log-in", data={"token": TOKEN}, base_url=PLACE)
    assert client.get("/audit").status_code == 404
    assert client.get("/api/v1/audit").status_code == 404


def test_many_write_at_once(world: World) -> None:
    with recorded(world) as trail:

        def write(number: int) -> None:
            for at in range(5):
                name = f"{number}-{at}"
                trail.write(Change("anna", "here", "edit", "topic", name), "made")

        threads = [threading.Thread(target=write, args=(one,)) for one in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert len({one["name"] for one in rows()}) == 20


def test_a_closed_record_is_not_opened_again(world: World) -> None:
    """A job may end after the pages have."""
    with recorded(world) as trail:
        pass
    change = Change("anna", "here", "edit", "topic", "late")
    for _ in range(2):
        with pytest.raises(ConnectionFailed, match="the record is closed"):
            trail.write(change, "made")


# --- commands -------------------------------------------------------------------


def test_commands_record_what_they_change(world: World, run: Run) -> None:
    with recorded(world):
        moved = ("offsets", "reset", "clicks", "--group", "billing", "--to", "0")
        assert run(*moved, "--dry-run").status == 0
        assert not rows()
        assert run(*moved, "--yes").status == 0
        assert run("topics", "grow", "clicks", "3").status == 0
        assert run("topics", "grow", "clicks", "1").status != 0
        assert run("pause", "delays", "--why", "a\nb").status == 0
        found = rows()
        assert {one["user"] for one in found} == {getpass.getuser()}
        assert [(one["name"], one["outcome"]) for one in found] == [
            ("billing in clicks", "begun"),
            ("billing in clicks", "made"),
            ("clicks", "begun"),
            ("clicks", "made"),
            ("clicks", "begun"),
            ("clicks", "failed"),
            ("pipeline/delays", "begun"),
            ("pipeline/delays", "made"),
        ]
        assert run("resume", "delays").status == 0
        document = json.loads(run("audit", "--last", "1", "--json").out)
        assert document["rows"][0]["what"] == "resumed"
        assert document["more"]
        text = run("audit", "--name", "clicks", "--outcome", "failed").out
        assert text.count("\n") == 2
        assert "no changes" in run("audit", "changes", "--user", "nobody").out
        assert "no changes" in run("audit", "--since", "0ms").out
        assert len(run("audit", "--since", "1d").out.splitlines()) == 11
        assert run("audit", "--since", "soon").status == 2


def test_a_command_changes_nothing_that_it_cannot_record(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = position(world)
    with recorded(world):

        def write(*_: object, **__: object) -> None:
            raise ConnectionFailed("changes cannot be recorded")

        monkeypatch.setattr(AuditTrail, "write", write)
        found = run(
            "offsets", "reset", "clicks", "--group", "billing", "--to", "0", "--yes"
        )
        assert "changes cannot be recorded" in found.err
        assert position(world) == before


def test_a_broken_file_does_not_hide_the_record(world: World, run: Run) -> None:
    before = position(world)
    moved = ("offsets", "reset", "clicks", "--group", "billing", "--to", "0", "--yes")
    with recorded(world):
        (file,) = (one for one in world.catalogue.iterdir() if "changes" in one.name)
        file.write_text(file.read_text()[:-3])
        found = run(*moved)
    assert "may define the record of changes, and cannot be read" in found.err
    assert position(world) == before
    file.write_text("[properties")  # of something else
    assert run(*moved).status == 0


def test_a_catalogue_has_one_record(world: World, run: Run) -> None:
    assert audit_stream(Catalogue()) is None
    assert "no stream of the catalogue" in run("audit").err
    two = "'changes' and 'more' have audit"
    with (
        recorded(world),
        recorded(world, "more"),
        pytest.raises(ConfigError, match=two),
    ):
        audit_stream(Catalogue())
    with pytest.raises(ConfigError, match="no record of changes: it lacks"):
        read_audit(Catalogue().get("clicks"), Wanted(), most=1)
