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
from streamfactory.decoders.cloudevents.harness import CloudEventsHarness
from streamfactory.spi import DecodeContext, Partition, headers_type

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
