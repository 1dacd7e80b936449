"""A receiver and a checkpoint on a disk that begins to fail, and works again.

A program of its own, because the library that fails the disk's calls is loaded before
all others. Writes what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spool.receiving import DEADLINE, receiving, specimens

from streamfactory.conformance.specimens.redelivering import RedeliveringHarness
from streamfactory.spi import Checkpoint, Partition, Position, StreamError
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST, SECOND = range(10), range(10, 30)


def until(condition: Callable[[], object], shown: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(shown())
        time.sleep(0.01)


def saved(store: FileCheckpointStore, offset: int) -> str | None:
    """Save a checkpoint; the text of the error."""
    try:
        store.save("g", "i", Checkpoint(Position({Partition("t", 0): offset}), offset))
    except StreamError as error:
        return str(error)
    return None


def main(root: Path, switch: Path, code: int) -> None:
    plugins, seen = specimens(), dict[str, Any]()
    queue = RedeliveringHarness(root)
    queue.create(1)
    store = FileCheckpointStore(root / "checkpoints")
    properties = {
        **queue.properties(),
        "spool.path": str(root / "spool"),
        "retry.initial.millis": "10",
        "retry.max.millis": "50",
    }
    receiver = receiving(properties, plugins)
    try:
        queue.write(0, FIRST)
        until(lambda: queue.acknowledged() == {0: len(FIRST)}, receiver.reports)
        assert saved(store, 1) is None
        switch.write_text(str(code))
        queue.write(0, SECOND)
        until(lambda: receiver.reports()[0].error, receiver.reports)
        seen["state"] = receiver.reports()[0].state
        seen["error"] = receiver.reports()[0].error
        seen["acknowledged"] = queue.acknowledged()[0]
        seen["saving"] = saved(store, 2)
        seen["loaded"] = offsets(FileCheckpointStore(root / "checkpoints"))
        switch.unlink()
        assert saved(store, 3) is None
        until(lambda: queue.acknowledged() == {0: SECOND.stop}, receiver.reports)
    finally:
        receiver.close()
    with open_stream(properties, plugins=plugins) as stream:
        seen["rows"] = [n for batch in stream for n in batch.rows["number"].to_pylist()]
    seen["saved"] = offsets(FileCheckpointStore(root / "checkpoints"))
    queue.close()
    sys.stdout.write(json.dumps(seen))


def offsets(store: FileCheckpointStore) -> list[int]:
    found = store.load("g")
    return [n for one in found.values() for n in one.position.values()]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
