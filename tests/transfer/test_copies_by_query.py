"""Copies by a query: what of a row is written, and which queries are refused."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.engines import row_query
from streamfactory.engines.row_query import RowQuery
from streamfactory.spi import MisuseError, SchemaMismatch
from streamfactory.transfer.copies import open_copy

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.date32())])


@pytest.fixture
def orders(tmp_path: Path) -> dict[str, str]:
    stream = named(tmp_path, "orders") | {"stream.file.partitions": "2"}
    with streamfactory.open_sink(stream) as sink:
        for part in range(2):
            numbers = range(part, 100, 2)
            rows = {"id": numbers, "name": [f"n{n}" for n in numbers]}
            sink.put(pa.table({**rows, "_partition": pa.repeat(part, len(numbers))}))
    return stream


def named(folder: Path, topic: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(folder),
        "stream.file.topic.name": topic,
    }


def parts(stream: dict[str, str]) -> list[list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    with streamfactory.open(stream) as opened:
        for batch in opened:
            found.setdefault(batch.partition.id, []).extend(batch.rows.to_pylist())
    return [found[part] for part in sorted(found)]


def test_a_query_filters_renames_casts_and_masks_rows_of_each_partition(
    orders: dict[str, str], tmp_path: Path
) -> None:
    sql = (
        "select id as number, cast(id as varchar) as text, "
        "encode(sha256(name), 'hex') as hash, "
        "regexp_replace(name, '[0-9]', '*') as masked from rows where id <> 4"
    )
    to = named(tmp_path, "to")
    done = streamfactory.copy(orders, to, sql=sql, where="id >= 3 -- not the first")
    assert done.rows == 96
    even, odd = parts(to)
    assert [row["number"] for row in even] == [*range(6, 100, 2)]
    assert [row["number"] for row in odd] == [*range(3, 100, 2)]
    assert odd[0].keys() == {"number", "text", "hash", "masked"}
    assert (odd[0]["text"], odd[0]["masked"]) == ("3", "n*")
    assert len(odd[0]["hash"]) == 64


def test_rows_that_are_left_out_are_not_read_again(
    orders: dict[str, str], tmp_path: Path
) -> None:
    to = named(tmp_path, "to")
    first = streamfactory.copy(orders, to, where="id < 0")
    assert (first.rows, first.epochs) == (0, 0)
    assert set(dict(first.position.items()).values()) == {50}
    assert streamfactory.copy(orders, to, where="true").rows == 0


def test_the_position_behind_rows_that_are_left_out_is_committed_in_time(
    orders: dict[str, str], tmp_path: Path
) -> None:
    to = named(tmp_path, "to")
    often = {"realtime.segment.flush.threshold.time": "100ms"}
    stop = threading.Event()
    with open_copy(orders, to, sink_options=often, where="id < 0") as copy:

        def committed(_: int) -> None:
            with streamfactory.open_sink(to) as sink:
                if sink.last_epoch(copy.writer_id) == 1:
                    stop.set()

        done = copy.run(stop, follow=True, on_progress=committed)
    assert (done.rows, stop.is_set()) == (0, True)


def test_a_value_that_cannot_be_computed_names_partition_and_offsets(
    orders: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        streamfactory.copy(
            orders, named(tmp_path, "to"), sql="select cast(name as int) n from rows"
        )
    assert "rows of orders-" in str(caught.value)
    assert "from offset 0 up to 50" in str(caught.value)


def test_words_in_quotes_and_comments_are_no_part_of_a_query() -> None:
    schema = pa.schema({"tablesample": pa.int64()})
    columns = """select 'it''s tablesample' as a, "tablesample" as b"""
    sql = f"{columns} -- TABLESAMPLE\nfrom rows"
    assert RowQuery(schema, sql=sql).schema.names == ["a", "b"]
    sampled = "from rows tablesample (10 percent)"
    for sql in (
        f"select 'a' as a {sampled} -- '",
        f"select 1 as a /* ' */ {sampled} /* ' */",
        f"select $$'$$ as a {sampled} -- '",
    ):
        with pytest.raises(MisuseError, match="TABLESAMPLE"):
            RowQuery(schema, sql=sql)


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("select count(*) from rows", "an aggregate"),
        ("select id from rows group by id", "an aggregate"),
        ("select row_number() over () from rows", "a window function"),
        ("select a.id from rows a join rows b on a.id = b.id", "a join"),
        ("select * from rows union all select * from rows", "a union"),
        ("select * from rows order by id", "ORDER BY"),
        ("select * from rows limit 3", "LIMIT"),
        ("select distinct id from rows", "DISTINCT"),
        ("select 1 + (select 1) as n from rows", "a subquery"),
        ("select id from rows where id in (select id from rows)", "a subquery"),
        ("select unnest([1, 2]) as n from rows", "unnest"),
        ("select * from rows tablesample (10 percent)", "TABLESAMPLE"),
        ("select 1 as n", "no FROM"),
        ("select now() as n from rows", "Invalid function 'now'"),
        ("select case when id > 1 then random() end from rows", "'random'"),
        ("select uuid() as n from rows", "'uuid'"),
        ("select current_date from rows", "current_date"),
        ("select * from '/etc/passwd'", "not found"),
        ("copy rows to 'rows.csv'", "COPY"),
        ("create table x as select 1", "DDL"),
        ("select id from rows; select id from rows", "single SQL"),
        ("select no_column from rows", "no_column"),
        pytest.param(
            f"select {'(' * 2000}id{')' * 2000} as n from rows",
            "nested too deeply",
            id="2,000 parentheses",
        ),
        *(
            pytest.param(
                f"select {head * 60}id{tail * 60} as n from rows",
                "nested too deeply",
                id=f"60 nested: {head}",
            )
            for head, tail in [
                ("cast(", " as bigint)"),
                ("ceil(", ")"),
                ("position('a' in ", ")"),
                ("{'(': ", "}"),
            ]
        ),
        pytest.param(
            f"select {'interval ' * 3000}'1 day' as n from rows",
            "more than 1000 operators",
            id="3,000 intervals",
        ),
        pytest.param(
            f"select {'id + ' * 20_000}1 as n from rows",
            "more than 1000 operators",
            id="20,000 additions",
        ),
    ],
)
def test_a_query_that_is_no_function_of_a_row_is_refused(sql: str, cause: str) -> None:
    with pytest.raises(MisuseError) as caught:
        RowQuery(SCHEMA, sql=sql)
    assert cause in str(caught.value)


def test_planning_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_query, "_SECONDS", 0.0)
    # Takes seconds, and three times as long with each further level.
    sql = f"select {'position(' * 13}id as as"
    with pytest.raises(MisuseError, match="nested too deeply: not planned within"):
        RowQuery(SCHEMA, sql=sql)


def test_brackets_in_texts_and_comments_do_not_nest() -> None:
    texts = f"""'{"(" * 99}' as a, '{"[" * 99}' as "{"{" * 99}" -- {"(" * 99}
        /* {"(" * 99}
        */ from rows"""
    RowQuery(SCHEMA, sql=f"select {'abs(' * 30}id{')' * 30} as n, {texts}")


def test_a_condition_is_one_expression() -> None:
    for where in ["true order by 1", "id", "random() > 0.5", "(select true)"]:
        with pytest.raises(MisuseError):
            RowQuery(SCHEMA, where=where)


@pytest.mark.parametrize(
    ("sql", "computed"),
    [
        ("select id, name as _topic, 'x' as name from rows", {"_topic", "name"}),
        ("select id from (select id + 1 as id from rows)", {"id"}),
        ("select * from (select id, name as _topic from rows) as r", {"_topic"}),
        ("select r.id, r.name from rows as r(name, id, at)", {"id", "name"}),
        ("select r.id from (select * from rows) as r where id > 1", set()),
    ],
)
@pytest.mark.parametrize("where", [None, "id > 1"])
def test_a_column_that_is_computed_is_known(
    sql: str, computed: set[str], where: str | None
) -> None:
    assert RowQuery(SCHEMA, sql=sql, where=where).computed == computed


def test_messages_keep_key_and_tombstone_where_the_query_selects_them(
    tmp_path: Path,
) -> None:
    decoder = "stream.file.decoder.class.name"
    source = named(tmp_path, "messages") | {decoder: "raw"}
    with streamfactory.open_sink(source) as sink:
        values = [b'{"id": 1}', None, b'{"id": 2}']
        sink.put(pa.table({"value": values, "_key": [b"a", b"b", b"c"]}))
    json = {decoder: "json", "schema": "id bigint"}
    sql = "select * from rows where id > 1 or id is null"
    streamfactory.copy(source | json, named(tmp_path, "to") | json, sql=sql)
    (found,) = parts(named(tmp_path, "to") | {decoder: "raw"})
    assert [(row["key"], row["value"]) for row in found] == [
        (b"b", None),
        (b"c", b'{"id":2}'),
    ]


def test_a_computed_partition_says_where_a_row_goes(
    orders: dict[str, str], tmp_path: Path
) -> None:
    to = named(tmp_path, "to") | {"stream.file.partitions": "2"}
    sql = "select id, cast(1 - id % 2 as int) as _partition from rows"
    streamfactory.copy(orders, to, sql=f"select * from ({sql})")
    assert [part[0]["id"] % 2 for part in parts(to)] == [1, 0]
