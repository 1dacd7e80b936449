"""Each parameter of each route, mistyped singly: a status of 4xx, and never silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.ui.conftest import PLACE, TOKEN, Client, World, application, recorded

from streamfactory.ui.parameters import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.ui.parameters import Parameter

_MESSAGES: Final = {"stream": "clicks", "from": "0", "direction": "forward"}
_DEFINITION: Final = """\
name = "edited"
[properties]
streamType = "memory"
"stream.memory.topic.name" = "edited"
"""
SOUND: Final = {
    "/actions/jobs/<int:number>": 404,
    "/edit/change": 400,
    "/edit/found": 400,
    "/edit/preview": 400,
    "/edit/hop": 400,
    "/sign-in": 404,
    "/sign-in/callback": 404,
    "/api/v1/jobs/<int:number>": 404,
    "/api/v1/streams/<name>/spool/control": 404,
    "/api/v1/streams/<name>/hop": 409,
}
"""The status where there is nothing of the kind."""
GETS: Final[dict[str, dict[str, str]]] = {
    "/": {"q": "c", "sort": "name", "page": "1"},
    "/stream": {"name": "clicks", "page": "1", "set": "only"},
    "/group": {"stream": "clicks", "group": "billing"},
    "/dead-letters": {
        "stream": "letters",
        "to": "clicks",
        "end": "last",
        "show": "all",
        "partition": "0:letters",
    },
    "/pipeline": {"name": "delays"},
    "/checkpoint": {"name": "delays", "first": "0", "second": "1"},
    "/process": {},
    "/audit": {"user": "anna", "name": "clicks", "from": "latest"},
    "/map": {},
    "/messages": {**_MESSAGES, "where": "id > 0", "partition": "0:clicks"},
    "/message": {
        "stream": "clicks",
        "topic": "clicks",
        "partition": "0",
        "offset": "1",
    },
    "/download": {**_MESSAGES, "format": "json", "count": "2"},
    "/follow": _MESSAGES,
    "/events": {**_MESSAGES, "after": ""},
    "/log-in": {},
    "/sign-in": {},
    "/sign-in/callback": {},
    "/actions/topic": {"stream": "clicks"},
    "/actions/jobs": {},
    "/actions/jobs/<int:number>": {},
    "/edit/": {},
    "/edit/new": {"kind": "stream", "name": "more", "type": "memory"},
    "/edit/file": {"kind": "stream", "file": "edited.toml", "copy": "1"},
    "/edit/change": {"change": "nothing"},
    "/edit/hop": {"file": "edited.toml"},
    "/edit/found": {"change": "nothing"},
    "/edit/preview": {"change": "nothing"},
    "/api/v1/openapi.json": {},
    "/api/v1/streams": {"q": "c", "page": "1"},
    "/api/v1/streams/<name>": {},
    "/api/v1/streams/<name>/partitions": {},
    "/api/v1/streams/<name>/lag": {},
    "/api/v1/streams/<name>/rows": {
        "from": "0",
        "direction": "forward",
        "partition": "0:clicks",
        "count": "2",
    },
    "/api/v1/pipelines": {"q": "d", "page": "1"},
    "/api/v1/pipelines/<name>": {},
    "/api/v1/pipelines/<name>/lag": {},
    "/api/v1/streams/<name>/definition": {},
    "/api/v1/streams/<name>/position": {"group": "billing"},
    "/api/v1/streams/<name>/topic": {},
    "/api/v1/streams/<name>/letters": {"to": "clicks", "show": "all", "end": "last"},
    "/api/v1/streams/<name>/events": {"partition": "0:clicks", "wait": "0"},
    "/api/v1/streams/<name>/spool/control": {},
    "/api/v1/streams/<name>/copies/<to>/control": {},
    "/api/v1/streams/<name>/topics": {},
    "/api/v1/streams/<name>/hop": {},
    "/api/v1/pipelines/<name>/definition": {},
    "/api/v1/pipelines/<name>/checkpoint": {},
    "/api/v1/pipelines/<name>/run": {},
    "/api/v1/pipelines/<name>/control": {},
    "/api/v1/jobs": {},
    "/api/v1/jobs/<int:number>": {},
    "/api/v1/metrics": {},
    "/api/v1/audit": {"user": "anna", "outcome": "made", "count": "2"},
}
"""What each page is asked for."""
POSTS: Final[dict[str, dict[str, str]]] = {
    "/log-in": {"token": TOKEN},
    "/log-out": {},
    "/sign-in/ended": {"logout_token": "x"},
    "/actions/offsets": {"stream": "clicks", "group": "billing", "place": "0"},
    "/actions/topic": {
        "kind": "grow",
        "stream": "clicks",
        "text": "5",
        "format": "json",
    },
    "/actions/replay": {"stream": "letters", "to": "clicks", "of": "clicks"},
    "/actions/run": {"kind": "start", "pipeline": "delays", "pace": "configured"},
    "/actions/jobs/<int:number>/stop": {},
    "/edit/form": {
        "kind": "stream",
        "file": "edited.toml",
        "digest": "",
        "text": _DEFINITION,
        "set schema": "",
    },
    "/edit/text": {
        "kind": "stream",
        "file": "edited.toml",
        "digest": "",
        "text": _DEFINITION,
    },
    "/edit/topics": {"kind": "stream", "file": "", "digest": "", "text": _DEFINITION},
    "/edit/delete": {"kind": "stream", "file": "edited.toml"},
    "/edit/undo": {},
    "/edit/import": {"text": "{}"},
    "/edit/preview": {"kind": "pipeline", "file": "", "text": "", "digest": ""},
    "/edit/parts": {
        "kind": "pipeline",
        "file": "",
        "text": "[source]\nstream = 'x'\n",
        "do": "add steps",
    },
    "/edit/look": {"name": "more", "place": "nowhere", "type": "file", "topic": "x"},
    "/edit/change": {"change": "nothing"},
}
"""What each form sends."""
NAMES: Final = {"stream", "name", "to", "of", "group", "pipeline", "file", "change"}
"""What names something, so that a word that names nothing is refused."""
ANY: Final = {
    ("/audit", "name"),
    ("/api/v1/audit", "name"),
    ("/edit/new", "name"),
    ("/edit/form", "name"),
    ("/edit/topics", "name"),
    ("/edit/look", "name"),
}
"""Names of something that need not exist."""
HUGE: Final = "9" * 5000
NUMBERS: Final = ("x", "-1", "1.5", "\u0663", HUGE)
TEXTS: Final = ("nonsense", HUGE, "\0")


@pytest.fixture
def logged_in(world: World) -> Iterator[Client]:
    """A client with the token, and a definition that can be edited."""
    world.letters({"code": b"x"})
    (world.catalogue / "edited.toml").write_text(_DEFINITION)
    with recorded(world) as trail, application(edit=True, trail=trail) as found:
        found.client.post("/log-in", data={"token": TOKEN}, base_url=PLACE)
        yield found


def mistyped(declared: Sequence[Parameter]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Changes of what is sent, and whether each has to be refused."""
    yield {"nope": "1"}, True
    yield {"nope": ""}, True
    for one in declared:
        yield {one.name: None}, one.required
        yield {one.name: ""}, one.required
        if one.many:
            continue
        yield {one.name: ["1", "1"]}, True
        wrong = NUMBERS if one.least is not None else TEXTS
        for value in wrong:
            refused = bool(one.words) or one.least is not None or one.name in NAMES
            yield {one.name: value}, refused


def changed(sound: Mapping[str, str], change: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent with a change; None leaves a parameter out."""
    found = {**sound, **change}
    return {name: value for name, value in found.items() if value is not None}


def routes(client: Client, method: str) -> dict[str, str]:
    """The endpoint of each route, by its path; of changes those of pages."""
    return {
        rule.rule: rule.endpoint
        for rule in client.client.application.url_map.iter_rules()
        if method in (rule.methods or ())
        and rule.endpoint != "static"
        and (method == "GET" or not rule.rule.startswith("/api/"))
    }


def path_of(rule: str) -> str:
    """A path of a route, to what the fixtures have."""
    name = "delays" if "/pipelines/" in rule else "clicks"
    if rule.startswith("/api/v1/streams/<name>/"):
        special = {"definition": "edited", "letters": "letters", "replays": "letters"}
        name = special.get(rule.rpartition("/")[2], name)
    for word, value in (("<name>", name), ("<to>", "letters"), ("<int:number>", "1")):
        rule = rule.replace(word, value)
    return rule


def declared(
    client: Client, endpoint: str, sound: Mapping[str, str]
) -> list[Parameter]:
    with client.client.application.app_context():
        found = list(parameters_of(endpoint))
    names = {one.name for one in found}
    assert {name for name in sound if not name.startswith("set ")} <= names, endpoint
    return found


def test_what_pages_are_asked_for_is_used_or_refused(logged_in: Client) -> None:
    found = routes(logged_in, "GET")
    assert found.keys() == GETS.keys()
    for rule, sound in GETS.items():
        path = path_of(rule)
        for feed in logged_in.site.feeds.open():
            feed.stop.set()  # there is a limit of them
        status = logged_in.get(path, **sound).status_code
        assert status == SOUND.get(rule, 200), (rule, status)
        for change, refused in mistyped(declared(logged_in, found[rule], sound)):
            status = logged_in.get(path, **changed(sound, change)).status_code
            expected = refused and (rule, *change) not in ANY
            # A search of a busy machine may not end in time.
            late = (503,) if "where" in change or rule.endswith("/events") else ()
            assert status < 500 or status in late, (rule, change, status)
            assert not expected or status >= 400, (rule, change, status)


def test_what_forms_send_is_used_or_refused(logged_in: Client) -> None:
    found = routes(logged_in, "POST")
    assert found.keys() == POSTS.keys()
    for rule, sound in POSTS.items():
        path = rule.replace("<int:number>", "1")
        if found[rule] in ("log_in", "log_out"):
            continue  # they answer with a session, or its end
        csrf = logged_in.text("/edit/").split('name="csrf" value="')[1].split('"')[0]
        for change, refused in mistyped(declared(logged_in, found[rule], sound)):
            form = changed(sound, {**change, "csrf": csrf})
            status = logged_in.client.post(path, data=form, base_url=PLACE).status_code
            assert status < 500, (rule, change, status)
            expected = refused and (rule, *change) not in ANY
            assert not expected or status >= 400, (rule, change, status)


def test_the_query_of_a_form_is_refused(logged_in: Client) -> None:
    csrf = logged_in.text("/edit/").split('name="csrf" value="')[1].split('"')[0]
    found = logged_in.client.post(
        "/edit/undo?file=x", data={"csrf": csrf}, base_url=PLACE
    )
    assert found.status_code == 400
    assert "no parameter" in found.get_data(as_text=True)
