"""CloudEvents in Kafka's binding: attributes in headers, or in an envelope."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.decoders.decoding import bad, complaints, options, sources

from streamfactory.decoders.cloudevents import streamfactory_decoder
from streamfactory.decoders.cloudevents.decoder import CloudEventsDecoder
from streamfactory.decoders.cloudevents.encoder import CloudEventsEncoder
from streamfactory.decoders.cloudevents.harness import CloudEventsHarness
from streamfactory.spi import DecodeContext, Partition, SchemaMismatch, headers_type
from streamfactory.wiring.writing.headers import merged_headers

if TYPE_CHECKING:
    from streamfactory.spi import Decoded

PLUGIN = streamfactory_decoder()
BASE = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "sold"}
JSON = {"content-type": "application/json"}
EVENTS = "application/cloudevents"
STRUCTURED = {"content-type": f"{EVENTS}+json; charset=UTF-8"}
DATA = {"number": 1, "text": "a"}
Message = tuple[bytes, dict[str, str | bytes] | None]


def binary(value: bytes, others: Any = None, **more: str) -> Message:
    attributes = {f"ce_{key}": text for key, text in {**BASE, **more}.items()}
    return value, {**attributes, **(JSON if others is None else others)}


def structured(data: Any = None, **more: Any) -> Message:
    found = {**BASE, "data": DATA if data is None else data, **more}
    return json.dumps(found).encode(), dict(STRUCTURED)


def decode(schema: str | None, *messages: Message) -> Decoded:
    decoder = CloudEventsDecoder(options(PLUGIN, schema), "sales")
    headers = [
        None
        if given is None
        else [
            {"key": key, "value": text if isinstance(text, bytes) else text.encode()}
            for key, text in given.items()
        ]
        for _, given in messages
    ]
    context = DecodeContext(
        Partition("sales", 0), headers=pa.array(headers, headers_type())
    )
    decoded = decoder.decode(pa.array([v for v, _ in messages], pa.binary()), context)
    decoded.rows.validate(full=True)
    assert decoded.rows.schema.equals(decoder.schema())
    return decoded


def test_the_kit_passes() -> None:
    assert complaints(PLUGIN, CloudEventsHarness) == []


def test_both_modes_have_the_same_rows() -> None:
    more = {"time": "2013-01-01T05:00:00.25Z", "subject": "s"}
    decoded = decode(
        "number bigint, text string",
        binary(json.dumps(DATA).encode(), **more),
        structured(**more),
        (structured(**more)[0], None),
    )
    row = {
        **DATA,
        "ce_id": "7",
        "ce_source": "/shop",
        "ce_type": "sold",
        "ce_time": datetime(2013, 1, 1, 5, 0, 0, 250_000, UTC),
        "ce_subject": "s",
    }
    assert decoded.errors == []
    assert decoded.rows.to_pylist() == [row] * 3


def test_declared_attributes_and_extensions_are_the_columns() -> None:
    schema = "ce_number int, ce_traceparent string, text string, ce_dataschema string"
    given = {"traceparent": "00-1", "dataschema": "urn:x"}
    value = json.dumps(DATA).encode()
    decoded = decode(
        schema, binary(value, **given, number="5"), structured(**given, number=5)
    )
    row = {"ce_number": 5, "ce_traceparent": "00-1", "text": "a"}
    assert decoded.rows.to_pylist() == [{**row, "ce_dataschema": "urn:x"}] * 2


def test_without_a_schema_data_is_returned_as_it_is() -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    envelope = json.dumps({**BASE, "data_base64": raw}).encode()
    decoded = decode(
        None,
        binary(b"\xff\x00", {"content-type": "image/png"}),
        structured([1, 2]),
        (envelope, None),
        (json.dumps(BASE).encode(), {**STRUCTURED}),
    )
    assert decoded.errors == []
    assert decoded.rows["data"].to_pylist() == [
        b"\xff\x00",
        b"[1, 2]",
        b"\xff\x00",
        None,
    ]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (binary(b"<a/>", {"content-type": "text/xml"}), "content_type"),
        (binary(b"{", {}), "malformed"),
        (binary(b"{}", specversion="0.3"), "version"),
        (binary(b"{}", time="yesterday"), "value"),
        ((b"{}", {"ce_specversion": "1.0", "ce_id": "1", "ce_type": "t"}), "null"),
        ((b"{}", {**binary(b"")[1], "ce_id": b"\xff"}), "null"),  # type: ignore[dict-item]
        (
            (b"[]", {"content-type": "application/cloudevents-batch+json"}),
            "content_type",
        ),
        ((b"x", {"content-type": "application/cloudevents+avro"}), "content_type"),
        ((b"{}", None), "null"),
        ((b"text", {"other": "header"}), "malformed"),
    ],
)
def test_what_is_no_event_is_bad(message: Message, code: str) -> None:
    good = binary(json.dumps(DATA).encode())
    decoded = decode("number bigint, text string", good, message, structured())
    assert bad(decoded) == [(1, code)]
    assert sources(decoded) == [0, 2]


def test_the_last_of_several_headers_counts() -> None:
    headers = [[{"key": "ce_" + k, "value": v.encode()} for k, v in BASE.items()]]
    headers[0].append({"key": "ce_id", "value": b"8"})
    decoder = CloudEventsDecoder(options(PLUGIN), "sales")
    context = DecodeContext(
        Partition("sales", 0), headers=pa.array(headers, headers_type())
    )
    decoded = decoder.decode(pa.array([b""], pa.binary()), context)
    assert decoded.rows["ce_id"].to_pylist() == ["8"]


# --- the way back ---------------------------------------------------------------------

WRITTEN = {
    "number": [1, None],
    "text": ["a", 'quote " and \n'],
    "ce_id": ["7", "8"],
    "ce_source": ["/shop", "/s"],
    "ce_type": ["sold", "t"],
    "ce_time": [datetime(2013, 1, 1, 5, 0, 0, 250_000, UTC), None],
    "ce_count": pa.array([5, None], pa.int32()),
}
BYTES = {**{k: v for k, v in WRITTEN.items() if k not in ("number", "text")}}


def written(rows: dict[str, Any], mode: str) -> tuple[pa.Array, pa.Array]:
    encoder = CloudEventsEncoder(options(PLUGIN, mode=mode), "sales")
    batch = pa.RecordBatch.from_pydict(rows)
    headers = encoder.encode_headers(batch)
    headers.validate(full=True)
    return encoder.encode(batch), headers


def read(schema: str | None, values: pa.Array, headers: pa.Array | None) -> Decoded:
    decoder = CloudEventsDecoder(options(PLUGIN, schema), "sales")
    return decoder.decode(values, DecodeContext(Partition("s", 0), headers=headers))


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_what_is_written_is_read(mode: str) -> None:
    values, headers = written(WRITTEN, mode)
    schema = "number bigint, text string, ce_id string, ce_source string, "
    schema += "ce_type string, ce_time timestamp, ce_count int"
    decoded = read(schema, values, headers)
    assert decoded.errors == []
    assert decoded.rows.to_pydict() == pa.RecordBatch.from_pydict(WRITTEN).to_pydict()
    if mode == "structured":
        assert read(schema, values, None).rows.equals(decoded.rows)


def test_headers_of_the_binary_mode_are_those_of_the_binding() -> None:
    values, headers = written(WRITTEN, "binary")
    assert values.to_pylist()[0] == b'{"number":1,"text":"a"}'
    assert {one["key"]: one["value"] for one in headers.to_pylist()[0]} == {
        "ce_specversion": b"1.0",
        "content-type": b"application/json",
        "ce_id": b"7",
        "ce_source": b"/shop",
        "ce_type": b"sold",
        "ce_time": b"2013-01-01T05:00:00.250000Z",
        "ce_count": b"5",
    }
    assert "ce_time" not in {one["key"] for one in headers.to_pylist()[1]}


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_data_of_any_type_is_written_as_it_is(mode: str) -> None:
    rows = {
        **BYTES,
        "data": [b"\xff", b"\x00"],
        "ce_datacontenttype": ["image/png"] * 2,
    }
    decoded = read(None, *written(rows, mode))
    assert decoded.errors == []
    assert decoded.rows["data"].to_pylist() == rows["data"]


def test_an_event_without_data_has_an_envelope() -> None:
    rows = {**BYTES, "data": pa.array([b"x", None], pa.binary())}
    with pytest.raises(SchemaMismatch, match="'data' has nulls"):
        written(rows, "binary")
    assert read(None, *written(rows, "structured")).rows["data"].to_pylist() == [
        b"x",
        None,
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ce_id": ["7", None]}, "no attribute 'id'"),
        ({"ce_source": ["", "s"]}, "no attribute 'source'"),
        ({"ce_Count": [1, 2]}, "'ce_Count' is no attribute"),
        ({"ce_data": ["x", "y"]}, "'ce_data' is no attribute"),
        ({"ce_specversion": ["1.0", "0.3"]}, "another version"),
        ({"ce_datacontenttype": ["text/xml", None]}, "not JSON"),
    ],
)
def test_rows_that_are_no_event_are_refused(change: dict[str, Any], what: str) -> None:
    with pytest.raises(SchemaMismatch, match=what):
        written({**WRITTEN, **change}, "binary")


def test_headers_of_rows_follow_and_do_not_repeat_those_of_the_format() -> None:
    def headers(*rows: list[tuple[str, bytes]] | None) -> pa.Array:
        found = [
            None if row is None else [{"key": k, "value": v} for k, v in row]
            for row in rows
        ]
        return pa.array(found, headers_type())

    made = headers([("ce_id", b"1")], None, [("ce_id", b"2"), ("ce_subject", b"s")])
    given = headers(
        [("ce_id", b"9"), ("h", b"x"), ("ce_subject", b"own")], [("ce_id", b"8")], None
    )
    merged = merged_headers(given, made)
    merged.validate(full=True)
    assert [[(h["key"], h["value"]) for h in row] for row in merged.to_pylist()] == [
        # What the format made for another row of the batch leaves this one alone.
        [("ce_id", b"1"), ("h", b"x"), ("ce_subject", b"own")],
        [("ce_id", b"8")],
        [("ce_id", b"2"), ("ce_subject", b"s")],
    ]
    part = merged_headers(given.slice(1), made.slice(1))
    assert part.to_pylist() == merged.to_pylist()[1:]
