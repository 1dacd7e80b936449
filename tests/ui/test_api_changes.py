"""Changes by programs: conditions, rights, the record, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from tests.checkpoints.conftest import Topic
from tests.ui.conftest import PLACE, TOKEN, Client, World, application, recorded
from tests.ui.test_access import position
from tests.ui.test_audit import outcomes, rows
from tests.ui.test_parameters import _DEFINITION, path_of
from tests.ui.test_rights import (
    EDIT,
    OPERATE,
    READ,
    ROLES,
    VALUES,
    by_role,
    people,
    token_of,
    users_file,
)

from streamfactory.spi import ConnectionFailed
from streamfactory.transfer.auditing import AuditTrail
from streamfactory.ui.programs import answers, controls, definitions, topics
from streamfactory.ui.programs.bodies import TOML
from streamfactory.wiring.controls.states import Controls, JobState, Pause
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from werkzeug.test import TestResponse

API: Final = "/api/v1"
CLICKS: Final = f"{API}/streams/clicks"
EDITED: Final = f"{API}/streams/edited/definition"
POSITION: Final = f"{CLICKS}/position?group=billing"
CONTROL: Final = f"{API}/pipelines/delays/control"
STATE: Final = {"paused": True, "rate": None}
PIPELINE: Final = """\
name = "delays"
checkpoint = "/nowhere/kept"
[source]
stream = "clicks"
[[sinks]]
stream = "letters"
"""


def send(
    client: Client,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str = TOKEN,
    **headers: str,
) -> TestResponse:
    """Send a request of a program: an object as JSON, a text as TOML."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent.setdefault("Authorization", f"Bearer {token}")
    data = None
    if body is not None:
        kind = TOML if isinstance(body, str) else "application/json"
        sent.setdefault("Content-Type", kind)
        data = body if isinstance(body, str) else json.dumps(body)
    found: TestResponse = client.client.open(
        path, method=method, data=data, headers=sent, base_url=PLACE
    )
    assert TOKEN not in found.get_data(as_text=True)
    return found


def tag(client: Client, path: str) -> str:
    found = send(client, "GET", path)
    assert found.status_code == 200, found.get_data(as_text=True)
    return found.headers["ETag"]


@pytest.fixture
def program(world: World) -> Iterator[Client]:
    with recorded(world) as trail, application(edit=True, trail=trail) as found:
        yield found


# --- definitions ----------------------------------------------------------------


def test_a_definition_is_created_replaced_renamed_and_deleted(
    program: Client, world: World
) -> None:
    shown = send(program, "PUT", f"{EDITED}?dry_run=true", _DEFINITION)
    assert shown.status_code == 200, shown.get_data(as_text=True)
    assert shown.get_json()["made"] is False
    file = world.catalogue / "edited.toml"
    assert not file.exists()
    made = send(program, "PUT", EDITED, _DEFINITION, If_None_Match="*")
    assert (made.status_code, made.headers["Location"]) == (201, EDITED)
    assert file.read_text() == _DEFINITION
    assert made.headers["ETag"] == tag(program, EDITED)

    # The text as it was read, with a comment: order and the rest stay.
    text = send(program, "GET", EDITED).get_data(as_text=True)
    more = f"# kept\n{text}"
    shown = send(program, "PUT", f"{EDITED}?dry_run=true", more)
    assert {"kind": "added", "text": "+# kept"} in shown.get_json()["difference"]
    assert shown.get_json()["check"]["ok"] is False  # the topic is not there
    made = send(program, "PUT", EDITED, more, If_Match=shown.headers["ETag"])
    assert made.status_code == 200
    assert file.read_text() == more

    other = more.replace('name = "edited"', 'name = "second"')
    moved = send(program, "PUT", EDITED, other, If_Match=made.headers["ETag"])
    assert moved.get_json()["href"] == f"{API}/streams/second/definition"
    assert not file.exists()
    assert send(program, "GET", EDITED).status_code == 404
    second = f"{API}/streams/second/definition"
    gone = send(program, "DELETE", second, If_Match=moved.headers["ETag"])
    assert (gone.status_code, gone.get_json()["file"]) == (200, None)
    assert not (world.catalogue / "second.toml").exists()
    assert outcomes() == ["begun", "made"] * 4
    assert rows()[-1]["before"] == other


def test_the_last_change_is_undone(program: Client, world: World) -> None:
    file = world.catalogue / "edited.toml"
    assert send(program, "POST", f"{API}/undo", If_Match="*").status_code == 404
    send(program, "PUT", EDITED, _DEFINITION, If_None_Match="*")
    text = f"# more\n{_DEFINITION}"
    send(program, "PUT", EDITED, text, If_Match=tag(program, EDITED))
    shown = send(program, "POST", f"{API}/undo?dry_run=true")
    assert {"kind": "removed", "text": "-# more"} in shown.get_json()["difference"]
    assert send(program, "POST", f"{API}/undo").status_code == 428
    assert send(program, "POST", f"{API}/undo", If_Match='"x"').status_code == 412
    sent = {"If_Match": shown.headers["ETag"]}
    assert send(program, "POST", f"{API}/undo", **sent).status_code == 200
    assert file.read_text() == _DEFINITION
    # What undoes that: the text as it was before. And of a deletion, the file.
    gone = send(program, "DELETE", EDITED, If_Match=tag(program, EDITED))
    assert gone.status_code == 200
    shown = send(program, "POST", f"{API}/undo?dry_run=true")
    sent = {"If_Match": shown.headers["ETag"]}
    assert send(program, "POST", f"{API}/undo", **sent).status_code == 200
    assert file.read_text() == _DEFINITION


def test_another_change_meanwhile_is_not_undone_with_the_rights_for_the_last(
    program: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(program, "PUT", EDITED, _DEFINITION, If_None_Match="*")
    asked, other = answers.is_dry, _DEFINITION.replace('"edited"', '"other"', 1)

    def create() -> None:
        path = f"{API}/streams/other/definition"
        send(program, "PUT", path, other, If_None_Match="*")

    def after_the_rights() -> bool:
        monkeypatch.setattr(definitions, "is_dry", asked)
        theirs = threading.Thread(target=create)  # a request has a context of its own
        theirs.start()
        theirs.join()
        return asked()

    monkeypatch.setattr(definitions, "is_dry", after_the_rights)
    shown = send(program, "POST", f"{API}/undo?dry_run=true").get_json()
    assert (world.catalogue / "other.toml").exists()
    assert shown["what"] == "deleted with its file edited.toml"


def test_a_stream_is_shown_as_metadata_of_hop(program: Client, world: World) -> None:
    text = (
        'name = "served"\n[properties]\nstreamType = "flight"\n'
        '"stream.flight.location" = "grpc://127.0.0.1:9"\n'
        '"stream.flight.topic.name" = "served"\n'
    )
    file, path = world.catalogue / "served.toml", f"{API}/streams/served/hop"
    file.write_text(text)
    found = send(program, "GET", path)
    assert found.status_code == 200, found.get_json()
    assert "served" in json.dumps(found.get_json()["element"])
    file.write_text(f'{text}"stream.flight.token" = "hunter2hunter2"\n')
    time.sleep(1.1)  # the catalogue is as it was a moment ago
    refused = send(program, "GET", path)
    assert refused.status_code == 400
    assert "hunter2" not in refused.get_data(as_text=True)


def test_a_pipeline_is_replaced_and_its_commands_are_not(
    program: Client, world: World
) -> None:
    world.letters({"code": b"x"})
    path = f"{API}/pipelines/mine/definition"
    text = (
        f'name = "mine"\ncheckpoint = "{world.folder}/mine"\n[source]\n'
        'stream = "clicks"\n[[sinks]]\nstream = "letters"\n'
    )
    made = send(program, "PUT", path, text, If_None_Match="*")
    assert made.status_code == 201, made.get_json()
    assert send(program, "GET", f"{API}/pipelines/mine").get_json()["problems"] == []
    more, sent = f"# kept\n{text}", {"If_Match": made.headers["ETag"]}
    hook = f'{more}\n[spark]\n"spark.jars" = "/tmp/x.jar"\n'
    refused = send(program, "PUT", path, hook, **sent)
    assert refused.status_code == 400
    assert "[spark] of a pipeline" in refused.get_json()["detail"]
    made = send(program, "PUT", path, more, **sent)
    assert made.status_code == 200, made.get_json()
    gone = send(program, "DELETE", path, If_Match=made.headers["ETag"])
    assert gone.status_code == 200


def test_writes_need_the_state_that_the_client_saw(
    program: Client, world: World
) -> None:
    send(program, "PUT", EDITED, _DEFINITION, If_None_Match="*")
    more = f"# mine\n{_DEFINITION}"
    stale = tag(program, EDITED)
    theirs = f"# theirs\n{_DEFINITION}"
    (world.catalogue / "edited.toml").write_text(theirs)
    before = position(world)
    place = {"place": "0"}
    state = {"paused": True, "rate": None}
    for method, path, body in (
        ("PUT", EDITED, more),
        ("DELETE", EDITED, None),
        ("PUT", POSITION, place),
        ("PUT", CONTROL, state),
        ("PATCH", f"{CLICKS}/topic", {"partitions": 5}),
        ("DELETE", f"{CLICKS}/topic?topic=clicks", None),
        ("POST", f"{CLICKS}/truncation", {"before": "latest"}),
    ):
        lacking = send(program, method, path, body)
        assert lacking.status_code == 428, (path, lacking.get_data(as_text=True))
        assert lacking.mimetype == "application/problem+json"
        for condition in (stale, '"x"', f"W/{tag(program, EDITED)}"):
            refused = send(program, method, path, body, If_Match=condition)
            assert refused.status_code == 412, (path, condition)
    exists = send(program, "PUT", EDITED, more, If_None_Match="*")
    assert exists.status_code == 412
    absent = f"{API}/streams/absent/definition"
    text = _DEFINITION.replace('"edited"', '"absent"')
    assert send(program, "PUT", absent, text).status_code == 428
    assert send(program, "PUT", absent, text, If_Match="*").status_code == 412
    assert (world.catalogue / "edited.toml").read_text() == theirs
    assert position(world) == before
    assert outcomes()[2:].count("made") == 0
    assert "refused" in outcomes()


def test_of_writers_at_once_one_is_made(program: Client, world: World) -> None:
    """Programs and the editor, each with the same state in mind."""
    send(program, "PUT", EDITED, _DEFINITION, If_None_Match="*")
    seen, found = tag(program, EDITED), list[int]()

    def write(number: int) -> None:
        other = Client(program.site, program.client.application.test_client())
        text = f"# {number}\n{_DEFINITION}"
        found.append(send(other, "PUT", EDITED, text, If_Match=seen).status_code)

    program.client.post("/log-in", data={"token": TOKEN}, base_url=PLACE)
    page = program.text("/edit/file", kind="stream", file="edited.toml")
    form = {
        name: page.split(f'name="{name}" value="')[1].split('"')[0]
        for name in ("csrf", "digest")
    }
    form |= {"kind": "stream", "file": "edited.toml", "show": "1"}
    form["text"] = f"# by hand\n{_DEFINITION}"
    shown = program.client.post("/edit/text", data=form, base_url=PLACE)
    key = shown.headers["Location"].split("change=")[1]
    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for one in threads:
        one.start()
    confirm = {"csrf": form["csrf"], "change": key}
    page = program.client.post("/edit/change", data=confirm, base_url=PLACE)
    found.append(page.status_code)
    for one in threads:
        one.join()
    made = [one for one in found if one in (200, 303)]
    assert len(made) == 1, found
    assert set(found) <= {200, 303, 409, 412, 503}, found
    assert outcomes().count("made") == 2


def test_a_definition_with_errors_is_refused_with_all_of_them(program: Client) -> None:
    text = _DEFINITION + '"nope" = "1"\n"out.of.range" = "maybe"\n'
    found = send(program, "PUT", EDITED, text, If_None_Match="*")
    assert found.status_code == 400
    problems = found.get_json()["problems"]
    assert {one["key"] for one in problems} >= {"out.of.range"}
    assert all(one["line"] for one in problems)
    for text, what in (
        ('name = "edited', "the definition has an error"),
        (_DEFINITION.replace('"edited"', '"other"', 1), "the path names 'edited'"),
        (_DEFINITION + '"stream.memory.password" = "hunter2hunter2"', "literal"),
    ):
        found = send(program, "PUT", EDITED, text, If_None_Match="*")
        assert found.status_code == 400, what
        assert what in found.get_json()["detail"]
        assert "hunter2" not in found.get_data(as_text=True)


NAMES: Final = ("..%2fclicks", "%2e%2e", "a%5cb", "%00", "x%0a", ".hidden", "a%2fb")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_no_paths(program: Client, world: World, name: str) -> None:
    before = sorted(world.folder.rglob("*"))
    path = f"{API}/streams/{name}/definition"
    for method in ("GET", "PUT", "DELETE"):
        body = _DEFINITION if method == "PUT" else None
        found = send(program, method, path, body, If_None_Match="*")
        assert 400 <= found.status_code < 500, (method, found.status_code)
    after = sorted(world.folder.rglob("*"))
    assert [one for one in after if "changes" not in str(one)] == [
        one for one in before if "changes" not in str(one)
    ]


# --- positions, topics, letters, jobs -------------------------------------------


def test_a_position_is_compared_and_set(program: Client, world: World) -> None:
    shown = send(program, "PUT", f"{POSITION}&dry_run=true", {"place": "0"})
    assert shown.headers["ETag"] == tag(program, POSITION)
    before = position(world)
    moved = send(
        program, "PUT", POSITION, {"place": "0"}, If_Match=shown.headers["ETag"]
    )
    assert moved.status_code == 200, moved.get_data(as_text=True)
    assert set(position(world)) == {0} != set(before)
    assert moved.headers["ETag"] == tag(program, POSITION)
    # And back, by the position as it was: no place is lost.
    old = {"place": json.dumps(shown.get_json()["before"])}
    back = send(program, "PUT", POSITION, old, If_Match=moved.headers["ETag"])
    assert back.status_code == 200
    assert position(world) == before
    assert outcomes() == ["begun", "made"] * 2
    pipeline = f"{API}/pipelines/delays/position"
    shown = send(program, "PUT", f"{pipeline}?dry_run=true", {"place": "0"})
    sent = {"If_Match": shown.headers["ETag"]}
    moved = send(program, "PUT", pipeline, {"place": "0"}, **sent)
    assert moved.status_code == 200, moved.get_data(as_text=True)
    # It is refused before its ETag is compared: a moved pipeline has to run first.
    assert send(program, "PUT", pipeline, {"place": "0"}, **sent).status_code == 409


def test_topics_are_grown_written_truncated_deleted_and_created(
    program: Client, world: World
) -> None:
    path = f"{CLICKS}/topic"
    wrote = send(program, "POST", f"{CLICKS}/messages", {"row": {"id": 99}})
    assert wrote.status_code == 201, wrote.get_data(as_text=True)
    grown = send(program, "PATCH", path, {"partitions": 3}, If_Match=tag(program, path))
    assert grown.status_code == 200, grown.get_data(as_text=True)
    assert send(program, "GET", path).get_json()["partitions"] == 3
    cut, place = f"{CLICKS}/truncation", {"before": "0=2"}
    shown = send(program, "POST", f"{cut}?dry_run=true", place)
    assert shown.status_code == 200, shown.get_json()
    assert shown.get_json()["what"] == "truncated by 2 offsets"
    done = send(program, "POST", cut, place, If_Match=shown.headers["ETag"])
    assert done.status_code == 200, done.get_data(as_text=True)
    seen = tag(program, path)
    wrong = send(program, "DELETE", f"{path}?topic=other", If_Match=seen)
    assert wrong.status_code == 400
    gone = send(program, "DELETE", f"{path}?topic=clicks", If_Match=seen)
    assert gone.status_code == 200, gone.get_data(as_text=True)
    assert send(program, "GET", path).status_code == 404
    made = send(
        program,
        "PUT",
        path,
        {"columns": "id bigint", "partitions": 2},
        If_None_Match="*",
    )
    assert made.status_code == 201, made.get_data(as_text=True)
    assert send(program, "GET", path).get_json()["partitions"] == 2
    again = send(program, "PUT", path, {"columns": "id bigint"}, If_None_Match="*")
    assert again.status_code == 412
    assert outcomes().count("made") == 5


def test_a_topic_that_changes_at_the_same_moment_is_a_conflict(
    program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{CLICKS}/topic"
    seen = tag(program, path)

    def between(tag: str) -> None:
        answers.expect(tag)
        monkeypatch.setattr(topics, "expect", answers.expect)
        theirs = send(program, "PATCH", path, {"partitions": 3}, If_Match=seen)
        assert theirs.status_code == 200

    monkeypatch.setattr(topics, "expect", between)
    found = send(program, "PATCH", path, {"partitions": 4}, If_Match=seen)
    assert found.status_code == 409, found.get_json()
    assert "has changed since it was shown" in found.get_json()["detail"]
    assert send(program, "GET", path).get_json()["partitions"] == 3
    assert outcomes().count("made") == 1


def test_letters_are_replayed_by_a_job(program: Client, world: World) -> None:
    world.letters({"one": b"first"})
    good = Topic(world.folder / "topics", "good")
    good.options |= {
        "stream.file.messages": "true",
        "stream.file.decoder.class.name": "raw",
    }
    good.file(world.catalogue)
    with open_sink(good.options) as sink:
        sink.put(pa.table({"value": [b"zero"]}), writer_id="w", epoch=0)
    path = f"{API}/streams/letters/replays"
    shown = send(program, "POST", f"{path}?dry_run=true", {"to": "good"})
    assert shown.get_json()["unresolved"] == 1
    begun = send(program, "POST", path, {"to": "good"})
    assert begun.status_code == 202, begun.get_data(as_text=True)
    deadline = time.monotonic() + 60
    while (job := send(program, "GET", begun.headers["Location"]).get_json())[
        "state"
    ] == "running":
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    assert job["state"] == "done", job
    kept = send(program, "GET", f"{API}/streams/letters/letters?to=good&show=all")
    assert [one["resolved"] for one in kept.get_json()["letters"]] == [True]
    assert send(program, "GET", f"{API}/jobs").get_json()["items"] == [job]
    assert send(program, "POST", f"{begun.headers['Location']}/stop").status_code == 202


def test_a_job_is_paused_limited_and_resumed(program: Client) -> None:
    state = {"paused": True, "why": "upgrade", "rate": {"rows": 7}}
    made = send(program, "PUT", CONTROL, state, If_Match=tag(program, CONTROL))
    assert made.status_code == 200, made.get_data(as_text=True)
    found = send(program, "GET", CONTROL)
    assert found.get_json()["pause"]["why"] == "upgrade"
    assert found.get_json()["rate"] == {"rows": 7, "bytes": None}
    assert "upgrade" in program.text("/pipeline", name="delays")
    wrong = {"paused": False, "rate": {"bytes": 7}}
    refused = send(program, "PUT", CONTROL, wrong, If_Match=found.headers["ETag"])
    assert refused.status_code == 400
    state = {"paused": False, "rate": None}
    made = send(program, "PUT", CONTROL, state, If_Match=found.headers["ETag"])
    assert made.get_json() == {"job": "pipeline/delays", "pause": None, "rate": None}
    copy = f"{CLICKS}/copies/changes/control"
    assert send(program, "GET", copy).get_json()["job"] == "copy/clicks/changes"
    assert send(program, "GET", f"{CLICKS}/spool/control").status_code == 404


def test_a_pipeline_that_keeps_no_limits_gets_none(
    program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "keeps_limits", lambda path: path.stem != "delays")
    limited = {"paused": False, "rate": {"rows": 7}}
    seen = tag(program, CONTROL)
    refused = send(program, "PUT", CONTROL, limited, If_Match=seen)
    assert refused.status_code == 400
    assert "cannot be limited" in refused.get_json()["detail"]
    paused = {"paused": True, "rate": None}
    assert send(program, "PUT", CONTROL, paused, If_Match=seen).status_code == 200


def test_of_changes_of_a_job_at_once_one_is_made(
    program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Pause("2026-01-01T00:00:00Z", "anna", "theirs")

    def between(tag: str) -> None:
        answers.expect(tag)
        Controls().change("pipeline/delays", lambda state: JobState(theirs))

    monkeypatch.setattr(controls, "expect", between)
    seen = tag(program, CONTROL)
    found = send(program, "PUT", CONTROL, STATE, If_Match=seen)
    assert found.status_code == 409, found.get_json()
    assert Controls().read("pipeline/delays") == JobState(theirs)
    assert outcomes() == ["begun", "failed"]


def test_live_rows_arrive_and_answers_end(program: Client, world: World) -> None:
    path = f"{CLICKS}/events"
    first = send(program, "GET", f"{path}?wait=0")
    assert first.mimetype == "text/event-stream"
    assert first.get_data(as_text=True) == "retry: 1000\n\n"
    (feed,) = program.site.feeds.open()
    assert feed.following.wait(30)
    with open_sink(world.topic.options) as sink:
        sink.put(pa.table({"id": pa.array([41], pa.int64())}))
    found = send(program, "GET", f"{path}?wait=10").get_data(as_text=True)
    assert '"41"' in found
    last = found.split("id: ")[1].split("\n")[0]
    begin = time.monotonic()
    rest = send(program, "GET", f"{path}?wait=1", Last_Event_ID=last)
    assert rest.get_data(as_text=True) == "retry: 1000\n\n"
    assert 0.9 < time.monotonic() - begin < 30
    assert send(program, "GET", f"{path}?wait=11").status_code == 400


# --- doors ----------------------------------------------------------------------


def test_only_a_token_changes_something(program: Client, world: World) -> None:
    """A session of a browser does not: its cookie would be sent by itself."""
    program.client.post("/log-in", data={"token": TOKEN}, base_url=PLACE)
    before = position(world)
    body = {"place": "0"}
    for headers in ({}, {"Authorization": "Basic x"}, {"Authorization": "Bearer no"}):
        found = send(program, "PUT", POSITION, body, token="", If_Match="*", **headers)
        assert found.status_code == 401
        assert found.headers["WWW-Authenticate"] == "Bearer"
    site = {"Sec-Fetch-Site": "cross-site"}
    found = send(program, "PUT", POSITION, body, If_Match="*", **site)
    assert found.status_code == 403
    assert position(world) == before


def test_the_record_is_only_appended_to(program: Client, world: World) -> None:
    """Not even by who has all rights; and each try of it is in it."""
    world.letters({"one": b"first"})
    changes, text = f"{API}/streams/changes", _DEFINITION.replace("edited", "changes")
    tries: list[tuple[str, str, Any]] = [
        ("POST", f"{changes}/messages", {"row": {}}),
        ("POST", f"{changes}/truncation", {"before": "latest"}),
        ("POST", f"{changes}/truncation?dry_run=true", {"before": "latest"}),
        ("PATCH", f"{changes}/topic", {"partitions": 9}),
        ("DELETE", f"{changes}/topic?topic=changes", None),
        ("PUT", f"{changes}/definition", text),
        ("PUT", EDITED, text),
        ("PUT", f"{changes}/position?group=x", {"place": "0"}),
        ("POST", f"{API}/streams/letters/replays", {"to": "changes"}),
    ]
    for method, path, body in tries:
        found = send(program, method, path, body, If_Match="*")
        assert found.status_code == 403, (path, found.get_json())
        assert "only appended to" in found.get_json()["detail"]
    assert outcomes() == ["refused"] * len(tries)


def test_what_cannot_be_recorded_is_not_done(
    program: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any, **__: Any) -> None:
        msg = "changes cannot be recorded"
        raise ConnectionFailed(msg)

    (world.catalogue / "edited.toml").write_text(_DEFINITION)
    before, seen = position(world), tag(program, EDITED)
    tags = {path: tag(program, path) for path in (POSITION, CONTROL)}
    monkeypatch.setattr(AuditTrail, "write", write)
    for method, path, body, condition in (
        ("DELETE", EDITED, None, seen),
        ("PUT", EDITED, f"# x\n{_DEFINITION}", seen),
        ("PUT", POSITION, {"place": "0"}, tags[POSITION]),
        ("PUT", CONTROL, STATE, tags[CONTROL]),
        ("POST", f"{CLICKS}/messages", {"row": {"id": 1}}, "*"),
    ):
        found = send(program, method, path, body, If_Match=condition)
        assert found.status_code == 503, (path, found.get_json())
        assert found.headers["Retry-After"] == "1"
    assert (world.catalogue / "edited.toml").read_text() == _DEFINITION
    assert position(world) == before
    assert Controls().read("pipeline/delays") == JobState()
    rows = send(program, "GET", f"{CLICKS}/rows?count=200").get_json()["items"]
    assert len(rows) == 14


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"place": "0"}', "text/plain", 415),
        (b"place=0", "application/x-www-form-urlencoded", 415),
        (b'{"place": "0", "place": "1"}', "application/json", 400),
        (b'{"place": "0", "more": 1}', "application/json", 400),
        (b'{"place": 0}', "application/json", 400),
        (b'{"place": null}', "application/json", 400),
        (b'["place"]', "application/json", 400),
        (b"[" * 90_000, "application/json", 400),
        (b'{"place": NaN}', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"", "application/json", 400),
        (b" " * 200_000, "application/json", 413),
    ],
)
def test_other_bodies_are_refused(
    program: Client, content: bytes, kind: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "If-Match": "*"}
    found = program.client.put(
        POSITION, data=content, content_type=kind, headers=headers, base_url=PLACE
    )
    assert found.status_code == status, found.get_data(as_text=True)
    assert found.mimetype == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", POSITION, {"place": "\ud800"}),
        ("PUT", POSITION, {"place": '{"a":' + "[" * 5000}),
        ("PUT", f"{CLICKS}/position?group=..%2f..%2fx", {"place": "0"}),
        ("POST", f"{CLICKS}/messages", {"row": {"id": "\ud800"}}),
        ("POST", f"{CLICKS}/messages", {"row": {"id": 10**400}}),
        ("POST", f"{CLICKS}/messages", {"row": {"id": 1, "_partition": 99}}),
        ("POST", f"{CLICKS}/messages", {"row": {}}),
        ("POST", f"{CLICKS}/messages", {"row": {}, "text": ""}),
        ("POST", f"{CLICKS}/truncation", {"before": "\ud800"}),
        ("PATCH", f"{CLICKS}/topic", {"partitions": 10**30}),
        ("PUT", CONTROL, {"paused": True, "why": "x" * 1001, "rate": None}),
        ("PUT", CONTROL, {"paused": True, "rate": {"rows": True}}),
        ("POST", f"{API}/pipelines/delays/run", {"kind": "stop"}),
    ],
)
def test_values_that_do_not_fit_are_refused(
    program: Client, world: World, method: str, path: str, body: dict[str, Any]
) -> None:
    before = position(world)
    found = send(program, method, path, body, If_Match="*")
    assert found.status_code == 400, found.get_json()
    assert found.get_json()["code"] == "misuse"
    assert position(world) == before
    assert "made" not in outcomes()


def test_live_views_leave_turns_to_changes(program: Client) -> None:
    found: list[float] = []

    def ask() -> None:
        other = Client(program.site, program.client.application.test_client())
        begin = time.monotonic()
        send(other, "GET", f"{CLICKS}/events?wait=4")
        found.append(time.monotonic() - begin)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for one in threads:
        one.start()
    wrote = send(program, "POST", f"{CLICKS}/messages?dry_run=true", {"row": {"id": 1}})
    assert wrote.status_code == 200, wrote.get_json()
    for one in threads:
        one.join()
    assert sum(one >= 4 for one in found) == 2


def test_rights_follow_the_definition_and_not_the_path(
    small: World, tmp_path: Path
) -> None:
    """The text, the file and the path name things: a right is needed for each."""
    patterns = {"mine*": {EDIT: ["anna"], VALUES: ["anna"]}, "*": {READ: ["anna"]}}
    file = users_file(tmp_path / "users.toml", patterns)
    with recorded(small) as trail, people(file, trail=trail) as client:
        anna = token_of("anna")
        text = _DEFINITION.replace('name = "edited"', 'name = "mine"')
        mine, clicks = (f"{API}/streams/{one}/definition" for one in ("mine", "clicks"))
        made = send(client, "PUT", mine, text, token=anna, If_None_Match="*")
        assert made.status_code == 201, made.get_data(as_text=True)
        taken = text.replace('"mine"', '"clicks"')
        for method, path, body in (
            ("GET", clicks, None),
            ("PUT", clicks, text),
            ("PUT", clicks, taken),
            ("PUT", mine, taken),
            ("PUT", f"{mine}?dry_run=true", taken),
            ("DELETE", clicks, None),
        ):
            found = send(client, method, path, body, token=anna, If_Match="*")
            assert found.status_code == 403, (method, path)
            assert found.get_json()["right"] in (EDIT, VALUES)
            assert str(small.folder) not in found.get_data(as_text=True)
        assert outcomes().count("refused") == 5  # all but what was only read
        changes = f"{API}/streams/changes/topic?topic=changes"
        assert send(client, "DELETE", changes, token=TOKEN).status_code == 403


def test_rows_of_live_views_are_masked(small: World, tmp_path: Path) -> None:
    file = users_file(tmp_path / "users.toml", {"*": {READ: ["anna"]}})
    with people(file) as client:
        path = f"{CLICKS}/events?wait=0"
        refused = send(client, "GET", path, token=token_of("anna"))
        assert refused.status_code == 403
        small.topic.options["mask.columns"] = "id=hide"
        small.topic.file(small.catalogue)
        deadline = time.monotonic() + 30
        while send(client, "GET", path, token=token_of("anna")).status_code == 403:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (feed,) = client.site.feeds.open()
        assert feed.following.wait(30)
        with open_sink(small.topic.options) as sink:
            sink.put(pa.table({"id": pa.array([4141], pa.int64())}))
        path = f"{CLICKS}/events?wait=10"
        found = send(client, "GET", path, token=token_of("anna"))
        text = found.get_data(as_text=True)
        assert "***" in text
        assert "4141" not in text


NEEDED: Final[dict[tuple[str, str], tuple[Any, set[str]]]] = {
    ("PUT", "/streams/<name>/definition"): (_DEFINITION, {EDIT, VALUES}),
    ("DELETE", "/streams/<name>/definition"): (None, {EDIT, VALUES}),
    ("PUT", "/pipelines/<name>/definition"): (PIPELINE, {EDIT, VALUES, OPERATE}),
    ("DELETE", "/pipelines/<name>/definition"): (None, {EDIT}),
    ("POST", "/undo"): (None, {EDIT, VALUES}),
    ("PUT", "/streams/<name>/position"): ({"place": "0"}, {OPERATE}),
    ("PUT", "/pipelines/<name>/position"): ({"place": "0"}, {OPERATE}),
    ("PUT", "/streams/<name>/topic"): ({}, {EDIT}),
    ("PATCH", "/streams/<name>/topic"): ({"partitions": 9}, {EDIT}),
    ("DELETE", "/streams/<name>/topic"): (None, {EDIT}),
    ("POST", "/streams/<name>/truncation"): ({"before": "0"}, {EDIT}),
    ("POST", "/streams/<name>/messages"): ({"text": "x"}, {EDIT}),
    ("POST", "/streams/<name>/replays"): ({"to": "clicks"}, {OPERATE}),
    ("POST", "/jobs/<int:number>/stop"): (None, {OPERATE}),
    ("POST", "/pipelines/<name>/run"): ({"kind": "start"}, {OPERATE}),
    ("PUT", "/pipelines/<name>/control"): (STATE, {OPERATE}),
    ("PUT", "/streams/<name>/spool/control"): (STATE, {OPERATE}),
    ("PUT", "/streams/<name>/copies/<to>/control"): (STATE, {OPERATE}),
}
"""What each change is sent, and the rights that it needs."""
QUERIES: Final = {
    "/streams/<name>/position": "?group=billing",
    ("DELETE", "/streams/<name>/topic"): "?topic=clicks",
}


def test_each_change_is_refused_to_each_role_without_its_right(
    world: World, tmp_path: Path
) -> None:
    world.letters({"code": b"x"})
    (world.catalogue / "edited.toml").write_text(_DEFINITION)
    file = users_file(tmp_path / "users.toml", {"*": by_role()})
    with people(file) as client:
        made = send(client, "PUT", EDITED, f"# 1\n{_DEFINITION}", If_Match="*")
        assert made.status_code == 200, made.get_json()
        client.site.jobs.start("replay", lambda job: {}, ("letters", "clicks"))
        found = {
            (method, rule.rule.removeprefix(API))
            for rule in client.client.application.url_map.iter_rules()
            for method in (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}
            if rule.rule.startswith(API)
        }
        assert found == NEEDED.keys()
        for (method, rule), (body, needed) in NEEDED.items():
            more = QUERIES.get((method, rule)) or QUERIES.get(rule, "")
            path = path_of(API + rule) + more
            for user, has in ROLES.items():
                # Whoever may gets as far as the condition, which nothing matches.
                sent = {"If_Match": '"nothing"', "token": token_of(user)}
                if (method, rule) in FREE and needed <= {*has}:
                    continue
                answer = send(client, method, path, body, **sent)
                refused = answer.status_code == 403
                assert refused is not (needed <= {*has}), (method, rule, user)
                if refused:
                    assert answer.get_json()["right"] in needed | {READ}


FREE: Final = (
    ("POST", "/streams/<name>/messages"),
    ("POST", "/streams/<name>/replays"),
    ("POST", "/jobs/<int:number>/stop"),
)
"""Changes without a condition, which would be made."""
