"""A reader that copies numbers from stream to stream, and survives its kills."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.proving.children import DEADLINE
from tests.proving.numbers import SCHEMA

from streamfactory.spi import StreamError
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from streamfactory.spi import LastCommit
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.writing.sink import Sink

_PAUSE: Final = 0.02


def copy_numbers(
    source: Mapping[str, str],
    target: Mapping[str, str],
    drain: Path,
    plugins: PluginManager | None = None,
) -> None:
    """Copy each row once, with the position in the same commit.

    Args:
        source: The stream that is read.
        target: The stream that is written.
        drain: A path; once it exists, this returns when nothing is left to copy.
        plugins: Where types are found; the process's own by default.
    """
    with open_sink(target) as sink:
        held = last_commit(sink, "reader")
        epoch = 0 if held is None else held.epoch + 1
        start = "earliest" if held is None else held.source_position
        with open_stream(source, start=start, follow=True, plugins=plugins) as opened:
            while True:
                is_over = drain.exists()
                found = opened.next_batch(0.05)
                if found is not None and found.rows.num_rows:
                    sink.put(
                        pa.record_batch(found.rows.columns, schema=SCHEMA),
                        writer_id="reader",
                        epoch=epoch,
                        source_position=opened.position,
                    )
                    epoch += 1
                elif is_over:
                    behind = opened.lag().values()
                    # An unknown lag, or none at all, is not the end.
                    if behind and all(rows == 0 for rows in behind):
                        return


def last_commit(sink: Sink, writer: str) -> LastCommit | None:
    """What a writer has committed last."""
    with contextlib.closing(sink.committer(writer_id=writer)) as committer:
        return committer.last()


def until_done(
    attempt: Callable[[], None], *waits: type[StreamError], seconds: float = DEADLINE
) -> None:
    """Try again while the other side is away.

    Args:
        attempt: What is tried.
        *waits: Errors that are tried again, besides those that can be retried.
        seconds: After which an error is raised.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            attempt()
        except StreamError as error:
            is_away = error.retryable or isinstance(error, waits)
            if not is_away or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return
