"""The pages in a headless Chromium: quiet, complete, narrow, usable without scripts."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.proving.axe import violations
from tests.proving.chromium import Chromium, chromium
from tests.ui.conftest import HOSTILE, SCRIPT, TOKEN, recorded
from tests.ui.pictures import (
    EDITOR,
    FOLDER,
    MOST_BYTES,
    PICTURES,
    PLACES,
    SIZES,
    pictures,
)
from tests.ui.test_editor import TEXT
from tests.ui.test_previews import text_of

from streamfactory.transfer.auditing import MADE, Change
from streamfactory.ui.editing.previewing import Previews

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.ui.conftest import Browser, World

    Serve = Callable[..., Browser]

PHONE, DESK = (390, 844), (1280, 900)
PAGES = (
    "/",
    "/stream?name=clicks",
    "/stream?name=evil",
    "/group?stream=clicks&group=billing",
    "/?q=nothing&sort=size",
    "/map",
    "/messages?stream=clicks&count=5",
    "/messages?stream=evil&as=raw",
    "/messages?stream=letters&from=earliest&direction=forward",
    "/messages?stream=clicks&where=id+%3D+1",
    "/message?stream=letters&topic=letters&offset=3",
    "/follow?stream=clicks&where=id+%3D+1",
    "/messages?stream=letters&as=raw",
    "/pipeline?name=delays",
    "/checkpoint?name=delays&first=0&second=1",
    "/dead-letters",
    "/dead-letters?stream=letters",
    "/process",
    "/log-in",
    "/stream?name=nobody",
)
EDITED = (
    "/edit/",
    "/edit/new?kind=stream&name=new&type=kafka",
    "/edit/new?kind=pipeline&name=new",
    "/edit/file?kind=pipeline&file=delays.toml",
    "/edit/file?kind=stream&file=orders.toml",
    "/edit/file?kind=stream&file=wrong.toml",
)
"""Pages of the editor."""


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(chromium(), tmp_path / "profile") as found:
        yield found


def fill(world: World) -> None:
    """Streams with hostile payloads, names of columns and long words."""
    import pyarrow as pa
    from tests.checkpoints.conftest import Topic

    from streamfactory.wiring.streams.opening import open_sink

    world.letters(HOSTILE)
    evil = Topic(world.folder / "topics", "evil")
    evil.file(world.catalogue)
    columns = {SCRIPT: [SCRIPT], "wide" * 60: ["x" * 5000], "\u202eleft": ["\u202eb"]}
    with open_sink(evil.options) as sink:
        sink.put(pa.table(columns), writer_id="w", epoch=0)


def looked(client: Browser, place: str) -> str:
    """The address of the page of what is at a place."""
    csrf = client.csrf(client.get("/edit/"))
    form = {"csrf": csrf, "name": "wide" * 20, "place": place}
    return client.ask("/edit/look", form).headers["Location"]


def previewed(client: Browser, world: World) -> str:
    """The address of the page of a preview."""
    csrf = client.csrf(client.get("/edit/"))
    text = text_of(world).replace('"orders"', '"letters"')
    form = {"csrf": csrf, "kind": "pipeline", "text": text}
    page = client.ask("/edit/preview", form)
    assert page.status == 303, page.text
    return page.headers["Location"]


@pytest.mark.long("a browser visits every page")
def test_pages_are_quiet_and_fit_a_phone(
    world: World, serve: Serve, window: Chromium
) -> None:
    fill(world)
    client = serve(token=TOKEN)
    base = client.location.rstrip("/")
    problems = []
    for path in PAGES:
        client.get(path)  # settled, so that the page does not reload itself
        for width, height in (DESK, PHONE):
            window.resize(width, height)
            window.visit(base + path)
            urls = [
                one["request"]["url"] for one in window.of("Network.requestWillBeSent")
            ]
            outside = [url for url in urls if not url.startswith(f"{base}/")]
            logged = [one["entry"]["text"] for one in window.of("Log.entryAdded")]
            if path.endswith("nobody"):
                logged = [text for text in logged if "404" not in text]
            said = window.of("Runtime.consoleAPICalled")
            thrown = window.of("Runtime.exceptionThrown")
            dialogs = window.of("Page.javascriptDialogOpening")
            found = [outside, logged, said, thrown, dialogs]
            if any(found) or window.width() > width:
                problems.append((path, width, window.width(), found))
    assert problems == []


@pytest.mark.long("a browser visits every page, and axe-core checks it")
def test_axe_finds_nothing_and_pages_fit_any_width(
    world: World, serve: Serve, window: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world)
    output = world.folder / "printed"
    print_it = f"import pathlib; print(pathlib.Path({str(output)!r}).read_text())"
    stand_in = (sys.executable, "-c", print_it)
    monkeypatch.setattr(Previews.__init__, "__defaults__", (stand_in,))
    (world.folder / "rows.csv").write_text(f"id,{'wide' * 60}\n1,{SCRIPT}\n")
    change = Change("anna", SCRIPT, "edit", "stream", "wide" * 60, "old\nline", SCRIPT)
    with recorded(world) as trail:
        trail.write(change, MADE, SCRIPT, "x" * 5000)
    client = serve(token=TOKEN, edit="true")
    base = client.location.rstrip("/")
    client.log_in()
    (world.catalogue / "orders.toml").write_text(TEXT)
    (world.catalogue / "wrong.toml").write_text(TEXT.replace("= 4", f"= '{SCRIPT}'"))
    for name, value in client.cookies.items():
        window.call("Network.setCookie", name=name, value=value, url=base)
    problems = []

    def check(path: str) -> None:
        client.get(path)
        for width, scheme in ((420, "light"), (1600, "dark")):
            window.resize(width, 900)
            window.prefer(scheme)
            window.visit(base + path)
            wrong = violations(window)
            if wrong or window.width() > width:
                problems.append((path, width, window.width(), wrong))

    for path in (*PAGES, *EDITED, "/audit", "/actions/jobs"):
        check(path)
    check("/actions/topic?stream=clicks")
    for place in (str(world.folder / "topics"), "nowhere", str(world.folder)):
        check(looked(client, place))
    remark = {"key": "sql", "what": "wide" * 60, "origin": "x.toml:1"}
    rows = [{"wide" * 60: SCRIPT, "b": "x" * 5000}]
    documents: tuple[object, ...] = (
        {"ids": [{"id": "wide" * 60, "rows": rows}, {"id": "b", "rows": []}]},
        {"what": "1 problem", "problems": [remark]},
        "no object",
    )
    for document in documents:
        output.write_text(json.dumps(document))
        check(previewed(client, world))
    assert problems == []


@pytest.mark.long("a browser follows a stream")
def test_the_live_view_shows_messages_and_pauses(
    world: World, serve: Serve, window: Chromium
) -> None:
    base = serve().location.rstrip("/")
    rows = "document.querySelectorAll('#messages tbody tr').length"

    def shows(count: int) -> None:
        deadline = time.monotonic() + 120
        while window.evaluate(rows) < count:
            assert time.monotonic() < deadline, window.html()
            world.topic.write(1, 0)
            time.sleep(0.5)

    window.visit(f"{base}/follow?stream=clicks")
    shows(1)
    window.evaluate("document.getElementById('pause').click()")
    assert "Paused" in window.html()
    before = window.evaluate(rows)
    world.topic.write(3, 0)
    assert window.evaluate(rows) == before
    window.evaluate("document.getElementById('pause').click()")
    shows(before + 3)
    assert window.of("Runtime.exceptionThrown") == []


@pytest.mark.long("a browser clicks through the pages")
def test_everything_works_without_scripts(
    world: World, serve: Serve, window: Chromium
) -> None:
    client = serve(token=TOKEN)
    base = client.location.rstrip("/")
    for path in ("/", "/stream?name=clicks", "/group?stream=clicks&group=billing"):
        client.get(path)
    window.call("Emulation.setScriptExecutionDisabled", value=True)
    window.resize(*PHONE)
    window.visit(f"{base}/")
    window.press("Tab", 9)
    window.press("Enter", 13, "\r")  # the link to the content
    assert window.url.endswith("/#main")
    window.click("a[href='/stream?name=clicks']")
    window.click("a[href*='group=billing']")
    assert "Lag: 10 offsets" in window.html()
    window.click("a.log-in")
    window.type("input[name=token]", TOKEN)
    window.click("main button")
    assert window.url == f"{base}/", window.html()
    window.visit(f"{base}/group?stream=clicks&group=billing")
    window.type("input[name=place]", "0=5")
    window.click("main form.action button")
    assert "Set the position of the group billing in clicks?" in window.html()
    window.click("main form.action button")
    assert window.url == f"{base}/group?stream=clicks&group=billing"
    assert "Lag: 8 offsets" in client.get("/group?stream=clicks&group=billing").text
    window.click("header form button")
    assert "Log in" in window.html()


@pytest.mark.long("a browser makes a stream")
def test_a_stream_is_made_without_scripts_and_its_pages_fit(
    world: World, serve: Serve, window: Chromium
) -> None:
    client = serve(token=TOKEN, edit="true")
    base = client.location.rstrip("/")
    window.call("Emulation.setScriptExecutionDisabled", value=True)
    window.visit(f"{base}/log-in")
    window.type("input[name=token]", TOKEN)
    window.click("main button")
    window.click("a[href='/edit/']")
    window.type("#main form[action='/edit/new'] input[name=name]", "copies")
    window.visit(f"{base}/edit/new?kind=stream&name=copies&type=file")
    path = world.topic.options["stream.file.path"]
    window.type("input[name='set stream.file.path']", str(path))
    window.type("input[name='set stream.file.topic.name']", "clicks")
    for button in ("check", "show"):
        window.click(f"form[action='/edit/form'] button[name={button}]")
    deadline = time.monotonic() + 60
    while "First rows" not in window.html():
        assert time.monotonic() < deadline, window.html()
        time.sleep(0.2)
        window.visit(window.url)
    for width in (420, 1600):
        window.resize(width, 900)
        assert window.width() <= width
    window.click("form[action='/edit/change'] button")
    assert window.url == f"{base}/stream?name=copies", window.html()


FILES = {f"{name}{end}.png" for name in (*PICTURES, *EDITOR, *PLACES) for end in SIZES}


@pytest.mark.long("a browser takes pictures")
def test_pictures_of_the_docs_can_be_taken() -> None:
    taken = dict(pictures())
    assert set(taken) == FILES
    assert all(content.startswith(b"\x89PNG") for content in taken.values())
    assert {
        name: len(one) for name, one in taken.items() if len(one) > MOST_BYTES
    } == {}


def test_docs_show_each_picture_and_none_is_large() -> None:
    page = (FOLDER.parent / "ui.md").read_text("utf-8")
    for name in FILES:
        assert f"](pictures/{name})" in page
        assert (FOLDER / name).stat().st_size <= MOST_BYTES


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_a_contrast_of_at_least_four_and_a_half() -> None:
    style = Path(FOLDER.parents[1], "ui", "static", "style.css").read_text("utf-8")
    palettes = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(palettes) == 2  # light and dark
    for palette in palettes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", palette))
        pairs = [
            (one, "back") for one in ("text", "dim", "link", "bad", "good", "warn")
        ]
        pairs += [("text", "band"), ("dim", "band"), ("link", "band")]
        pairs += [("text", "bad-back")]
        for front, back in pairs:
            low, high = sorted(luminance(colours[one]) for one in (front, back))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)
