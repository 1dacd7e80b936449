"""D3 in the tasks of Spark: rows with evidence, and a budget for each range."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.specimens import Dictionary

from streamfactory.spark.tasks import pool, read
from streamfactory.spi import ErrorBudgetExceeded, Partition
from streamfactory.spi.hooks import DECODERS
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Range
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from tests.decoding.conftest import Streams

    from streamfactory.spi import StreamConfig

PARTITION_0 = Partition("from", 0)


@pytest.fixture
def installed() -> Iterator[None]:
    """The decoder of words, where the tasks of Spark look for it."""
    default_manager().register(Dictionary())
    yield
    pool.close()
    default_manager().unregister(DECODERS, "words")


def opened(streams: Streams, **options: str) -> tuple[StreamConfig, pa.Schema]:
    """The stream of words as Spark's driver has it, and its schema."""
    properties: dict[str, Any] = streams.define(
        "from", stream__memory__decoder__class__name="words", **options
    )
    definition = from_mapping(properties, "from")
    configured = configure(definition, default_manager(), use="spark")
    with closing(Source(configured)) as source:
        return configured.config, source.schema


def test_task_answers_rows_with_evidence(streams: Streams, installed: None) -> None:
    streams.messages("from", [b"a", b"b!", b"c"])
    config, schema = opened(
        streams, decode__on__error="dead-letter", metadata__columns="true"
    )
    added = frozenset(schema.names) - {"word"}
    (rows,) = read(config, Range(PARTITION_0, 0, 3, None), schema, added=added)
    assert rows.column("word").to_pylist() == ["a", None, "c"]
    assert rows.column("_error").to_pylist()[1]["code"] == "malformed"
    assert rows.column("_raw").to_pylist() == [None, b"b!", None]
    assert rows.column("_offset").to_pylist() == [0, 1, 2]


def test_budget_is_that_of_one_range_though_the_reader_stays(
    streams: Streams, installed: None
) -> None:
    streams.messages("from", [b"w!", b"w"] * 10)
    config, schema = opened(streams, decode__on__error="skip", max__errors="2")
    for start in range(0, 16, 4):
        rows = list(read(config, Range(PARTITION_0, start, start + 4, None), schema))
        assert sum(one.num_rows for one in rows) == 2
    with pytest.raises(ErrorBudgetExceeded) as caught:
        list(read(config, Range(PARTITION_0, 0, 20, None), schema))
    assert caught.value.what.startswith("10 of 20 messages")
