# ruff: noqa: INP001 - a script, in no package
"""Records the calls between a stream that is used and its backend, as tables.

``docs/reference.py`` writes and checks them with the generated parts of the pages. Each
function between the two has a reason here: one that only forwards its arguments has
none, and is left out of the code instead.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

import streamfactory
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from streamfactory.spi import CommitMessage

ROOT: Final = Path(__file__).parents[1].resolve()
_CHECKED: Final = "takes.<locals>.decorate.<locals>.call"
REASONS: Final = {
    _CHECKED: "refuses arguments of other kinds",
    "Stream.__iter__": "goes on after empty batches, ends with the stream",
    "Stream.next_batch": "timeout; hands out what a cancelled wait left",
    "Rotation.next_batch": "waits until a partition has content, confirms incarnations",
    "Rotation._turn": "chooses the partition",
    "Rotation._fetch": "opens its reader, handles a partition that vanished",
    "Reader.fetch": "one thread, closing; restores the reader after an error",
    "Reader._fetch": "continues or replays; the start is checked (rules R6, R7)",
    "FetchLoop.ask": "deadline, slices, pauses, losses (rules R1, R7)",
    "RecoveringConsumer.fetch": "makes the consumer, translates its errors",
    "Writer.write": "one thread, closing; time and failures are counted",
    "Writer._take": "copies, checks, routes and counts the rows (rules W8, W9)",
    "Writer._write": "the end of the other side; aborts after an error",
    "Writer.commit": "one thread, closing; the message of the attempt (rule W1)",
    "Producer.call": "translates errors",
    "Committer.commit": "checks messages and the last epoch, compares (rules W3, W7)",
    "Sink.put": "takes rows of any kind, claims the writer id",
    "Sink._put": "numbers the epoch, writes and commits it",
    "LogConsumer.fetch_messages": "the backend",
    "LogWriter.write": "the backend",
    "LogWriter.commit": "the backend",
    "LogCommitter.commit": "the backend",
}
"""What each function between a stream and its backend does."""


def frames_to(function: str, call: Callable[[], object]) -> list[tuple[str, str]]:
    """Modules and functions from a call down to a function of the backend.

    Raises:
        LookupError: The call does not come to the function.
    """
    found: list[tuple[str, str]] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and not found and frame.f_code.co_qualname == function:
            found.extend(_above(frame))

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(previous)
    if not found:
        msg = f"{function} was not called"
        raise LookupError(msg)
    return found[::-1]


def _above(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """A frame and its callers, up to the function that records them."""
    while frame is not None and frame.f_code is not frames_to.__code__:
        path = Path(frame.f_code.co_filename).resolve()
        if path != Path(__file__).resolve():
            yield path.relative_to(ROOT).as_posix(), frame.f_code.co_qualname
        frame = frame.f_back


def ways() -> dict[str, list[tuple[str, str]]]:
    """The frames of each use of a stream of the type ``memory``."""
    topic, rows = f"frames-{uuid4().hex}", pa.record_batch({"id": [1]})
    stream = {"streamType": "memory", "stream.memory.topic.name": topic}
    found: dict[str, list[tuple[str, str]]] = {}

    def record(title: str, function: str, call: Callable[[], object]) -> None:
        found[title] = frames_to(function, call)

    with open_sink(stream) as sink:
        sink.put(rows, writer_id="first")
        with streamfactory.open(stream) as opened:
            batches = iter(opened)
            record(
                "for batch in stream",
                "LogConsumer.fetch_messages",
                lambda: next(batches),
            )
        with sink.committer(writer_id="w") as committer:
            with closing(sink.writer(rows.schema, writer_id="w")) as writer:
                record("writer.write", "LogWriter.write", lambda: writer.write(rows))
                messages: list[CommitMessage] = []
                record(
                    "writer.commit",
                    "LogWriter.commit",
                    lambda: messages.append(writer.commit()),
                )
            record(
                "committer.commit",
                "LogCommitter.commit",
                lambda: committer.commit(0, messages),
            )
        record("sink.put", "LogCommitter.commit", lambda: sink.put(rows))
    return found


def frames() -> str:
    """The tables.

    Raises:
        LookupError: A function between a stream and its backend has no reason.
    """
    parts = []
    for title, way in ways().items():
        modules = {module for module, _ in way}
        lines = [
            f"`{title}`: {len(way)} frames in {len(modules)} modules.\n",
            "| function | module | |",
            "|---|---|---|",
        ]
        for module, function in way:
            if function not in REASONS:
                msg = f"{module}: {function} is called on the way of `{title}` to a "
                msg += "backend: give its reason in REASONS, or leave the call out"
                raise LookupError(msg)
            name = "takes" if function == _CHECKED else function
            lines.append(f"| `{name}` | `{module}` | {REASONS[function]} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
