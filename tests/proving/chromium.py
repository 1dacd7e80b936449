"""A headless Chromium, driven over the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from pathlib import Path

_PLACE = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Starts the browser, which expects its pipe at the descriptors 3 and 4."""
SECONDS = 120
"""For one answer of the browser, on a busy machine."""


def chromium() -> str:
    """The browser; in CI it is installed where it is missing."""
    if shutil.which("chromium") is None and os.environ.get("CI") and os.geteuid() == 0:
        for command in ("update", "install -y --no-install-recommends chromium"):
            subprocess.run(
                ["apt-get", "-qq", *command.split()], capture_output=True, check=False
            )
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        skip_or_fail("chromium is not installed (on Debian: apt install chromium)")
    return found


class Chromium:
    """One browser with one page. A context manager."""

    def __init__(self, program: str, folder: Path) -> None:
        # The browser reads commands from descriptor 3, and writes answers to 4.
        read_by_browser, self._write = os.pipe()
        self._read, written_by_browser = os.pipe()
        pipes = read_by_browser, written_by_browser
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _PLACE,
                *map(str, pipes),
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=pipes,
        )
        for one in pipes:
            os.close(one)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What happened since they were last cleared."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def wait_for(self, method: str) -> dict[str, Any]:
        """The next event of a kind, or one that has come already."""
        for event in self.events:
            if event["method"] == method:
                return event
        while True:
            found = self._receive()
            self.events.append(found)
            if found.get("method") == method:
                return found

    def of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of a kind."""
        return [one["params"] for one in self.events if one["method"] == method]

    def visit(self, url: str) -> None:
        """Load a page; events from before are forgotten."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def click(self, selector: str) -> None:
        """Click an element with the mouse, and wait for the page that it leads to."""
        node = self._node(selector)
        self.call("DOM.scrollIntoViewIfNeeded", nodeId=node)
        box = self.call("DOM.getContentQuads", nodeId=node)["quads"][0]
        x, y = sum(box[0::2]) / 4, sum(box[1::2]) / 4
        self.events.clear()
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                clickCount=1,
            )
        self.wait_for("Page.loadEventFired")

    def type(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.call("DOM.focus", nodeId=self._node(selector))
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key."""
        names = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **names)

    @property
    def url(self) -> str:
        """Of the page."""
        history = self.call("Page.getNavigationHistory")
        entry = history["entries"][history["currentIndex"]]
        return str(entry["url"])

    def html(self) -> str:
        """The document, as the browser understood it."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        return str(self.call("DOM.getOuterHTML", nodeId=root)["outerHTML"])

    def evaluate(self, script: str) -> Any:
        """The value of a script in the page; of a promise, its result."""
        found = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def prefer(self, scheme: str) -> None:
        """The colours that the user prefers: ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def resize(self, width: int, height: int) -> None:
        """The size of the screen, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def width(self) -> int:
        """The width of what the page contains, in pixels."""
        return int(self.call("Page.getLayoutMetrics")["cssContentSize"]["width"])

    def picture(self) -> bytes:
        """The screen as PNG."""
        found = self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    def _node(self, selector: str) -> int:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelector", nodeId=root, selector=selector)
        assert found["nodeId"], f"{selector} is not on the page: {self.html()}"
        return int(found["nodeId"])

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            assert ready, "the browser does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
