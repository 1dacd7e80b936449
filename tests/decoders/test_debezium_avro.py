"""Change events in Avro, whose schemas a Schema Registry has."""

from __future__ import annotations

import io
import json
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from tests.decoders.debezium_events import COMMITTED, CONNECT, DEBEZIUM, payload
from tests.decoders.decoding import bad, complaints, decode, options, sources
from tests.decoders.registries import Server, serving

from streamfactory.decoders.debezium import streamfactory_decoder
from streamfactory.decoders.debezium.decoder import DebeziumDecoder
from streamfactory.spi import DecodeContext, Partition, SchemaUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PLUGIN = streamfactory_decoder()
SUBJECT = "goods-value"
ID = {"name": "id", "type": "long"}
NAME = {"name": "name", "type": ["null", "string"], "default": None}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.schemas.clear()
    running.subjects.clear()
    return running


def envelope(*columns: dict[str, Any]) -> str:
    """The schema as Confluent's converter makes it of a Connect schema."""
    row = {"type": "record", "name": "Value", "fields": list(columns)}
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [
            {"name": "connector", "type": "string"},
            {"name": "ts_ms", "type": "long"},
            {"name": "lsn", "type": ["null", "long"], "default": None},
        ],
    }
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    found = {"type": "record", "name": "Envelope", "namespace": "shop.goods"}
    return json.dumps({**found, "fields": fields})


def optional(name: str, kind: str, logical: str, **more: Any) -> dict[str, Any]:
    described = {"type": kind, "connect.version": 1, "connect.name": logical, **more}
    return {"name": name, "type": ["null", described], "default": None}


@cache
def parsed(schema: str) -> Any:
    """A schema, for the messages of the kit, which are thousands."""
    return fastavro.parse_schema(json.loads(schema))


def event(server: Server, schema: str, *args: Any, **named: Any) -> bytes:
    number = server.register(SUBJECT, {"schema": schema})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed(schema), payload(*args, **named))
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


@contextmanager
def decoder(
    server: Server, schema: str | None = None, **given: str
) -> Iterator[DebeziumDecoder]:
    found = options(PLUGIN, schema, format="avro", **given)
    found["schema.registry.rest.url"] = server.url
    with closing(DebeziumDecoder(found, "goods")) as made:
        yield made


SIMPLE = envelope(ID, NAME)


def test_every_operation_has_its_kind_of_change(server: Server) -> None:
    old, new = {"id": 1, "name": "old"}, {"id": 1, "name": "new"}
    messages = [
        event(server, SIMPLE, "r", after=old),
        event(server, SIMPLE, "u", before=old, after=new),
        event(server, SIMPLE, "d", before=new),
        event(server, SIMPLE, "t"),
    ]
    schema = "id bigint, name string, _change string, _source struct<lsn: bigint>"
    with decoder(server, schema, truncate="row") as made:
        decoded = decode(made, messages)
    rows = [tuple(row.values()) for row in decoded.rows.to_pylist()]
    source = {"lsn": 24_023_128}
    assert rows == [
        (1, "old", "insert", source),
        (1, "old", "update_before", source),
        (1, "new", "update_after", source),
        (1, "new", "delete", source),
        (None, None, "truncate", source),
    ]
    assert sources(decoded) == [0, 1, 1, 2, 3]


def test_columns_have_the_types_that_their_values_stand_for(server: Server) -> None:
    decimal = {"scale": 2, "precision": 64, "logicalType": "decimal"}
    millis = {"logicalType": "timestamp-millis"}
    parameters = {"scale": "2", "connect.decimal.precision": "10"}
    columns = [
        ID,
        optional("day", "int", f"{DEBEZIUM}.time.Date"),
        optional("at", "long", f"{DEBEZIUM}.time.MicroTimestamp"),
        optional("zoned", "string", f"{DEBEZIUM}.time.ZonedTimestamp"),
        optional("connect", "long", f"{CONNECT}.Timestamp", **millis),
        optional(
            "price",
            "bytes",
            f"{CONNECT}.Decimal",
            **{**decimal, "connect.parameters": parameters},
        ),
    ]
    after = {
        "id": 1,
        "day": 19_675,
        "at": 1_700_000_000_000_000,
        "zoned": "2023-11-14T22:13:20Z",
        "connect": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "price": Decimal("12.34"),
    }
    message = event(server, envelope(*columns), "c", after=after)
    with decoder(server) as made:
        decoded = decode(made, [message])
        schema = made.schema()
    assert schema.field("day").type == pa.date32()
    assert schema.field("at").type == pa.timestamp("us")
    assert schema.field("price").type == pa.decimal128(10, 2)
    [row] = decoded.rows.to_pylist()
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert row == {
        "id": 1,
        "day": date(2023, 11, 14),
        "at": moment.replace(tzinfo=None),
        "zoned": moment,
        "connect": moment.replace(tzinfo=None),
        "price": Decimal("12.34"),
        "_change": "insert",
        "_commit_time": datetime(1970, 1, 1, tzinfo=UTC)
        + timedelta(milliseconds=COMMITTED),
    }


def test_geometries_and_decimals_of_variable_scale_are_read(server: Server) -> None:
    def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
        made = [{"name": field, "type": kind} for field, kind in fields]
        word = name.rpartition(".")[2]
        return {"type": "record", "name": word, "fields": made, "connect.name": name}

    point = record(
        f"{DEBEZIUM}.data.geometry.Point",
        ("x", "double"),
        ("y", "double"),
        ("wkb", ["null", "bytes"]),
        ("srid", ["null", "int"]),
    )
    number = record(
        f"{DEBEZIUM}.data.VariableScaleDecimal", ("scale", "int"), ("value", "bytes")
    )
    columns = [{"name": "place", "type": point}, {"name": "amount", "type": number}]
    place = {"x": 1.5, "y": 2.5, "wkb": b"\1", "srid": 4326}
    after = {"place": place, "amount": {"scale": 1, "value": b"\x19"}}
    message = event(server, envelope(*columns), "c", after=after)
    wanted = "place struct<srid: int, x: double>, amount decimal(10,2)"
    with decoder(server, wanted) as made:
        [row] = decode(made, [message]).rows.to_pylist()
    assert row["place"] == {"srid": 4326, "x": 1.5}
    assert row["amount"] == Decimal("2.50")
    with decoder(server, "place binary, amount double") as made:
        [row] = decode(made, [message]).rows.to_pylist()
    assert (row["place"], row["amount"]) == (b"\1", 2.5)


def test_structured_times_are_read(server: Server) -> None:
    parts = [*(["year", "int"], ["month", "int"], ["day", "int"])]
    day = {
        "type": "record",
        "name": "StructuredDate",
        "fields": [{"name": name, "type": ["null", kind]} for name, kind in parts]
        + [{"name": "specialValue", "type": ["null", "string"]}],
        "connect.name": f"{DEBEZIUM}.time.StructuredDate",
    }
    after = {"x": {"year": 2024, "month": 2, "day": 29, "specialValue": None}}
    schema = envelope({"name": "x", "type": day})
    message = event(server, schema, "c", after=after)
    infinite = dict.fromkeys(("year", "month", "day"))
    after = {"x": infinite | {"specialValue": "POSITIVE_INFINITY"}}
    with decoder(server, "x date") as made:
        decoded = decode(made, [message, event(server, schema, "c", after=after)])
    assert [row["x"] for row in decoded.rows.to_pylist()] == [date(2024, 2, 29)]
    assert bad(decoded) == [(1, "value")]


def test_decimals_of_negative_scale_texts_and_bytes_are_read(server: Server) -> None:
    parameters = {"scale": "-2", "connect.decimal.precision": "5"}
    columns = [
        optional(
            "amount",
            "bytes",
            f"{CONNECT}.Decimal",
            **{"connect.parameters": parameters},
        ),
        {"name": "raw", "type": "string"},
        optional("bits", "bytes", f"{DEBEZIUM}.data.Bits"),
        optional("year", "int", f"{DEBEZIUM}.time.Year"),
        optional("took", "long", f"{DEBEZIUM}.time.NanoDuration"),
    ]
    after = {
        "amount": b"\x0f",
        "raw": "ff00",
        "bits": b"\5",
        "year": 2024,
        "took": 5000,
    }
    message = event(server, envelope(*columns), "c", after=after)
    with decoder(server) as made:
        [row] = decode(made, [message]).rows.to_pylist()
        assert made.schema().field("amount").type == pa.decimal128(7, 0)
    assert (row["amount"], row["raw"], row["bits"]) == (Decimal(1500), "ff00", b"\5")
    assert (row["year"], row["took"]) == (2024, timedelta(microseconds=5))
    with decoder(server, "raw binary", binary_handling_mode="hex") as made:
        [row] = decode(made, [message]).rows.to_pylist()
    assert row["raw"] == b"\xff\0"
    with decoder(server, "raw binary") as made:
        assert bad(decode(made, [message])) == [(0, "value")]


def test_schemas_that_evolve_have_rows_of_the_declared_columns(server: Server) -> None:
    """A column is added, and another one counts in another unit."""
    millis = optional("at", "long", f"{DEBEZIUM}.time.Timestamp")
    micros = optional("at", "long", f"{DEBEZIUM}.time.MicroTimestamp")
    one, two = envelope(ID, millis), envelope(ID, NAME, micros)
    moment = 1_700_000_000_000
    messages = [
        event(server, two, "c", after={"id": 0, "name": "n", "at": moment * 1000}),
        event(server, one, "c", after={"id": 1, "at": moment}),
        event(server, two, "c", after={"id": 2, "name": "n", "at": moment * 1000}),
        event(server, one, "d", before={"id": 3, "at": moment}),
    ]
    context = DecodeContext(Partition("goods", 0), undeclared=True)
    with decoder(server, "id bigint, at timestamp_ntz") as made:
        decoded = made.decode(pa.array(messages, pa.binary()), context)
    assert decoded.rows["id"].to_pylist() == [0, 1, 2, 3]
    assert len(set(decoded.rows["at"].to_pylist())) == 1
    assert [misfit.rows.to_pylist() for misfit in decoded.misfits] == [[0, 2]]


def test_messages_without_a_known_schema_of_an_event_are_bad(server: Server) -> None:
    good = event(server, SIMPLE, "c", after={"id": 1, "name": None})
    other = json.dumps({"type": "record", "name": "click", "fields": [ID]})
    number = server.register("other", {"schema": other})
    odd = b"\0" + number.to_bytes(4, "big") + b"\2"
    messages = [good, b"no frame", odd, b"\0\0\0\0\x63xx", good[:-4], good]
    with decoder(server) as made:
        decoded = decode(made, messages)
    assert bad(decoded) == [
        (1, "framing"),
        (2, "schema"),
        (3, "unknown_schema_id"),
        (4, "malformed"),
    ]
    assert sources(decoded) == [0, 5]


def test_a_subject_that_does_not_exist_is_reported(server: Server) -> None:
    with (
        decoder(server) as made,
        pytest.raises(SchemaUnknown, match="no subject 'goods-value'"),
    ):
        made.schema()


def test_the_kit_passes(server: Server) -> None:
    class Harness:
        several = False

        def options(self) -> Mapping[str, str]:
            schema = "id bigint not null, name string"
            url = {"schema.registry.rest.url": server.url}
            return {"schema": schema, "format": "avro", **url}

        def message(self, numbers: Sequence[int]) -> bytes:
            [number] = numbers
            after = {"id": number, "name": f"a text, {number}"}
            return event(server, SIMPLE, "c", after=after)

        def numbers(self, rows: pa.RecordBatch) -> list[int]:
            return list(rows.column("id").to_pylist())

        def undeclared(self, number: int) -> bytes:
            schema = envelope(ID, {"name": "more", "type": "string"})
            return event(server, schema, "c", after={"id": number, "more": "x"})

        def misfit(self, number: int) -> bytes:
            """A column that was text before."""
            schema = envelope(ID, {"name": "name", "type": "bytes"})
            after = {"id": number, "name": b"\xff"}
            return event(server, schema, "c", after=after)

        def bad(self) -> Mapping[str, bytes]:
            return {
                "nothing": event(server, SIMPLE, "c"),
                "another operation": event(server, SIMPLE, "m"),
                "no frame": b"x",
            }

    assert complaints(PLUGIN, Harness) == []
