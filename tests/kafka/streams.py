"""Streams over a broker, opened as the framework opens them."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from streamfactory.spi import Partition
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spi import MessageBatch
    from streamfactory.wiring.reading.reader import Reader

PATIENCE = 120.0


@contextmanager
def opened(properties: Mapping[str, str], **options: str) -> Iterator[Source]:
    """A stream; in option names ``__`` stands for a dot."""
    extra = {name.replace("__", "."): value for name, value in options.items()}
    definition = from_mapping({**properties, **extra})
    configured = configure(definition, default_manager(), use="read")
    with closing(Source(configured)) as source:
        yield source


@contextmanager
def reading(
    properties: Mapping[str, str], partition: int = 0, **options: str
) -> Iterator[Reader]:
    """A reader of one partition."""
    with opened(properties, **options) as source:
        topic = source.config.topic
        with closing(source.reader(Partition(topic, partition))) as reader:
            yield reader


def drain(
    reader: Reader, start: int = 0, end: int | None = None, *, rows: int | None = None
) -> list[MessageBatch]:
    """Batches from a start to an end, or until so many rows have come."""
    batches: list[MessageBatch] = []
    at, deadline = start, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done = sum(batch.num_rows for batch in batches)
        if (end is not None and at >= end) or (rows is not None and done >= rows):
            return batches
        batches.append(reader.fetch(at, end=end, timeout=1.0))
        at = batches[-1].next_offset
    msg = f"reading makes no progress at {at}"
    raise TimeoutError(msg)


def values(batches: list[MessageBatch]) -> list[bytes | None]:
    """The values of all rows."""
    return [v for batch in batches for v in batch.rows.column("value").to_pylist()]


def offsets(batches: list[MessageBatch]) -> list[int]:
    """The offsets of all rows."""
    return [o for batch in batches for o in batch.rows.column("offset").to_pylist()]
