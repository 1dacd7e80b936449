"""Consumers and providers over paths, closed after each test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.foreign.stage import config_of, plugins, properties

from streamfactory.backends.file.foreign import create_consumer, create_metadata
from streamfactory.spi import (
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
)
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

PARTITION_0 = Partition("t", 0)
NOW = FetchLimits(1_000_000, 1 << 30, 0.0)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def consumer_factory(stack: ExitStack) -> Callable[..., PartitionLevelConsumer]:
    def make(path: Path, fields: Any = None, **options: str) -> PartitionLevelConsumer:
        made = create_consumer(config_of(path, **options), PARTITION_0, fields)
        stack.callback(made.close)
        return made

    return make


@pytest.fixture
def provider_factory(stack: ExitStack) -> Callable[..., MetadataProvider]:
    def make(path: Path, **options: str) -> MetadataProvider:
        made = create_metadata(config_of(path, **options))
        stack.callback(made.close)
        return made

    return make


@pytest.fixture
def info_of(
    provider_factory: Callable[..., MetadataProvider],
) -> Callable[..., PartitionInfo]:
    """Bounds, as a provider that was just made has them."""

    def look(path: Path, **options: str) -> PartitionInfo:
        (info,) = provider_factory(path, **options).fetch_partitions(["t"], ())
        return info

    return look


@pytest.fixture
def table_of() -> Callable[..., pa.Table]:
    """All rows through the framework, in the schema that it declares."""

    def read(path: Path, **options: str) -> pa.Table:
        given = properties(path, **options)
        with open_stream(given, plugins=plugins()) as stream:
            return stream.to_reader().read_all()

    return read


@pytest.fixture
def values_of(
    consumer_factory: Callable[..., PartitionLevelConsumer],
) -> Callable[..., list[Any]]:
    """The first column of all rows from an offset, by a consumer that was just made."""

    def read(path: Path, start: int = 0, **options: str) -> list[Any]:
        consumer, found = consumer_factory(path, **options), []
        while (fetched := consumer.fetch_messages(start, None, NOW)).rows is not None:
            found += fetched.rows.column(0).to_pylist()
            start = fetched.next_offset
        return found

    return read
