"""Who may see and change what, and clients that mean harm."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.checkpoints.conftest import Topic
from tests.checkpoints.test_offsets_and_lag import store_of
from tests.ui.conftest import TOKEN, settings

from streamfactory.spi import ConfigError
from streamfactory.ui import changes, channels, pages
from streamfactory.ui import server as serving
from streamfactory.ui.access import (
    MOST_CHANGES,
    MOST_FAILURES,
    MOST_OF_USER,
    MOST_SESSIONS,
    Access,
)
from streamfactory.ui.people import User
from streamfactory.ui.server import PageServer
from streamfactory.wiring.streams.checkpoints import merged
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.positions import GroupPositions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.ui.conftest import Browser, World

    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.streams.positions import PositionChange

    Serve = Callable[..., Browser]

GROUP = {"stream": "clicks", "group": "billing"}


def position(world: World) -> list[int]:
    """The offsets of the group billing."""
    return list(merged(store_of(world.folder).load("billing")).values())


# --- addresses, hosts and tokens ------------------------------------------------


OPEN = [
    ({"address": "0.0.0.0:0", "token": TOKEN}, "open to the network, and TLS is not"),
    ({"address": "[::]:0", "token": TOKEN}, "open to the network, and TLS is not"),
    ({"address": "192.0.2.1:80", "allow_remote": "true"}, "requires a token"),
    (
        {"address": "0.0.0.0:0", "tls_certificate": "a", "tls_key": "b"},
        "requires a token; set token, by reference",
    ),
    ({"hosts": "streams.example"}, "hosts: opens the pages.*requires a token"),
    ({"tls_certificate": "a"}, r"tls\.certificate: requires tls\.key"),
    ({"tls_key": "a"}, r"tls\.key: requires tls\.certificate"),
    ({"tls_client_ca": "a"}, r"tls\.client\.ca: requires tls\.certificate"),
    ({"edit": "true"}, "edit: lets clients change files, and requires a token"),
    ({"tls_cert": "a"}, r"tls\.cert: unknown option"),
    ({"token": "${env:NONE"}, "malformed reference"),
    *(
        ({"address": address}, "is not host:port; write for instance")
        for address in ("", "host", "127.0.0.1:x", "127.0.0.1:70000")
    ),
]


@pytest.mark.parametrize(("options", "text"), OPEN)
def test_settings_that_do_not_fit_are_refused(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(**options)


def test_an_address_in_use_is_refused(serve: Serve) -> None:
    with pytest.raises(ConfigError, match="cannot be served on 127"):
        PageServer(settings(address=serve().place))


def test_clients_of_a_proxy_without_cookies_end_no_session_of_others() -> None:
    access = Access("127.0.0.1:9816", TOKEN)
    secret = access.log_in(TOKEN)
    other = access.begin(User("berta"))
    begun = [access.begin(User("anna")) for _ in range(2 * MOST_SESSIONS)]
    assert access.session(secret) is not None
    assert access.session(other, User("berta")) is not None
    kept = [one for one in begun if access.session(one, User("anna")) is not None]
    assert kept == begun[-MOST_OF_USER:]


def test_a_token_is_given_by_reference(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UI_TOKEN", TOKEN)
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    for token in ("${env:UI_TOKEN}", f"${{file:{path}}}"):
        config = settings(token=token)
        assert not config.warnings
        assert TOKEN not in repr(config)
        assert serve(token=token).log_in().status == 303


def test_a_token_is_long_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UI_TOKEN", raising=False)
    path = tmp_path / "token"
    for content, text in (
        (b"short\n", "fewer than 16"),
        (b"\xff" * 30, "not UTF-8 text"),
        (b"first line\nsecond line\n", "line breaks"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=text):
            PageServer(settings(token=f"${{file:{path}}}"))
    for reference in ("${env:UI_TOKEN}", f"${{file:{tmp_path}/none}}"):
        with pytest.raises(ConfigError, match="cannot be resolved"):
            PageServer(settings(token=reference))
    (warning,) = settings(token=TOKEN).warnings
    assert str(warning).startswith("token: contains a literal secret")


HOSTS = [
    ("localhost", 200),
    ("LOCALHOST:1", 200),
    ("127.0.0.1:9", 200),
    ("[::1]:9", 200),
    ("streams.example:9816", 200),
    ("evil.example", 421),
    ("localhost.evil.example", 421),
    ("127.0.0.1.evil.example", 421),
    ("evil@localhost", 421),
    ("", 421),
]


def test_names_of_other_sites_are_refused(serve: Serve) -> None:
    browser = serve(hosts="streams.example", token=TOKEN)
    assert browser.ask("/").status == 302  # others than this machine come by a name
    browser.log_in()
    for header, status in HOSTS:
        assert browser.ask("/", Host=header).status == status, header


def test_an_open_address_shows_nothing_without_the_token(
    world: World, serve: Serve
) -> None:
    browser = serve("0.0.0.0:0", token=TOKEN, allow_remote="true")
    for path in ("/", "/stream?name=clicks", "/process", "/actions/jobs", "/nope"):
        page = browser.ask(path)
        assert (page.status, page.headers["Location"]) == (302, "/log-in")
        assert "clicks" not in page.text
    assert browser.ask("/actions/offsets", {"place": "0"}).status == 401
    assert browser.ask("/static/style.css").status == 200
    assert browser.log_in("wrong" * 5).status == 403
    assert browser.ask("/").status == 302
    assert browser.log_in().status == 303
    assert "clicks" in browser.get("/").text


def test_a_cookie_is_no_use_to_scripts_and_other_sites(serve: Serve) -> None:
    cookie = serve(token=TOKEN).log_in().headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie


def test_browsers_name_the_origin_of_forms(serve: Serve) -> None:
    # `no-referrer` would make it `null`, which is refused.
    assert serve().ask("/").headers["Referrer-Policy"] == "same-origin"


def test_a_session_ends_with_its_log_out(world: World, serve: Serve) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    page = browser.get("/")
    kept = dict(browser.cookies)
    assert browser.ask("/log-out", {"csrf": browser.csrf(page)}).status == 303
    browser.cookies = kept
    assert "Log out" not in browser.get("/").text


def test_tokens_cannot_be_tried_without_end() -> None:
    access = Access("127.0.0.1:0", TOKEN)
    for _ in range(MOST_FAILURES):
        assert access.log_in("wrong") is None
    assert access.log_in(TOKEN) is None  # too many lately
    assert access.log_in(TOKEN, "192.0.2.7") is not None  # another client
    assert Access("127.0.0.1:0").log_in("") is None


def test_sessions_are_bounded() -> None:
    access = Access("127.0.0.1:0", TOKEN)
    found = [access.log_in(TOKEN) for _ in range(150)]
    assert access.session(found[-1]) is not None
    assert access.session(found[0]) is None
    assert len(access._sessions) == 100
    assert access.session("") is None
    assert access.session("\udcff") is None


# --- actions --------------------------------------------------------------------


def test_nothing_is_changed_without_a_token(world: World, serve: Serve) -> None:
    before = position(world)
    form = {**GROUP, "place": "earliest", "before": "{}", "csrf": ""}
    browser = serve()
    assert browser.ask("/actions/offsets", form).status == 401
    assert browser.ask("/log-in", {"token": ""}).status == 404
    assert browser.ask("/log-in").status == 404
    browser = serve(token=TOKEN)
    for path in ("/actions/offsets", "/actions/replay", "/log-out"):
        assert browser.ask(path, form).status == 401
    assert position(world) == before


def test_a_form_of_another_site_changes_nothing(world: World, serve: Serve) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/"))
    form = {**GROUP, "place": "earliest"}
    assert browser.ask("/actions/offsets", form).status == 403
    assert browser.ask("/actions/offsets", {**form, "csrf": "é"}).status == 403
    form["csrf"] = csrf
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert browser.ask("/actions/offsets", form, **headers).status == 403
    own = {"Origin": f"http://{browser.place}", "Sec_Fetch_Site": "same-origin"}
    assert browser.ask("/actions/offsets", form, **own).status == 200
    assert browser.ask("/actions/offsets?" + csrf, method="GET").status == 405


def confirmation(text: str) -> dict[str, str]:
    """The fields of the form that confirms a change."""
    from html import unescape

    found = {}
    for part in text.split('<input type="hidden" name="')[1:]:
        name, _, rest = part.partition('" value="')
        found[name] = unescape(rest.partition('"')[0])
    return found


def test_a_group_is_reset_after_a_look_at_the_change(
    world: World, serve: Serve
) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/group", **GROUP))
    form = {**GROUP, "place": "0=5 1=earliest", "csrf": csrf}
    shown = browser.ask("/actions/offsets", form)
    assert shown.status == 200
    assert '<td class="n">3</td><td class="n">5</td><td class="n">2</td>' in shown.text
    assert position(world) == [3, 1]  # only shown
    done = browser.ask("/actions/offsets", confirmation(shown.text))
    assert (done.status, done.headers["Location"]) == (
        303,
        "/group?stream=clicks&group=billing",
    )
    assert position(world) == [5, 0]
    assert "Lag: 9 offsets" in browser.get("/group", **GROUP).text
    again = browser.ask("/actions/offsets", confirmation(shown.text))
    assert again.status == 400  # the position is not the one that was shown
    assert "has changed since it was shown" in again.text
    assert position(world) == [5, 0]


def test_a_place_that_the_stream_does_not_have_is_no_failure_of_the_page(
    world: World, serve: Serve
) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/group", **GROUP))
    before = position(world)
    refused = browser.ask("/actions/offsets", {**GROUP, "place": "2222", "csrf": csrf})
    assert refused.status == 409
    assert "beyond the latest offset" in refused.text
    assert position(world) == before


def test_a_change_that_outlasts_its_request_is_logged_when_it_was_made(
    world: World,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/group", **GROUP))
    form = {**GROUP, "place": "0=5 1=earliest", "csrf": csrf}
    fields = confirmation(browser.ask("/actions/offsets", form).text)
    go, apply = threading.Event(), GroupPositions.apply

    def late(groups: GroupPositions, change: PositionChange) -> None:
        assert go.wait(60)
        apply(groups, change)

    monkeypatch.setattr(GroupPositions, "apply", late)
    monkeypatch.setattr(changes, "_SECONDS", 0.5)
    page = browser.ask("/actions/offsets", fields)
    assert page.status == 503
    assert "the outcome is unknown" in page.text
    assert "the log says when the change has ended" in page.text
    assert caplog.messages[-1].startswith("group billing in clicks: is being set to {")
    go.set()
    deadline = time.monotonic() + 60
    while "group billing in clicks: was set" not in caplog.messages[-1]:
        assert time.monotonic() < deadline
    assert caplog.messages[-1].endswith("} by 127.0.0.1")
    logged = vars(caplog.records[-1])
    assert [logged[key] for key in ("audit", "stream", "group")] == [
        True,
        *GROUP.values(),
    ]
    assert position(world) == [5, 0]


def test_a_change_whose_plan_takes_too_long_is_not_made_later(
    world: World, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/group", **GROUP))
    form = {**GROUP, "place": "0=5 1=earliest", "csrf": csrf}
    fields = confirmation(browser.ask("/actions/offsets", form).text)
    go, plan = threading.Event(), GroupPositions.plan
    found: list[threading.Thread] = []

    def late(groups: GroupPositions, group: str, marks: Marks) -> PositionChange:
        found.append(threading.current_thread())
        assert go.wait(60)
        return plan(groups, group, marks)

    monkeypatch.setattr(GroupPositions, "plan", late)
    monkeypatch.setattr(changes, "_SECONDS", 0.5)
    page = browser.ask("/actions/offsets", fields)
    assert page.status == 503
    assert "no answer within 0.5 s" in page.text
    go.set()
    found[0].join(60)
    assert not found[0].is_alive()
    assert position(world) == [3, 1]


def test_a_change_is_confirmed_by_a_short_key_that_is_kept_for_a_while(
    world: World, serve: Serve
) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    form = {**GROUP, "place": "0=5", "csrf": browser.csrf(browser.get("/"))}
    fields = confirmation(browser.ask("/actions/offsets", form).text)
    # The positions of a stream with many partitions would exceed a request's bound.
    assert set(fields) == {"csrf", "change"}
    other = serve(token=TOKEN)
    other.log_in()
    stolen = {**fields, "csrf": other.csrf(other.get("/"))}
    assert "not known any more" in other.ask("/actions/offsets", stolen).text
    for _ in range(MOST_CHANGES):
        browser.ask("/actions/offsets", form)
    late = browser.ask("/actions/offsets", fields)
    assert (late.status, "not known any more" in late.text) == (400, True)
    assert position(world) == [3, 1]


PLACES = [
    ("yesterday", "is no offset"),
    ("99", "beyond"),
    ("0=1 0=2", "given twice"),
    ("", "wanted one"),
    ('{"clicks": {"0": -5}}', "nothing was changed"),
]


def test_a_position_that_is_none_changes_nothing(world: World, serve: Serve) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/"))
    for place, why in PLACES:
        page = browser.ask("/actions/offsets", {**GROUP, "place": place, "csrf": csrf})
        assert page.status in (400, 409)
        assert why in page.text
    assert position(world) == [3, 1]


def test_a_pipeline_is_moved_after_a_look_at_the_change(
    world: World, serve: Serve
) -> None:
    from streamfactory.spark.checkpoints import Place, read_record

    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/pipeline", name="delays"))
    form = {"pipeline": "delays", "place": "0=2", "csrf": csrf}
    shown = browser.ask("/actions/offsets", form)
    assert "5 offsets are written again, 0 are never written" in shown.text
    assert browser.ask("/actions/offsets", confirmation(shown.text)).status == 303
    record = read_record(Place.of(str(world.folder / "kept")))
    assert record is not None
    assert record.generation == 2
    assert record.history[-1].why == "moved in the browser"


def test_dead_letters_are_replayed_and_the_result_is_shown(
    world: World, serve: Serve
) -> None:
    world.letters({"one": b"first", "two": b"second"})
    good = Topic(world.folder / "topics", "good")
    good.options |= {
        "stream.file.messages": "true",
        "stream.file.decoder.class.name": "raw",
    }
    good.file(world.catalogue)
    with open_sink(good.options) as sink:
        sink.put(pa.table({"value": [b"zero"]}), writer_id="w", epoch=0)
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/dead-letters", stream="letters"))
    form = {"stream": "letters", "to": "good", "of": "", "csrf": csrf}
    asked = browser.ask("/actions/replay", form)
    assert asked.status == 200
    assert "2 dead letters are unresolved" in asked.text
    assert "The messages are written to good as they were" in asked.text
    started = browser.ask("/actions/replay", confirmation(asked.text))
    assert started.status == 303
    text = browser.get(started.headers["Location"]).text
    assert '<p role="status">done' in text, text
    assert "<dt>Rows</dt><dd>2</dd>" in text
    assert "nothing would be written" in browser.ask("/actions/replay", form).text
    again = browser.ask("/actions/replay", confirmation(asked.text))
    assert "not known any more" in again.text
    assert "replay of letters into good" in browser.get("/actions/jobs").text
    wrong = {**form, "stream": "good", "to": "letters"}
    assert browser.ask("/actions/replay", wrong).status == 400  # no dead letters
    for name in ("nobody", ""):
        form["to"] = name
        assert browser.ask("/actions/replay", form).status == 404
    assert browser.get("/actions/jobs/99").status == 404


def test_a_replay_into_an_invalid_stream_names_each_problem(
    world: World, serve: Serve
) -> None:
    world.letters({"one": b"first"})
    text = (
        'name = "bad"\n[properties]\nstreamType = "file"\n"stream.file.fsync" = "x"\n'
    )
    (world.catalogue / "bad.toml").write_text(text)
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/dead-letters", stream="letters"))
    form = {"stream": "letters", "to": "bad", "of": "", "csrf": csrf}
    page = browser.ask("/actions/replay", form)
    if page.status == 303:
        page = browser.get(page.headers["Location"])
    assert "stream.file.path" in page.text
    assert "stream.file.fsync" in page.text


def test_a_server_is_closed_twice_and_leaves_files_of_others_alone() -> None:
    server = PageServer(settings())
    server.close()
    # New files have the numbers of those that the server closed.
    pipes = [os.pipe() for _ in range(20)]
    try:
        server.close()
        for end, _ in pipes:
            os.set_blocking(end, False)
            with pytest.raises(BlockingIOError):
                os.read(end, 1)
    finally:
        for pipe in pipes:
            for number in pipe:
                os.close(number)


# --- hostile clients ------------------------------------------------------------


PATHS = [
    "/static/../access.py",
    "/static/..%2f..%2faccess.py",
    "/static/%2e%2e/access.py",
    "/static//etc/passwd",
    "/static/..\\access.py",
    "/static/",
    "/static/%00style.css",
    "/../../etc/passwd",
    "//evil.example/stream",
    "/stream?name=../../etc/passwd",
    "/stream?name=%00",
    "/stream?name=%ff%fe",
    "/messages?stream=clicks&partition=../1",
    "/actions/jobs/99999999999999999999999999",
]


def test_paths_lead_nowhere_else(world: World, serve: Serve) -> None:
    browser = serve(token=TOKEN)
    for path in PATHS:
        page = browser.ask(path)
        found = (400, 404)
        assert page.status in found, path
        for text in ("root:", "import ", "Traceback"):
            assert text not in page.text, path


def test_other_methods_are_refused(serve: Serve) -> None:
    browser = serve()
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "X"):
        assert browser.ask("/process", method=method).status == 405, method


def exchange(place: str, *parts: bytes, wait: float = 20) -> bytes:
    """What the server answers to bytes, up to its end of the connection."""
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=wait) as client:
        received = b""
        try:
            for part in parts:
                client.sendall(part)
            while chunk := client.recv(65536):
                received += chunk
        except ConnectionError:
            pass
        return received


REQUESTS = [
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", b"431"),
    (
        b"POST /log-in HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
        b"413",
    ),
    (
        b"POST /log-in HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n" + b"x" * 200_000,
        b"413",
    ),
    (b"GET /\r\n\r\n", b"421"),
    (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
    (
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"400",
    ),
    (b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n", b"400"),
]


def test_requests_that_are_too_large_or_malformed_are_refused(serve: Serve) -> None:
    place = serve(token=TOKEN).place
    for request, status in REQUESTS:
        answer = exchange(place, request)
        # What is too large may be answered by the end of the connection.
        early = [] if status in (b"413", b"431") else [status]
        assert answer.split(b" ", 2)[1:2] in ([status], early), request[:60]


def test_values_of_a_request_make_no_header(world: World, serve: Serve) -> None:
    browser = serve(token=TOKEN)
    browser.log_in()
    csrf = browser.csrf(browser.get("/"))
    form = {"stream": "x\r\nX-Evil: 1", "to": "x\r\n\r\n<script>", "csrf": csrf}
    page = browser.ask("/actions/replay", form)
    assert page.status == 404
    assert "X-Evil" not in page.headers


def test_a_client_that_is_slow_with_its_request_is_disconnected(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 1)
    host, _, port = serve().place.rpartition(":")
    begin = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        client.settimeout(0.2)
        while time.monotonic() - begin < 30:
            try:
                client.sendall(b"X: y\r\n")  # never idle, and never complete
                if client.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - begin < 15


def test_a_client_that_takes_no_answer_is_disconnected(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "CONNECTION_SECONDS", 0.5)
    host, _, port = serve().place.rpartition(":")
    request = b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect((host, int(port)))
        client.setblocking(False)
        with pytest.raises(ConnectionError):
            send_without_end(client, request * 100, 20)


def test_an_answer_may_take_longer_than_a_connection_without_requests(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow() -> list[Any]:
        time.sleep(2)  # the answer takes it
        return []

    monkeypatch.setattr(channels, "CONNECTION_SECONDS", 0.2)
    monkeypatch.setattr(pages, "registry", SimpleNamespace(samples=slow))
    assert serve().ask("/process").status == 200


def send_without_end(client: socket.socket, data: bytes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            client.send(data)
        except BlockingIOError:
            time.sleep(0.02)


def test_more_descriptors_than_select_knows_are_no_limit(serve: Serve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(f"the limit of open files, {hard}, is too low for this test")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert serve().ask("/process").status == 200
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_are_bounded_and_others_are_served_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 10)
    monkeypatch.setattr(channels, "HEADER_SECONDS", 600.0)
    browser = serve()
    with slow_clients(browser.place, 15):
        assert browser.ask("/process").status == 200  # instead of a slow one


def test_slow_clients_delay_nobody(serve: Serve) -> None:
    browser = serve()
    assert browser.ask("/process").status == 200  # the first one loads templates
    with slow_clients(browser.place, 2 * serving.MOST_CONNECTIONS):
        begin = time.monotonic()
        assert browser.ask("/process").status == 200
        assert time.monotonic() - begin < channels.HEADER_SECONDS


def test_a_client_without_a_header_is_disconnected_before_one_with_a_slow_body(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "HEADER_SECONDS", 0.5)
    place = serve().place
    with (
        slow_clients(place, 1, b"GET / HTTP/1.1\r\nHost:") as [silent],
        slow_clients(
            place, 1, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        ) as [asking],
    ):
        silent.settimeout(8)
        assert silent.recv(1) == b""
        asking.setblocking(False)
        with pytest.raises(BlockingIOError):
            asking.recv(1)


@contextmanager
def slow_clients(
    place: str, number: int, data: bytes = b"GET / HTTP/1.1\r\n"
) -> Iterator[list[socket.socket]]:
    """Clients that connect, and send a part of a request."""
    host, _, port = place.rpartition(":")
    with ExitStack() as stack:
        held = []
        for _ in range(number):
            one = socket.create_connection((host, int(port)), timeout=10)
            held.append(stack.enter_context(one))
            with suppress(ConnectionError):
                one.sendall(data)
        yield held
