"""The live table of ``top`` on a terminal, and the keys that change its order."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamfactory.cli.top.lines import COLUMNS, NUMBERS, cells, ordered
from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from streamfactory.cli.top.observing import Frame

_KEYS: Final = {"n": "name", "r": "rate", "l": "lag", "d": "dead letters"}
_HINT: Final = "order by n name, r rate, l lag, d dead letters; q quits"
_AROUND: Final = 6
"""Lines of the screen that are no rows of the table."""
_TURN: Final = 0.2
"""Maximum seconds until a key or a signal is handled."""


def show_live(
    frames: Callable[[], Frame], every: float, stop: threading.Event, order: str
) -> None:
    """Show frames until the key q, the end of the input, or a stop.

    Args:
        frames: Answers the next frame.
        every: Seconds between two frames.
        stop: Ends it.
        order: Of the lines at first.
    """
    frame, left = frames(), every
    with _keys() as key, Live(screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            live.update(_screen(frame, order, live.console.height), refresh=True)
            while left > 0 and not stop.is_set():
                left -= _TURN
                pressed = key(_TURN)
                if pressed == "q":
                    return
                if pressed in _KEYS:
                    order = _KEYS[pressed]
                    break
            if left <= 0:
                frame, left = frames(), every


def _screen(frame: Frame, order: str, height: int) -> Group:
    rows = ordered(frame.rows, order)
    room = max(1, height - _AROUND)
    table = Table(box=None, pad_edge=False, expand=True)
    for name in COLUMNS:
        right = name in NUMBERS
        table.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows[:room]:
        style = "" if row.state in ("ok", "running") else "bold"
        # Never markup: names are of others.
        texts = [Text(printable(cell), style=style) for cell in cells(row)]
        table.add_row(*texts)
    more = f"{len(rows) - room} more" if len(rows) > room else ""
    head = Text(f"{len(rows)} lines, by {order}", style="bold")
    return Group(head, Text(""), table, Text(more), Text(_HINT, style="dim"))


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key; keys are not echoed meanwhile."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        if not ready:
            return ""
        return os.read(number, 1).decode("ascii", "replace").lower() or "q"

    try:
        tty.setcbreak(number)
        yield key
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
