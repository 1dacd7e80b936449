"""Each route with each role, and those who say that they are somebody else."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.ui.conftest import (
    PLACE,
    TOKEN,
    Client,
    World,
    application,
    recorded,
    settings,
)
from tests.ui.test_parameters import _DEFINITION, GETS, POSTS, path_of, routes
from tests.ui.test_runs import wait_until

from streamfactory.spi import ConfigError
from streamfactory.spi.users import UserFile
from streamfactory.ui import rights
from streamfactory.ui.people import TABLES
from streamfactory.ui.proxies import Proxy, parse_networks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.ui.conftest import Browser
    from werkzeug.test import TestResponse

READ, VALUES, OPERATE, EDIT = "read", "values", "operate", "edit"
ALL: Final = (READ, VALUES, OPERATE, EDIT)
NEEDED: Final[dict[str, set[str]]] = {
    "/": {READ},
    "/stream": {READ},
    "/group": {READ},
    "/dead-letters": {VALUES},
    "/pipeline": {READ},
    "/checkpoint": {READ},
    "/process": {READ},
    "/map": {READ},
    "/audit": {VALUES},
    "/api/v1/audit": {VALUES},
    "/messages": {VALUES},
    "/message": {VALUES},
    "/download": {VALUES},
    "/follow": {VALUES},
    "/events": {VALUES},
    "/log-in": set(),
    "/log-out": set(),
    "/sign-in": set(),
    "/sign-in/callback": set(),
    "/sign-in/ended": set(),
    "/actions/topic": {EDIT},
    "/actions/jobs": {OPERATE},
    "/actions/jobs/<int:number>": {OPERATE},
    "/actions/jobs/<int:number>/stop": {OPERATE},
    "/actions/offsets": {OPERATE},
    "/actions/replay": {OPERATE},
    "/actions/run": {OPERATE},
    "/edit/": {EDIT},
    "/edit/new": {EDIT},
    "/edit/file": {EDIT},
    "/edit/form": {EDIT},
    "/edit/text": {EDIT},
    "/edit/topics": {EDIT},
    "/edit/delete": {EDIT},
    "/edit/undo": {EDIT},
    "/edit/import": {EDIT},
    "/edit/hop": {EDIT},
    "/edit/parts": {EDIT},
    "/edit/preview": {EDIT, VALUES, OPERATE},
    "/edit/look": {EDIT, VALUES},
    "/edit/found": {EDIT, VALUES},
    "/edit/change": {EDIT, VALUES},
    "/api/v1/openapi.json": {READ},
    "/api/v1/streams": {READ},
    "/api/v1/streams/<name>": {READ},
    "/api/v1/streams/<name>/partitions": {READ},
    "/api/v1/streams/<name>/lag": {READ},
    "/api/v1/streams/<name>/rows": {VALUES},
    "/api/v1/pipelines": {READ},
    "/api/v1/pipelines/<name>": {READ},
    "/api/v1/pipelines/<name>/lag": {READ},
    "/api/v1/streams/<name>/definition": {EDIT},
    "/api/v1/streams/<name>/position": {READ},
    "/api/v1/streams/<name>/topic": {READ},
    "/api/v1/streams/<name>/letters": {VALUES},
    "/api/v1/streams/<name>/events": {VALUES},
    "/api/v1/streams/<name>/spool/control": {READ},
    "/api/v1/streams/<name>/copies/<to>/control": {READ},
    "/api/v1/streams/<name>/topics": {EDIT},
    "/api/v1/streams/<name>/hop": {EDIT},
    "/api/v1/pipelines/<name>/definition": {EDIT},
    "/api/v1/pipelines/<name>/checkpoint": {READ},
    "/api/v1/pipelines/<name>/run": {READ},
    "/api/v1/pipelines/<name>/control": {READ},
    "/api/v1/jobs": {OPERATE},
    "/api/v1/jobs/<int:number>": {OPERATE},
    "/api/v1/metrics": {READ},
}
"""The rights that each path needs; each right includes that to read."""
ROLES: Final = {
    "nobody": (),
    "reader": (READ,),
    "viewer": (VALUES,),
    "operator": (OPERATE,),
    "editor": (EDIT,),
    "author": (EDIT, VALUES),
    "blind": (OPERATE, EDIT),
    "owner": ALL,
}
_LISTS: Final = {
    "/",
    "/map",
    "/actions/jobs",
    "/edit/",
    "/edit/import",
    "/edit/undo",
    "/api/v1/openapi.json",
    "/api/v1/streams",
    "/api/v1/pipelines",
    "/api/v1/jobs",
}
"""What a user may see who has a right for anything: it shows that only."""


def token_of(user: str) -> str:
    return f"the-token-of-{user}-is-long"


def users_file(path: Path, patterns: dict[str, dict[str, list[str]]]) -> Path:
    """A file of all roles, with the same rights for streams and pipelines."""
    names = [*ROLES, "elsewhere", "anna"]
    lines = ["[tokens]", *(f'{name} = "{token_of(name)}"' for name in names)]
    for pattern, given in patterns.items():
        for kind in TABLES:
            lines.append(f'[{kind}."{pattern}"]')
            lines += [f"{right} = {users}" for right, users in given.items()]
    path.write_text("\n".join(lines))
    return path


def by_role() -> dict[str, list[str]]:
    return {right: [one for one in ROLES if right in ROLES[one]] for right in ALL}


@contextmanager
def people(file: Path, **more: Any) -> Iterator[Client]:
    users = UserFile(str(file), TABLES, others=True)
    with application(edit=True, file=users, **more) as client:
        yield client


@pytest.fixture
def everybody(world: World, tmp_path: Path) -> Iterator[Client]:
    """All roles, with what each route of the pages is about."""
    world.letters({"code": b"x"})
    (world.catalogue / "edited.toml").write_text(_DEFINITION)
    patterns = {"*": by_role(), "other-*": {right: ["elsewhere"] for right in ALL}}
    file = users_file(tmp_path / "users.toml", patterns)
    with recorded(world) as trail, people(file, trail=trail) as found:
        yield found


def log_in(client: Client, user: str) -> str:
    """Log in, and return the secret of the forms."""
    sent = {"token": token_of(user)}
    assert client.client.post("/log-in", data=sent, base_url=PLACE).status_code == 303
    return client.text("/log-in").split('name="csrf" value="')[1].split('"')[0]


def asked(client: Client, method: str, rule: str, csrf: str) -> TestResponse:
    path = path_of(rule)
    if method == "GET":
        return client.get(path, **GETS[rule])
    form = {**POSTS[rule], "csrf": csrf}
    found: TestResponse = client.client.post(path, data=form, base_url=PLACE)
    return found


def started(client: Client) -> None:
    """A job of which the routes of jobs are."""
    client.site.jobs.start("replay", lambda job: {"rows": 0}, ("letters", "clicks"))


def test_each_route_is_refused_to_each_role_without_its_right(
    everybody: Client,
) -> None:
    started(everybody)
    walked = set()
    for user, has in {**ROLES, "elsewhere": ()}.items():
        csrf = log_in(everybody, user)
        for method in ("GET", "POST"):
            for rule in routes(everybody, method):
                walked.add(rule)
                if rule.startswith(("/log-", "/sign-in")):
                    continue
                needed = NEEDED[rule]
                enough = needed <= {*has, *([READ] if has else [])}
                if user == "elsewhere" and rule in _LISTS:
                    enough = True
                if rule in ("/edit/change", "/edit/found", "/edit/preview"):
                    continue  # there is none: see below
                found = asked(everybody, method, rule, csrf)
                refused = found.status_code == 403
                assert refused is not enough, (user, method, rule, found.status_code)
                if refused:
                    text = found.get_data(as_text=True)
                    assert "the right" in text, (user, rule, text)
                    missing = needed - {*has} | ({READ} if not has else set())
                    assert any(f"right {one} is" in text for one in missing), rule
    assert walked == NEEDED.keys()


def test_routes_declare_the_rights_that_the_test_expects(everybody: Client) -> None:
    with everybody.client.application.app_context():
        for method in ("GET", "POST"):
            for rule, endpoint in routes(everybody, method).items():
                found = {
                    one.right.value for one in rights.rules_of(endpoint) if one.right
                }
                assert found - {READ} <= NEEDED[rule] | {OPERATE}, rule
                assert NEEDED[rule] <= found | {READ}, rule


def test_a_route_without_rights_is_not_made() -> None:
    with pytest.raises(AttributeError, match="streamfactory_rights"):
        rights.permitted(lambda: "")


def test_programs_have_the_rights_of_their_token(everybody: Client) -> None:
    def status(user: str, path: str) -> int:
        headers = {"Authorization": f"Bearer {token_of(user)}"}
        found = everybody.client.get(path, base_url=PLACE, headers=headers)
        if found.status_code == 403:
            assert found.mimetype == "application/problem+json"
            assert found.get_json()["right"] in ALL
        return int(found.status_code)

    assert status("viewer", "/api/v1/streams/clicks/rows") == 200
    assert status("reader", "/api/v1/streams/clicks/rows") == 403
    assert status("reader", "/api/v1/streams/clicks") == 200
    assert status("nobody", "/api/v1/streams") == 403
    assert status("stranger", "/api/v1/streams") == 401
    assert everybody.get("/api/v1/streams").status_code == 401
    assert everybody.get("/").status_code == 302  # to the log-in


def test_names_of_others_are_not_shown(world: World, tmp_path: Path) -> None:
    """Only what a user may read is in lists, on the map, and in errors."""
    world.letters({"code": b"x"})
    patterns = {"let*": {VALUES: ["anna"], EDIT: ["anna"]}}
    with people(users_file(tmp_path / "users.toml", patterns)) as client:
        csrf = log_in(client, "anna")
        assert "letters" in client.text("/")
        shown = ["/", "/map", "/dead-letters", "/stream?name=letters", "/edit/"]
        shown += ["/stream?name=letters-too", "/stream?name=clack"]
        shown += [f"/dead-letters?stream=letters&to={to}" for to in ("clack", "let")]
        shown += ["/api/v1/streams", "/api/v1/pipelines", "/api/v1/streams/letters-too"]
        for path in shown:
            text = client.text(path)
            for name in ("clicks", "billing", "delays", "Remedy: did you mean"):
                assert name not in text, (path, name)
        unknown = client.get("/stream", name="clack")
        hidden = client.get("/stream", name="clicks")
        assert unknown.status_code == hidden.status_code == 403
        assert client.get("/stream", name="letters-too").status_code == 404
        found = client.get("/dead-letters", stream="letters", to="clicks")
        assert found.status_code == 403
        text = 'name = "let"\n[source]\nstream = "clack"\n'
        text += '[[sinks]]\nstream = "letter"\n'
        page = saved(client, csrf, "pipeline", text).get_data(as_text=True)
        assert "no stream is named" in page
        for name in ("clicks", "billing", "did you mean"):
            assert name not in page, name


def stream_with(client: Client, text: str) -> str:
    """The page of the stream, once it has a text: it looks up the topic first."""

    def page() -> str:
        return client.text("/stream", name="clicks")

    wait_until(lambda: text in page(), text)
    return page()


def test_pages_offer_what_their_user_may_see(small: World, tmp_path: Path) -> None:
    file = users_file(
        tmp_path / "users.toml", {"cl*": {READ: ["anna"]}, "*": {VALUES: ["owner"]}}
    )
    expected = {
        "anna": ("that you may see", "You may not see its messages"),
        "owner": ("none was named", "newest messages"),
    }
    for user, (pipelines, messages) in expected.items():
        with people(file) as client:
            assert "Your own token" in client.text("/log-in")
            log_in(client, user)
            page = client.text("/")
            assert pipelines in page
            stream = stream_with(client, messages)
            offered = '<a href="/process">' in page
            assert offered is (client.get("/process").status_code == 200)
            assert offered is (user == "owner")
            offered = "/messages?" in stream
            assert offered is (
                client.get("/messages", stream="clicks").status_code == 200
            )
    # With a mask, rows may be seen by those who may read.
    small.topic.file(small.catalogue, **{"mask.columns": "id=hide"})
    with people(file) as client:
        log_in(client, "anna")
        stream_with(client, "newest messages")
        assert client.get("/messages", stream="clicks").status_code == 200


def test_rights_follow_the_stream_and_not_the_word_for_it(
    small: World, tmp_path: Path
) -> None:
    """A stream is also found by the name of its file."""
    (small.catalogue / "clicks.toml").unlink(missing_ok=True)
    made = next(iter(small.catalogue.iterdir()))
    text = made.read_text()
    made.unlink()
    (small.catalogue / f"mine{made.suffix}").write_text(text)
    file = users_file(tmp_path / "users.toml", {"mine": {VALUES: ["anna"]}})
    with people(file) as client:
        log_in(client, "anna")
        for path in ("/messages?stream=mine", "/api/v1/streams/mine/rows"):
            found = client.get(path)
            assert found.status_code == 403
            assert "clicks" in found.get_data(as_text=True)


def test_what_was_shown_is_refused_when_the_right_was_withdrawn(
    world: World, tmp_path: Path
) -> None:
    del world
    file = users_file(tmp_path / "users.toml", {"*": {OPERATE: ["anna"]}})
    with people(file) as client:
        csrf = log_in(client, "anna")
        form = {**POSTS["/actions/offsets"], "csrf": csrf}
        shown = client.client.post("/actions/offsets", data=form, base_url=PLACE)
        key = shown.get_data(as_text=True).split('name="change" value="')[1]
        users_file(file, {"*": {READ: ["anna"]}})
        form = {"csrf": csrf, "change": key.split('"')[0]}
        deadline = time.monotonic() + 30
        while "Set the position" in client.text(
            "/group", stream="clicks", group="billing"
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        found = client.client.post("/actions/offsets", data=form, base_url=PLACE)
        assert found.status_code == 403
        assert "the right operate is missing" in found.get_data(as_text=True)


def test_a_session_ends_with_its_token(small: World, tmp_path: Path) -> None:
    del small
    file = users_file(tmp_path / "users.toml", {"*": {READ: ["*"]}})
    with people(file) as client:
        log_in(client, "anna")
        assert client.get("/").status_code == 200
        file.write_text(file.read_text().replace(token_of("anna"), token_of("anna-2")))
        deadline = time.monotonic() + 30
        while client.get("/").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert client.get("/").status_code == 302


def test_letters_are_not_replayed_where_the_user_could_see_them(
    world: World, tmp_path: Path
) -> None:
    world.letters({"code": b"x"})
    patterns = {
        "letters": {OPERATE: ["anna"]},
        "clicks": {OPERATE: ["anna"], VALUES: ["anna"]},
    }
    with people(users_file(tmp_path / "users.toml", patterns)) as client:
        csrf = log_in(client, "anna")
        form = {"stream": "letters", "to": "clicks", "csrf": csrf}
        found = client.client.post("/actions/replay", data=form, base_url=PLACE)
        assert found.status_code == 403
        assert "the right values is missing" in found.get_data(as_text=True)
        form["of"] = "clicks"  # they are its own
        found = client.client.post("/actions/replay", data=form, base_url=PLACE)
        assert found.status_code == 200


def test_letters_are_not_replayed_where_other_masks_would_show_them(
    world: World, tmp_path: Path
) -> None:
    world.letters({"code": b"x"})
    world.topic.options["mask.columns"] = "phone=hide"
    world.topic.file(world.catalogue)
    file = users_file(tmp_path / "users.toml", {"*": {OPERATE: ["anna"]}})
    with people(file) as client:
        csrf = log_in(client, "anna")
        form = {"stream": "letters", "to": "clicks", "csrf": csrf}
        found = client.client.post("/actions/replay", data=form, base_url=PLACE)
        assert found.status_code == 403
        assert "the right values is missing" in found.get_data(as_text=True)


# --- definitions ----------------------------------------------------------------


def saved(client: Client, csrf: str, kind: str, text: str) -> TestResponse:
    form = {"kind": kind, "file": "", "digest": "", "text": text, "show": "1"}
    found: TestResponse = client.client.post(
        "/edit/text", data={**form, "csrf": csrf}, base_url=PLACE
    )
    if found.status_code != 303:
        return found
    key = found.headers["Location"].split("change=")[1]
    shown = client.get("/edit/change", change=key)
    if shown.status_code != 200:
        return shown
    form = {"csrf": csrf, "change": key}
    made: TestResponse = client.client.post("/edit/change", data=form, base_url=PLACE)
    return made


def test_definitions_are_edited_within_the_patterns(
    small: World, tmp_path: Path
) -> None:
    patterns = {"edit*": {EDIT: ["anna"], VALUES: ["anna"]}, "blind*": {EDIT: ["anna"]}}
    with people(users_file(tmp_path / "users.toml", patterns)) as client:
        csrf = log_in(client, "anna")
        assert saved(client, csrf, "stream", _DEFINITION).status_code == 303
        assert (small.catalogue / "edited.toml").exists()
        for name in ("other", "blind-one"):
            text = _DEFINITION.replace('"edited"', f'"{name}"')
            found = saved(client, csrf, "stream", text)
            assert found.status_code == 403, name
        assert len(list(small.catalogue.glob("*.toml"))) == len(
            {"edited"} | {one.stem for one in small.catalogue.glob("c*.toml")}
        )
        before = small.catalogue / "edited.toml"
        digest = client.text("/edit/file", kind="stream", file="edited.toml")
        digest = digest.split('name="digest" value="')[1].split('"')[0]
        renamed = _DEFINITION.replace('"edited"', '"clicks-2"')
        form = {"kind": "stream", "file": "edited.toml", "text": renamed, "show": "1"}
        form |= {"digest": digest, "csrf": csrf}
        found = client.client.post("/edit/text", data=form, base_url=PLACE)
        assert found.status_code == 403
        assert before.read_text() == _DEFINITION


def test_a_preview_needs_to_run_the_pipeline_and_to_see_what_it_reads(
    world: World, tmp_path: Path
) -> None:
    text = (
        'name = "daily"\ncheckpoint = "k"\n[source]\nstream = "clicks"\n'
        '[[sinks]]\nstream = "clicks"\n'  # which is refused, after the rights
    )
    everything = {right: ["owner"] for right in ALL}
    patterns = {
        "*": everything,
        "daily": {EDIT: ["anna", "blind", "author"], OPERATE: ["blind", "author"]},
        "clicks": {VALUES: ["anna", "author"]},
    }
    with people(users_file(tmp_path / "users.toml", patterns)) as client:
        for user, missing in (
            ("anna", "operate"),
            ("blind", "values"),
            ("author", None),
            ("owner", None),
        ):
            csrf = log_in(client, user)
            form = {"csrf": csrf, "kind": "pipeline", "text": text}
            found = client.client.post("/edit/preview", data=form, base_url=PLACE)
            page = found.get_data(as_text=True)
            expected = 400 if missing is None else 403
            assert found.status_code == expected, (user, page)
            if missing is not None:
                assert f"the right {missing} is missing" in page


def test_a_place_is_looked_at_within_the_patterns(small: World, tmp_path: Path) -> None:
    patterns = {
        "edit*": {EDIT: ["anna"], VALUES: ["anna"]},
        "blind*": {EDIT: ["anna"]},
        "clicks": {EDIT: ["anna"]},
    }
    place, where = {"place": str(small.folder / "topics")}, ""
    with people(users_file(tmp_path / "users.toml", patterns)) as client:
        csrf = log_in(client, "anna")
        for name, more, expected in (
            ("edited", place, 303),
            ("blind-one", place, 403),
            ("other", place, 403),
            ("edited", {"like": "clicks"}, 403),  # whose rows anna may not see
        ):
            form = {"csrf": csrf, "name": name, **more}
            found = client.client.post("/edit/look", data=form, base_url=PLACE)
            assert found.status_code == expected, (name, more)
            if expected == 303:
                where = found.headers["Location"]
        assert client.get(where).status_code == 200
        log_in(client, "owner")
        assert client.get(where).status_code == 403  # of another session


def test_a_pipeline_carries_no_rows_out_of_reach(world: World, tmp_path: Path) -> None:
    """Its editor needs the values of what it reads, and writes what may be operated."""
    world.letters({"code": b"x"})
    text = (
        f'name = "mine"\ncheckpoint = "{tmp_path}/kept"\n[source]\nstream = "clicks"\n'
        '[[sinks]]\nstream = "letters"\n'
    )
    cases: list[tuple[dict[str, list[str]], dict[str, list[str]], str]] = [
        ({READ: ["anna"]}, {OPERATE: ["anna"]}, "values"),
        ({VALUES: ["anna"]}, {READ: ["anna"]}, "operate"),
    ]
    for source, sink, missing in cases:
        patterns = {"mine": {EDIT: ["anna"]}, "clicks": source, "letters": sink}
        with people(users_file(tmp_path / "users.toml", patterns)) as client:
            csrf = log_in(client, "anna")
            found = saved(client, csrf, "pipeline", text)
            assert found.status_code == 403, found.get_data(as_text=True)
            assert f"the right {missing} is" in found.get_data(as_text=True)


# --- the proxy ------------------------------------------------------------------


SECRET = "a-secret-of-the-proxy-0123456789"
PROXY = Proxy(
    SECRET,
    parse_networks(("127.0.0.1", "10.1.0.0/16")),
    "X-Forwarded-User",
    "X-Forwarded-Groups",
    "X-Proxy-Secret",
)


@pytest.fixture
def proxied(small: World, tmp_path: Path) -> Iterator[Callable[..., TestResponse]]:
    """Sends a request with headers, from an address."""
    del small
    patterns = {"*": {READ: ["anna"], VALUES: ["@team"], EDIT: ["owner"]}}
    with people(users_file(tmp_path / "users.toml", patterns), proxy=PROXY) as client:

        def ask(
            path: str, address: str = "127.0.0.1", form: Any = None, **headers: str
        ) -> TestResponse:
            found: TestResponse = client.client.open(
                path,
                base_url=PLACE,
                method="GET" if form is None else "POST",
                data=form,
                headers={key.replace("_", "-"): one for key, one in headers.items()},
                environ_base={"REMOTE_ADDR": address},
            )
            return found

        yield ask


ANNA = {"X_Forwarded_User": "anna", "X_Proxy_Secret": SECRET}


def test_a_trusted_proxy_says_who_users_are(
    proxied: Callable[..., TestResponse],
) -> None:
    assert proxied("/").status_code == 302
    assert proxied("/", **ANNA).status_code == 200
    assert proxied("/", address="10.1.7.7", **ANNA).status_code == 200
    assert proxied("/", address="::ffff:10.1.7.7", **ANNA).status_code == 200
    rows = "/api/v1/streams/clicks/rows"
    assert proxied(rows, **ANNA).status_code == 403
    assert proxied(rows, **ANNA, X_Forwarded_Groups="a, team").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Forwarded_User": "anna"},
        {"X_Forwarded_User": "owner", "X_Proxy_Secret": ""},
        {"X_Forwarded_User": "owner", "X_Proxy_Secret": SECRET[:-1]},
        {"X_Forwarded_User": "owner", "X_Proxy_Secret": f"{SECRET}, {SECRET}"},
        {"X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "", "X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "anna, owner", "X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "*", "X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "@team", "X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "(token)", "X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "<script>", "X_Proxy_Secret": SECRET},
        {"X_Forwarded_User": "\u00e4nna", "X_Proxy_Secret": SECRET},
        {**ANNA, "X_Forwarded_Groups": "team, @team"},
        {**ANNA, "X_Forwarded_Groups": "*"},
    ],
)
def test_who_says_another_name_is_refused(
    proxied: Callable[..., TestResponse], headers: dict[str, str]
) -> None:
    for path in ("/", "/api/v1/streams", "/log-in", "/static/style.css"):
        found = proxied(path, **headers)
        assert found.status_code == 403, path
        assert "Set-Cookie" not in found.headers
    assert proxied("/", address="10.2.0.1", **ANNA).status_code == 403
    assert proxied("/", address="", **ANNA).status_code == 403


def test_a_session_is_of_the_user_that_the_proxy_says(
    proxied: Callable[..., TestResponse],
) -> None:
    owner = {**ANNA, "X_Forwarded_User": "owner"}
    page = proxied("/actions/topic?stream=clicks", **owner)
    csrf = page.get_data(as_text=True).split('name="csrf" value="')[1].split('"')[0]
    form = {**POSTS["/actions/topic"], "csrf": csrf}
    # Neither without the headers nor as another user, with the same cookie.
    assert proxied("/actions/topic", form=form).status_code == 401
    assert proxied("/actions/topic", form=form, **ANNA).status_code == 403
    page = proxied("/actions/topic?stream=clicks", **owner)
    csrf = page.get_data(as_text=True).split('name="csrf" value="')[1].split('"')[0]
    shown = proxied("/actions/topic", form={**form, "csrf": csrf}, **owner)
    assert shown.status_code == 200


def test_the_name_of_a_user_is_no_part_of_a_page(small: World, tmp_path: Path) -> None:
    del small
    file = tmp_path / "users.toml"
    name, token = "<script>alert(1)</script>", token_of("x")
    file.write_text(
        f"[tokens]\n\"{name}\" = '{token}'\n[streams.\"*\"]\nread = ['*']\n"
    )
    with people(file) as client:
        client.client.post("/log-in", data={"token": token}, base_url=PLACE)
        for path in ("/", "/messages?stream=clicks"):
            text = client.text(path)
            assert name not in text
            assert "&lt;script&gt;alert(1)" in text


def test_headers_with_underscores_or_twice_are_no_headers_of_the_proxy(
    serve: Callable[..., Browser], small: World, tmp_path: Path
) -> None:
    """As a server of WSGI would join them, or take one for the other."""
    del small
    file = users_file(tmp_path / "users.toml", {"*": {READ: ["anna", "owner"]}})
    browser = serve(
        access_file=file, proxy_secret=SECRET, proxy_addresses="127.0.0.1", every=60
    )

    def status(*lines: str) -> str:
        host, _, port = browser.place.partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            sent = ("GET / HTTP/1.1", "Host: localhost", "Connection: close", *lines)
            connection.sendall("\r\n".join((*sent, "", "")).encode())
            return connection.recv(12).decode()[-3:]

    key = f"X-Proxy-Secret: {SECRET}"
    assert status(key, "X-Forwarded-User: anna") == "200"
    assert status(key, "X_Forwarded_User: owner") == "403"
    assert status(key, "X-Forwarded-User: anna", "X-Forwarded-User: owner") == "403"
    assert status(f"X_Proxy_Secret: {SECRET}", "X-Forwarded-User: owner") == "403"
    assert status("X-Forwarded-User: owner", "X-Forwarded-For: 127.0.0.1") == "403"


# --- settings -------------------------------------------------------------------


WRONG = [
    ({"proxy_secret": SECRET}, r"proxy\.secret: requires proxy\.addresses"),
    ({"proxy_addresses": "::1"}, r"proxy\.addresses: requires proxy\.secret"),
    (
        {"proxy_secret": SECRET, "proxy_addresses": "10.0.0.1"},
        r"proxy\.secret: requires access\.file",
    ),
    ({"proxy_addresses": "10.0.0.1/8"}, "has host bits set"),
    ({"proxy_user_header": "x-proxy-secret"}, "headers of the proxy have one name"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_settings_of_a_proxy_that_do_not_fit_are_refused(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(**options)


def test_the_file_of_users_opens_other_addresses(tmp_path: Path) -> None:
    file = users_file(tmp_path / "users.toml", {"*": {READ: ["*"]}})
    settings(address="0.0.0.0:0", allow_remote="true", access_file=file, edit="true")


FILES = [
    ("[tokens]\nanna = 'short'", "fewer than 16"),
    ("[tokens]\n'@anna' = '0123456789abcdef'", "no name of a user"),
    ("[tokens]\n'(token)' = '0123456789abcdef'", "no name of a user"),
    ("[tokens]\n'a\\u000a' = ''\n", "no name|fewer"),
    ("[tokens]\na='0123456789abcdef'\nb='0123456789abcdef'", "of another user"),
    ("[streams.'*']\nread = ['anna']", "has no token"),
    ("[streams.'*']\nwrite = ['*']", "'write' is no right; expected read, values"),
    ("[streams.'*']\nread = '*'", "not a list of users"),
    ("tokens = 3", "tokens is no table"),
    ("streams = ['*']", "streams is no table"),
    ("[streams]\n'*' = ['anna']", r"streams\.'\*' is no table"),
    (
        "[topics.'*']\nread = ['*']",
        "unknown table 'topics'; expected tokens",
    ),
]


@pytest.mark.parametrize(("text", "problem"), FILES)
def test_a_file_of_users_that_does_not_fit_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        UserFile(str(path), TABLES)


def test_one_token_has_all_rights_beside_a_file(small: World, tmp_path: Path) -> None:
    del small
    file = users_file(tmp_path / "users.toml", {})
    with people(file) as client:
        client.client.post("/log-in", data={"token": TOKEN}, base_url=PLACE)
        for path in ("/messages?stream=clicks", "/process", "/edit/"):
            assert client.get(path).status_code == 200
