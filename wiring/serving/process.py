"""A server of streams in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any, Final, Self

from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    PermanentError,
    PluginError,
    StreamError,
    Unsupported,
)
from streamfactory.spi.arguments import TEXT, takes
from streamfactory.spi.notebook import html_of
from streamfactory.spi.waits import wait_in_slices
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.options.texts import canonical_text
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.serving.servers import configure_server

_START_TIMEOUT: Final = 60.0
_STOP_TIMEOUT: Final = 30.0
_ERRORS: Final[dict[str, type[StreamError]]] = {
    kind.error_class.value: kind for kind in (ConfigError, PermanentError, PluginError)
}
"""Classes of what a child reports; others are failures to connect to it."""


class ServerProcess:
    """A server in a child process. A context manager; thread-safe.

    The child ends with this object, and with this process, however that ends.
    """

    def __init__(
        self, process: subprocess.Popen[str], location: str, metrics: str | None
    ) -> None:
        self._process = process
        self.location = location
        """Where clients connect: ``grpc://127.0.0.1:port``."""
        self.metrics = metrics
        """URL of the metrics; None without ``metrics.address``."""

    def __repr__(self) -> str:
        return f"<ServerProcess {self.pid} at {self.location}, {self._state}>"

    def _repr_html_(self) -> str:
        facts: list[tuple[str, object]] = [
            ("location", self.location),
            ("process", self.pid),
        ]
        facts += [] if self.metrics is None else [("metrics", self.metrics)]
        return html_of("server", [*facts, ("state", self._state)])

    @property
    def _state(self) -> str:
        status = self._process.poll()
        return "running" if status is None else f"ended with status {status}"

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        """Exit status of the child, once it has ended.

        Raises:
            TimeoutError: It has not ended after so many seconds.
        """
        if not wait_in_slices(self._ended, timeout):
            msg = f"the server process {self.pid} has not ended after {timeout} s"
            raise TimeoutError(msg)
        return int(self._process.returncode)

    def _ended(self, seconds: float) -> bool:
        """Whether the child ends within so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Shut down gracefully: running commits are finished. May be called twice."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            if not wait_in_slices(self._ended, _STOP_TIMEOUT):
                self._process.kill()
        except BaseException:
            self._process.kill()
            raise
        finally:
            self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@takes(kind=TEXT)
def serve(kind: str = "flight", **settings: Any) -> ServerProcess:
    """Run a server in a child process; it listens when this returns.

    Args:
        kind: Name of the server's stream type.
        settings: Its settings; an underscore stands for a dot
            (``fsync_interval="1s"``). Without ``address`` a free port of the loopback
            address is used.

    Returns:
        The running server: a context manager that shuts it down.

    Raises:
        ConfigError: config; every problem at once.
        ConnectionFailed: transient; the child did not start.
        StreamError: Of the server; the address is in use, for example.

    Example:
        >>> import streamfactory
        >>> with streamfactory.serve(memory=True) as server:
        ...     server.location.startswith("grpc://127.0.0.1:")
        True
    """
    words = {
        key.replace("_", "."): canonical_text(value) or str(value)
        for key, value in {"address": "127.0.0.1:0", **settings}.items()
    }
    backend = default_manager().backend(kind)
    if backend.server is None:
        msg = f"stream type {kind!r} has no server"
        raise Unsupported(msg)
    given = [Property(key, text, "argument") for key, text in words.items()]
    configure_server(kind, backend.server, given)  # errors here, not in the child
    command = [sys.executable, "-m", "streamfactory", "serve", "--json"]
    process = subprocess.Popen(  # noqa: S603 - this interpreter, and our own arguments
        [*command, "--type", kind, "--config", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    # Settings are passed through a pipe: a process title must not contain secrets.
    # The pipe stays open; the child ends when it is closed, also if this process dies.
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()
    answer = _answer(process)
    return ServerProcess(process, answer["location"], answer["metrics"])


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the JSON object that the child prints when it listens.

    Raises:
        StreamError: The child's, if it cannot serve.
        ConnectionFailed: transient; the child ended, or did not listen in time.
    """
    assert process.stdout is not None
    expired = threading.Event()

    def give_up() -> None:
        expired.set()
        process.kill()

    watchdog = threading.Timer(_START_TIMEOUT, give_up)
    watchdog.start()
    try:
        text = ""
        while (line := process.stdout.readline()) and line != "}\n":
            text += line
        text += line
    finally:
        watchdog.cancel()
    found: dict[str, Any] = {}
    try:
        found = json.loads(text)
        found["location"]
    except (ValueError, KeyError, TypeError) as failure:
        if isinstance(failure, KeyError):  # the document of an error
            process.communicate()
            kind = _ERRORS.get(found["class"], ConnectionFailed)
            raise kind(found["what"], remedy=found["remedy"]) from None
        process.kill()
        process.communicate()
        msg = f"the server process ended with status {process.returncode}"
        if expired.is_set():
            msg = f"the server process did not listen within {_START_TIMEOUT:g} s"
        raise ConnectionFailed(msg, remedy="see what it wrote to stderr") from None
    return found
