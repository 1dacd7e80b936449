"""Headers that a format reads and writes, such as the attributes of CloudEvents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory import open_sink
from streamfactory.spi import headers_type
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from tests.decoding.conftest import Streams

ROW = {"item": "hat", "ce_id": "7", "ce_source": "/shop", "ce_type": "sold"}
SCHEMA = "item string, ce_id string, ce_source string, ce_type string"
OWN = "stream.kafka."


def events(streams: Streams, **more: str) -> dict[str, Any]:
    return streams.define(
        "events",
        stream__memory__decoder__class__name="cloudevents",
        stream__memory__decoder__prop__schema=SCHEMA,
        **more,
    )


def test_attributes_are_headers_of_messages(streams: Streams) -> None:
    streams.messages("events", [])
    given = [{"key": "ce_id", "value": b"old"}, {"key": "trace", "value": b"1"}]
    rows = pa.table({name: [text] * 2 for name, text in ROW.items()})
    headers = pa.array([given, None], headers_type())
    with open_sink(events(streams)) as sink:
        sink.put(rows)
        sink.put(rows.append_column("_headers", headers))
        sink.put(rows.append_column("_tombstone", pa.array([True, False])))
    stored = streams.rows("events")
    found = [
        None
        if row["headers"] is None
        else {one["key"]: one["value"] for one in row["headers"]}
        for row in stored
    ]
    event = {
        "ce_specversion": b"1.0",
        "ce_id": b"7",
        "ce_source": b"/shop",
        "ce_type": b"sold",
        "content-type": b"application/json",
    }
    assert found == [event, event, {**event, "trace": b"1"}, event, None, event]
    assert stored[4]["value"] is None
    with open_stream(events(streams)) as stream:
        read = stream.to_reader().read_all().to_pylist()
    nothing = dict.fromkeys(ROW)
    assert read == [ROW, ROW, ROW, ROW, nothing, ROW]


@pytest.mark.parametrize(
    ("decoder", "more", "wanted"),
    [
        ("raw", {}, True),
        ("json", {}, False),
        ("cloudevents", {}, True),
        ("json", {"includeHeaders": "true", "metadata.columns": "true"}, True),
        ("json", {"decode.on.error": "dead-letter"}, True),
        ("json", {f"{OWN}key.decoder.class.name": "cloudevents"}, True),
    ],
)
def test_a_backend_is_told_whether_headers_are_read(
    decoder: str, more: dict[str, str], wanted: bool
) -> None:
    properties = {
        "streamType": "kafka",
        f"{OWN}topic.name": "events",
        f"{OWN}broker.list": "localhost:1",
        f"{OWN}decoder.class.name": decoder,
        **({} if decoder == "raw" else {f"{OWN}decoder.prop.schema": "item string"}),
        **more,
    }
    found = configure(from_mapping(properties), default_manager(), use="read")
    assert found.config.wants_headers is wanted
