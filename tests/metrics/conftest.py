"""Readers over scripted authors, and the metrics that they move."""

from __future__ import annotations

import sys
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
    from tests.specimens import PARTITION_0

    opened: list[Reader | Source] = []

    def make(author: Author, **options: Any) -> Reader:
        source = author.source(**options)
        reader = source.reader(PARTITION_0)
        opened.extend((source, reader))
        return reader

    yield make
    for one in reversed(opened):
        one.close()


@pytest.fixture(autouse=True)
def zero() -> Iterator[None]:
    """Other tests of this process have counted too."""
    from streamfactory.wiring.metrics.registry import registry

    registry.clear()
    yield
    registry.clear()
