"""The documentation site: complete, without requests elsewhere, readable on a phone."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote, urlsplit

import pytest
from tests.proving.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PHONE = 390
"""Pixels."""
MEASURE = """<!doctype html><body><script>
(async () => {
  const found = {}
  for (const page of PAGES) {
    const frame = document.createElement("iframe")
    frame.width = WIDTH
    frame.height = 800
    frame.src = page
    const loaded = new Promise(done => { frame.onload = done })
    document.body.append(frame)
    await loaded
    const inner = frame.contentDocument
    const images = [...inner.images].filter(one => one.naturalWidth === 0)
    found[page] = {
      width: inner.documentElement.scrollWidth,
      missing: images.map(one => one.src),
    }
    frame.remove()
  }
  await fetch("/measured", { method: "POST", body: JSON.stringify(found) })
})()
</script></body>"""


class _Links(HTMLParser):
    """What a page loads and links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a":
            self.linked.append(given.get("href", ""))
        else:
            self.loaded += [given[key] for key in ("src", "href") if given.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make check` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def links(site: Path) -> dict[Path, _Links]:
    found = {}
    for page in sorted(site.rglob("*.html")):
        if page.name != "404.html":  # its links are those of a server's root
            found[page] = _Links()
            found[page].feed(page.read_text("utf-8"))
    return found


@pytest.mark.slow("builds the site")
def test_pages_load_nothing_from_elsewhere(links: dict[Path, _Links]) -> None:
    elsewhere = {
        (page.name, url)
        for page, found in links.items()
        for url in found.loaded
        if urlsplit(url).netloc
    }
    assert not elsewhere


@pytest.mark.slow("builds the site")
def test_every_link_leads_somewhere(links: dict[Path, _Links]) -> None:
    broken = []
    for page, found in links.items():
        for url in [*found.linked, *found.loaded]:
            parts = urlsplit(url)
            if parts.scheme or not url:
                continue
            target = (page.parent / unquote(parts.path)).resolve()
            target = page if not parts.path else target
            if not target.exists():
                broken.append((page.name, url))
            elif parts.fragment and target in links:
                known = parts.fragment in links[target].anchors
                broken += [] if known else [(page.name, url)]
    assert not broken


@pytest.mark.slow("builds the site")
def test_names_of_files_are_shown_and_words_for_tests_are_not(site: Path) -> None:
    text = (site / "quickstart.html").read_text("utf-8")
    assert 'class="filename">configs/streams/orders.toml<' in text
    shown = [p.name for p in site.rglob("*.html") if "no-run" in p.read_text("utf-8")]
    assert shown == []


class _Server(http.server.SimpleHTTPRequestHandler):
    measured: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.measured.append(self.rfile.read(length).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Server, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.long("renders every page in a browser")
def test_no_page_is_wider_than_a_phone_or_lacks_a_picture(
    site: Path, address: str, tmp_path: Path
) -> None:
    pages = sorted(f"/{p.relative_to(site)}" for p in site.rglob("*.html"))
    script = MEASURE.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(PHONE))
    (site / "measure.htm").write_text(script)
    _Server.measured.clear()
    browser = [chromium(), "--headless", "--no-sandbox", "--disable-gpu"]
    with subprocess.Popen(
        [*browser, f"--user-data-dir={tmp_path}", f"{address}/measure.htm"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        waiting = threading.Event()
        for _ in range(1200):
            if _Server.measured or process.poll() is not None:
                break
            waiting.wait(0.25)
        process.terminate()
    (measured,) = _Server.measured
    found = json.loads(measured)
    assert len(found) == len(pages)
    assert {page: one for page, one in found.items() if one["missing"]} == {}
    # Less by the scroll bar of a page that is longer than the screen.
    fits = range(PHONE - 20, PHONE + 1)
    wide = {p: one["width"] for p, one in found.items() if one["width"] not in fits}
    assert wide == {}


def test_every_picture_has_words_for_those_who_do_not_see_it() -> None:
    found = [
        (words, f"{page}: {path}")
        for page in (ROOT / "docs").rglob("*.md")
        for words, path in re.findall(r"!\[(.*?)\]\((.*?)\)", page.read_text("utf-8"))
    ]
    assert found
    assert [place for words, place in found if not words] == []


def test_copy_button_takes_commands_without_prompt_and_output(site: Path) -> None:
    text = (site / "quickstart.html").read_text("utf-8")
    copied = re.findall(r'class="highlight" data-copy="([^"]*)"', text)
    published = "streamfactory publish orders orders.csv --writer shop"
    assert f"{published}&#10;{published}" in copied
    assert not [one for one in copied if "$ " in one or "rows" in one]
