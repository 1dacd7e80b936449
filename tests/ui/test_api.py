"""The interface for programs: its description, answers, rights and problems."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pyarrow as pa
from tests.ui.conftest import PLACE, TOKEN, Client, World, application, recorded
from tests.ui.test_parameters import _DEFINITION, GETS, SOUND, path_of
from tests.ui.test_runs import wait_until

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.holding import hold, note
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spi import ConnectionFailed
from streamfactory.ui import api
from streamfactory.ui.problems import ARROW, PROBLEM
from streamfactory.ui.programs import answers

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from tests.ui.conftest import Browser
    from werkzeug.test import TestResponse

    from streamfactory.ui.messages import Query, RowsPage

API = "/api/v1"
NAMES = {"streams": "clicks", "pipelines": "delays"}


def described(program: Client) -> Any:
    return program.get(f"{API}/openapi.json").get_json()


def check(program: Client, response: TestResponse, path: str) -> Any:
    """The JSON of an answer that is as the description says."""
    document = described(program)
    operation = document["paths"][path]["get"]
    answer = operation["responses"][str(response.status_code)]
    schema = answer["content"][response.mimetype]["schema"]
    found = response.get_json(silent=True)
    jsonschema_rs.validate(
        {**schema, "components": document["components"]},
        response.get_data(as_text=True) if found is None else found,
    )
    return found


def test_every_answer_is_as_it_is_described(world: World) -> None:
    world.letters({"code": b"x"})
    (world.catalogue / "edited.toml").write_text(_DEFINITION)
    with recorded(world) as trail, application(edit=True, trail=trail) as program:
        program.client.post("/log-in", data={"token": TOKEN}, base_url=PLACE)
        program.site.jobs.start("replay", lambda job: {"rows": 0}, ("letters",))
        check_answers(program)


def check_answers(program: Client) -> None:
    paths = described(program)["paths"]
    assert "/streams/{name}/rows" in paths
    for path, operations in paths.items():
        if "get" not in operations:
            continue
        rule = API + re.sub("{(number)}", r"<int:\1>", path)
        rule = re.sub("{(.*?)}", r"<\1>", rule)
        expected = SOUND.get(rule, 200)
        response = program.get(path_of(rule), **GETS[rule])
        if "{number}" in path:
            expected = 200  # there is one here
        assert response.status_code == expected, (path, response.get_json())
        check(program, response, path)
        if "{name}" in path and expected == 200:
            absent = path.replace("{name}", "nope").replace("{to}", "nope")
            given = {"group": "x"} if path.endswith("/streams/{name}/position") else {}
            response = program.get(API + absent, **given)
            assert response.status_code == 404, path
            found = check(program, response, path)
            assert found["code"] == "unknown_stream"


def test_the_description_is_openapi(program: Client) -> None:
    document = described(program)
    assert document["openapi"] == "3.1.0"
    operations = [
        (method, one)
        for path in document["paths"].values()
        for method, one in path.items()
    ]
    assert len({one["operationId"] for _, one in operations}) == len(operations)
    rows = document["paths"]["/streams/{name}/rows"]["get"]
    assert ARROW in rows["responses"]["200"]["content"]
    count = next(one for one in rows["parameters"] if one["name"] == "count")
    assert count["schema"] == {"type": "integer", "minimum": 1, "maximum": 200}
    for method, one in operations:
        assert one["summary"].endswith("."), one
        assert (one.get("security") == [{"token": []}]) is (method != "get")
        assert ("412" in one["responses"]) is (method != "get")


def test_pages_of_rows_have_each_row_once(program: Client) -> None:
    place, found = "earliest", []
    for _ in range(10):
        page = program.get(f"{API}/streams/clicks/rows", **{"from": place}, count=4)
        document = page.get_json()
        found += [(row["_partition"], row["_offset"]) for row in document["items"]]
        place = document["next"]
        if not document["more"]:
            break
    assert sorted(found) == [(0, at) for at in range(10)] + [(1, at) for at in range(4)]


def test_rows_are_the_same_as_arrow(program: Client) -> None:
    path = f"{API}/streams/clicks/rows"
    response = program.client.get(path, base_url=PLACE, headers={"Accept": ARROW})
    assert response.mimetype == ARROW
    rows = pa.ipc.open_stream(response.get_data()).read_all()
    document = program.get(path).get_json()
    assert rows.column("id").to_pylist() == [one["id"] for one in document["items"]]
    assert json.loads(response.headers["Streamfactory-Next"]) == json.loads(
        document["next"]
    )
    refused = program.client.get(path, base_url=PLACE, headers={"Accept": "text/css"})
    assert refused.status_code == 406


def test_an_answer_that_the_client_has_is_not_sent_again(program: Client) -> None:
    path = f"{API}/streams/clicks"
    first = program.get(path)
    sent = {"If-None-Match": first.headers["ETag"]}
    again = program.client.get(path, base_url=PLACE, headers=sent)
    assert (again.status_code, again.get_data()) == (304, b"")
    sent = {"If-None-Match": '"another"'}
    other = program.client.get(path, base_url=PLACE, headers=sent)
    assert other.get_data() == first.get_data()


def test_problems_have_our_codes_and_remedies(program: Client) -> None:
    rows = f"{API}/streams/clicks/rows"
    for path, status, code in (
        (f"{API}/streams?page=x", 400, "misuse"),
        (f"{API}/streams?pgae=1", 400, "misuse"),
        (f"{rows}?from=nonsense", 400, "misuse"),
        (f"{rows}?where=nope(", 400, "misuse"),
        (f"{rows}?partition=9:clicks", 404, "topic_not_found"),
        (f"{API}/nothing", 404, None),
    ):
        response = program.get(path)
        assert response.mimetype == PROBLEM, path
        document = response.get_json()
        assert (response.status_code, document.get("code")) == (status, code), path
        assert document["status"] == status
        assert code is None or document["remedy"]


def test_a_token_is_needed_where_pages_need_one(world: World) -> None:
    del world
    with application(must_log_in=True) as program:
        check_tokens(program)


def check_tokens(program: Client) -> None:
    path = f"{API}/streams"
    for sent, status in (
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
    ):
        response = program.client.get(path, base_url=PLACE, headers=sent)
        assert response.status_code == status, sent
        assert TOKEN not in response.get_data(as_text=True)
        assert status == 200 or response.headers["WWW-Authenticate"] == "Bearer"
    for _ in range(20):
        sent = {"Authorization": "Bearer wrong"}
        program.client.get(path, base_url=PLACE, headers=sent)
    sent = {"Authorization": f"Bearer {TOKEN}"}
    refused = program.client.get(path, base_url=PLACE, headers=sent)
    assert refused.status_code == 401  # too many were wrong lately


def test_pages_of_other_sites_get_nothing(program: Client) -> None:
    sent = {"Sec-Fetch-Site": "cross-site"}
    path = f"{API}/streams/clicks/rows"
    response = program.client.get(path, base_url=PLACE, headers=sent)
    assert response.status_code == 403
    assert response.mimetype == PROBLEM
    assert "Access-Control-Allow-Origin" not in response.headers


def test_programs_that_wait_leave_threads_to_the_pages(
    small: World, serve: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    del small
    answered = threading.Event()

    def away(query: Query) -> RowsPage:
        answered.wait(60)
        msg = "the server is away"
        raise ConnectionFailed(msg, stream=query.stream)

    monkeypatch.setattr(api, "rows_page", away)
    monkeypatch.setattr(answers, "WAIT", 60)
    browser = serve()
    paths = [f"{API}/streams/clicks/rows?count={n}" for n in range(1, 21)]
    with ThreadPoolExecutor(len(paths)) as pool:
        asked = [pool.submit(browser.ask, path) for path in paths]
        early, _ = wait(asked, 60, FIRST_COMPLETED)
        page = browser.ask("/process")
        waiting = sum(not one.done() for one in asked)
        answered.set()
    assert page.status == 200
    assert waiting >= answers.MOST_WAITING  # the page did not wait for them
    found = json.loads(early.pop().result().text)
    assert (found["status"], found["code"]) == (503, "timeout")
    assert "other requests are waiting" in found["detail"]


def test_the_commands_of_the_page_answer_what_it_shows(
    small: World, serve: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.folder)
    monkeypatch.setenv("TOKEN", TOKEN)
    text = _DEFINITION.replace('name = "edited"', 'name = "orders"')
    (small.folder / "orders.toml").write_text(text)
    place = serve(token=TOKEN, edit="true").location.rstrip("/")
    page = (Path(__file__).parents[2] / "docs" / "ui.md").read_text("utf-8")
    section = page.split("## Programs")[1].split("\n## ")[0]
    commands, found = 0, ""
    for block in section.split("```console")[1:]:
        for line in block.split("```")[0].split("\n")[1:-1]:
            if line.startswith("$ "):
                commands += 1
                command = line[2:].replace("http://127.0.0.1:9816", place)
                found = subprocess.run(
                    command, shell=True, capture_output=True, text=True, check=True
                ).stdout
            else:
                assert found.strip() == line, line
    assert commands == 10
    orders = small.catalogue / "orders.toml"
    assert orders.read_text() == f"{text}# of the shop\n"
    with pa.ipc.open_stream((small.folder / "rows.arrow").read_bytes()) as reader:
        assert set(reader.read_all().column("id").to_pylist()) == {1}
    assert json.loads((small.folder / "problem.json").read_text())["status"] == 412


def test_programs_see_that_files_of_a_run_changed(
    world: World, program: Client
) -> None:
    file = world.folder / "configs" / "pipelines" / "delays.toml"
    pipeline = read_pipeline(file).pipeline
    assert pipeline is not None
    place = Place.of(pipeline.checkpoint)
    path = "/pipelines/delays/checkpoint"

    def changes() -> list[str]:
        answer = program.get(f"{API}{path}")
        found: list[str] = check(program, answer, path.replace("delays", "{name}"))[
            "changes"
        ]
        return found

    with hold(place):
        assert changes() == []
        note(place, ["stream clicks: schema (new)"])
        wait_until(changes, "the change")
        assert changes() == ["stream clicks: schema (new)"]
