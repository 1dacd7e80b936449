"""Loads plug-ins in a child process, so that a hang or crash affects no other."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Final

from streamfactory.spi import BrokenPlugin, PluginError
from streamfactory.spi.hooks import import_all
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Plugin = tuple[str, str]
"""Group and name."""

_CHILD: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from streamfactory.wiring.streams.probing import report
report()
"""


def probe(
    plugins: Sequence[Plugin], seconds: float
) -> dict[Plugin, PluginError | None]:
    """Load each plug-in in a child process; return its error, or None.

    The child loads one after the other. If one takes too long, or ends the process,
    another child continues with the next.

    Args:
        plugins: The plug-ins, by group and name.
        seconds: Timeout of each.
    """
    found: dict[Plugin, PluginError | None] = {}
    while len(found) < len(plugins):
        left = [plugin for plugin in plugins if plugin not in found]
        outcomes = _outcomes(left, seconds)
        found |= zip(left, outcomes, strict=False)
    return found


def _outcomes(
    plugins: Sequence[Plugin], seconds: float
) -> Iterator[PluginError | None]:
    """Yield the results of plug-ins in one child, up to the one that ends it."""
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb", buffering=0) as answers,
        subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-P", "-c", _CHILD, str(writing), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
        ) as child,
    ):
        os.close(writing)
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(plugins).encode())
            child.stdin.close()
            lines = Lines(answers)
            for name in (plugin[1] for plugin in plugins):
                line = lines.next(seconds)
                if line is None:
                    msg = f"plug-in {name!r} was not loaded within {seconds:g} s"
                    yield BrokenPlugin(msg)
                    return
                if not line:
                    status = child.wait()
                    msg = f"plug-in {name!r} ended the process that loaded it"
                    yield BrokenPlugin(f"{msg}, with status {status}")
                    return
                yield _error(json.loads(line))
        finally:
            child.kill()


class Lines:
    """The lines of a pipe, each with a deadline.

    Args:
        pipe: Unbuffered. Lines that are read ahead are kept.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._text = b""

    def next(self, seconds: float) -> bytes | None:
        """Return the next line; empty at the end, None after the timeout."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while b"\n" not in self._text:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                part = self._pipe.read(65_536)
                if not part:
                    return b""
                self._text += part
        line, _, self._text = self._text.partition(b"\n")
        return line + b"\n"


def _error(plain: dict[str, Any] | None) -> PluginError | None:
    if plain is None:
        return None
    kinds: dict[str, type[PluginError]] = {PluginError.code: PluginError}
    kinds |= {kind.code: kind for kind in PluginError.__subclasses__()}
    kind = kinds.get(plain["error"], BrokenPlugin)
    return kind(plain["what"], remedy=plain["remedy"])


def report() -> None:
    """Run in the child: load the plug-ins in standard input; write a line for each."""
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        for group, name in json.load(sys.stdin):
            try:
                manager = default_manager()
                import_all(manager.load(group, name))
                plain = None
            except PluginError as error:
                plain = error.to_dict()
            except KeyboardInterrupt as error:
                # Not from the terminal, which does not interrupt this process: from the
                # plug-in.
                what = ": ".join(filter(None, (type(error).__name__, str(error))))
                msg = f"plug-in {name!r} failed to load: {what}"
                plain = BrokenPlugin(msg).to_dict()
            answers.write(f"{json.dumps(plain)}\n")
            answers.flush()
        # Threads of a plug-in must not keep the process alive.
    os._exit(0)
