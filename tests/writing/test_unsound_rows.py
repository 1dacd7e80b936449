"""Rows whose buffers are not what their type requires, given to a sink by a program."""

from __future__ import annotations

import pytest
from tests.malformed import MALFORMED, rows_of

import streamfactory
from streamfactory.spi import SchemaMismatch


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("options", [{}, {"producer.key.columns": "c"}], ids=str)
def test_rows_are_checked_before_anything_is_computed_with_them(
    name: str, options: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Otherwise a conversion, or the hash of a key, reads other memory, or crashes."""
    topic = {
        "streamType": "memory",
        "stream.memory.topic.name": request.node.name,
        "stream.memory.partitions": "3",
    }
    with (
        streamfactory.open_sink(topic, options=options) as sink,
        pytest.raises(SchemaMismatch),
    ):
        sink.put(rows_of(MALFORMED[name][1]))
