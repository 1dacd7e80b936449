"""Engines over a real broker: times are pushed down, and asyncio follows a topic."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import streamfactory
from streamfactory import engines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.topics import Topics

HOUR = 3_600_000


def orders(properties: Mapping[str, str]) -> dict[str, str]:
    """The stream with a decoder and its metadata columns."""
    fields = "id bigint, customer bigint, amount double"
    return {
        **properties,
        "stream.kafka.decoder.class.name": "json",
        "stream.kafka.decoder.prop.schema": fields,
        "metadata.columns": "true",
    }


def message(number: int) -> bytes:
    return b'{"id": %d, "customer": %d, "amount": 1.5}' % (number, number % 2)


def fill(topics: Topics, topic: str) -> None:
    """Ten orders of two hours ago, then ten of now."""
    now = int(time.time() * 1000)
    for first, at in ((0, now - 2 * HOUR), (10, now)):
        values = [message(number) for number in range(first, first + 10)]
        topics.send(topic, values, timestamp=at)


def test_a_topic_joins_with_a_parquet_file_from_a_time_on(
    topics: Topics, topic: str, properties: Mapping[str, str], tmp_path: Path
) -> None:
    fill(topics, topic)
    path = tmp_path / "customers.parquet"
    pq.write_table(pa.table({"id": [0, 1], "name": ["ann", "bob"]}), path)
    with duckdb.connect() as connection:
        engines.duckdb.register(connection, orders(properties), name="orders")
        found = connection.sql(f"""
            select name, count(*), sum(amount)
            from orders join '{path}' customers on customer = customers.id
            where _timestamp >= now() - interval 1 hour
            group by name order by name
        """)
        assert found.fetchall() == [("ann", 5, 7.5), ("bob", 5, 7.5)]


def test_a_lower_bound_of_time_is_the_first_offset_fetched(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    import pyarrow.dataset as ds

    fill(topics, topic)
    dataset = engines.arrow.dataset(orders(properties))
    since = pa.scalar(int(time.time() - 3600) * 1_000_000, pa.timestamp("us", "UTC"))
    late = ds.field("_timestamp") >= since
    assert list(dataset.plan(filter=late).ranges.values()) == [(10, 20)]
    assert dataset.to_table(columns=["id"], filter=late)["id"].to_pylist() == [
        *range(10, 20)
    ]
    assert dataset.counters.messages == 10


def test_polars_reads_places_of_a_topic(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    fill(topics, topic)
    frame = engines.polars.scan(orders(properties))
    found = frame.filter(pl.col("_offset").is_between(5, 7)).select("id").collect()
    assert found["id"].to_list() == [5, 6, 7]


def test_asyncio_follows_a_topic(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    async def read() -> list[int]:
        found: list[int] = []
        async with streamfactory.open(
            orders(properties), start="earliest", follow=True
        ) as stream:
            await asyncio.to_thread(topics.send, topic, [message(1), message(2)])
            async for batch in stream:
                found += batch.rows["id"].to_pylist()
                if len(found) == 2:
                    await asyncio.to_thread(topics.send, topic, [message(3)])
                if len(found) == 3:
                    break
        return found

    assert asyncio.run(asyncio.wait_for(read(), 120)) == [1, 2, 3]
