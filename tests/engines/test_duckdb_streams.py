"""DuckDB reads streams by name in SQL, and pushes what it can down to the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import streamfactory.engines
from streamfactory.spi import MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.engines.conftest import Request

ours = streamfactory.engines.duckdb


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def test_a_stream_is_usable_by_name(
    clicks: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> None:
    found = ours.register(connection, clicks, name="clicks")
    assert found.columns == ["id", "page", "price"]
    answer = connection.sql("select count(*), sum(id), max(page) from clicks")
    assert answer.fetchall() == [(300, 44850, "/6")]


def test_a_stream_of_the_catalogue_has_its_name(
    clicks: dict[str, str], connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    folder = tmp_path / "configs" / "streams"
    folder.mkdir(parents=True)
    lines = "".join(f'"{key}" = "{value}"\n' for key, value in clicks.items())
    (folder / "visits.toml").write_text(f"[properties]\n{lines}")
    ours.register(connection, "visits")
    assert connection.sql("select count(*) from visits").fetchall() == [(300,)]


def test_properties_without_a_name_need_one(
    clicks: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(MisuseError, match="pass name= to register it"):
        ours.register(connection, clicks)


def test_a_registered_stream_is_read_as_it_is_then(
    clicks: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> None:
    ours.register(connection, clicks, name="clicks")
    assert connection.sql("select count(*) from clicks").fetchall() == [(300,)]
    more = pa.table({"id": [300], "page": ["/"], "price": [1.0]})
    with streamfactory.open_sink(clicks) as sink:
        sink.put(more)
    assert connection.sql("select count(*) from clicks").fetchall() == [(301,)]


def test_a_stream_joins_with_tables_and_itself(
    clicks: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> None:
    ours.register(connection, clicks, name="clicks")
    connection.execute("create table names as select '/3' as page, 'three' as name")
    answer = connection.sql(
        "select name, count(*) from clicks join names using (page) group by name"
    )
    assert answer.fetchall() == [("three", 43)]
    twice = connection.sql("select count(*) from clicks a join clicks b using (id)")
    assert twice.fetchall() == [(300,)]


def test_a_relation_needs_no_name(
    clicks: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> None:
    found = ours.relation(clicks, connection=connection, columns=["id"])
    assert found.columns == ["id"]
    assert found.filter("id >= 298").aggregate("sum(id)").fetchall() == [(597,)]
    assert ours.relation(clicks).aggregate("count(*)").fetchall() == [(300,)]


def test_only_columns_of_the_query_are_read(
    clicks: dict[str, str],
    connection: duckdb.DuckDBPyConnection,
    requests: list[Request],
) -> None:
    ours.register(connection, clicks, name="clicks")
    connection.sql("select max(price) from clicks where id > 7").fetchall()
    assert {request.columns for request in requests} <= {
        ("price", "id"),
        ("id", "price"),
    }


@pytest.mark.parametrize(
    ("where", "ranges"),
    [
        ("_partition = 1", {1: (0, 100)}),
        ("_partition in (0, 2) and _offset < 10", {0: (0, 10), 2: (0, 10)}),
        ("_offset between 20 and 30", dict.fromkeys(range(3), (20, 31))),
        ("_offset > 97 and id <> 5", dict.fromkeys(range(3), (98, 100))),
        ("_offset in (3, 5)", dict.fromkeys(range(3), (3, 6))),
        ("_topic = 'others'", {}),
        ("_offset % 2 = 0", dict.fromkeys(range(3), (0, 100))),
    ],
)
def test_a_filter_on_places_decides_what_is_read(
    with_places: dict[str, str],
    connection: duckdb.DuckDBPyConnection,
    requests: list[Request],
    where: str,
    ranges: dict[int, tuple[int, int]],
) -> None:
    ours.register(connection, with_places, name="clicks")
    found = connection.sql(f"select id from clicks where {where} order by id")
    rows = found.fetchall()
    read = list(requests)
    connection.execute("create table copied as select * from clicks")
    there = connection.sql(f"select id from copied where {where} order by id")
    assert rows == there.fetchall()
    seen: dict[int, tuple[int, int]] = {}
    for one in read:
        low, high = seen.get(one.partition, (one.start, one.start))
        seen[one.partition] = (min(low, one.start), max(high, one.start + one.rows))
    assert seen == ranges


def test_the_plan_of_duckdb_has_the_filter_in_the_scan(
    with_places: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> None:
    ours.register(connection, with_places, name="clicks")
    text = connection.sql("explain select id from clicks where _offset < 10")
    plan = text.fetchall()[0][1]
    assert "ARROW_SCAN" in plan
    assert "FILTER " not in plan


def test_leaving_a_query_early_closes_the_stream(
    clicks: dict[str, str],
    connection: duckdb.DuckDBPyConnection,
    open_rotations: Callable[..., int],
) -> None:
    ours.register(connection, clicks, name="clicks")
    answer = connection.sql("select id from clicks where id >= 0 limit 3")
    assert len(answer.fetchall()) == 3
    del answer
    assert open_rotations() == 0


def test_an_error_of_the_stream_ends_the_query(
    clicks: dict[str, str],
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from streamfactory.arrowlog.reading import LogConsumer
    from streamfactory.spi import TopicNotFound

    def fail(*_: object) -> None:
        msg = "the topic 'clicks' was deleted"
        raise TopicNotFound(msg)

    ours.register(connection, clicks, name="clicks")
    monkeypatch.setattr(LogConsumer, "fetch_messages", fail)
    with pytest.raises(duckdb.Error, match="the topic 'clicks' was deleted"):
        connection.sql("select sum(id) from clicks").fetchall()
