"""Readers over scripted authors: see `specimens`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# `tests.specimens` is imported from the root, wherever pytest was started.
sys.path.insert(0, str(Path(__file__).parents[2]))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.specimens import Author

    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source


@pytest.fixture
def reader_of() -> Iterator[Callable[..., Reader]]:
    """Makes a reader of a scripted author; all are closed in the end."""
    opened: list[Reader | Source] = []

    def make(author: Author, **options: Any) -> Reader:
        source = author.source(**options)
        from tests.specimens import PARTITION_0

        reader = source.reader(PARTITION_0)
        opened.extend((source, reader))
        return reader

    yield make
    for one in reversed(opened):
        one.close()


class Background:
    """A call in another thread, with its outcome and when it came."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.result: object = None
        self.error: BaseException | None = None
        self.ended = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end; a failure when it does not come."""
        self._thread.join(seconds)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        self.ended = time.monotonic()


@pytest.fixture
def background() -> Callable[[Callable[[], object]], Background]:
    """Runs something in another thread."""
    return Background
