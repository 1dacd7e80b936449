"""Frames of schema registries are named where no decoder expects them."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.decoders.registries import serving

import streamfactory
from streamfactory.spi import BadMessage, DecodeContext, Decoder, Partition
from streamfactory.wiring.decoding.calling import call_decoder
from streamfactory.wiring.decoding.frames import with_frames
from streamfactory.wiring.plugins.manager import default_manager

FRAMED = b"\0\0\0\0\7" + b'{"id": 1}'
GLUE = b"\3\0" + bytes(range(16)) + b"\x02"
CONTEXT = DecodeContext(Partition("t", 0))


def named(message: bytes, **options: Any) -> str:
    errors = [BadMessage(1, "malformed", "it is bad")]
    values = pa.array([b"", message], pa.binary())
    decoder: Any = SimpleNamespace(options=options)
    [error] = with_frames(errors, values, decoder)
    assert (error.message, error.code) == (1, "malformed")
    return error.what.removeprefix("it is bad").removeprefix("; ")


def test_a_frame_of_a_registry_is_named_with_its_id_and_the_option() -> None:
    assert named(FRAMED) == (
        "this looks like a Schema Registry frame (id 7): set "
        "decoder.prop.schema.registry.rest.url of avro, json or protobuf, or of "
        "debezium"
    )
    assert named(FRAMED, **{"schema.registry.rest.url": "http://localhost"}) == ""


@pytest.mark.parametrize("compression", [0, 5])
def test_a_frame_of_glue_is_named_with_a_registry_too(compression: int) -> None:
    message = b"\3" + bytes([compression]) + GLUE[2:]
    for options in ({}, {"schema.registry.rest.url": "http://localhost"}):
        assert "AWS Glue's Schema Registry" in named(message, **options)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        FRAMED[:5],
        b"\0\0\0\0\0x",
        b"\0\xff\0\0\0x",
        b"{}",
        GLUE[:17],
        b"\3\1" * 9,
    ],
)
def test_other_messages_are_not_taken_for_frames(message: bytes) -> None:
    assert named(message) == ""


def made(name: str, **options: str) -> Any:
    plugin: Decoder = default_manager().decoder(name)
    texts = {one.key: options.get(one.key, one.default) for one in plugin.options}
    found = {
        one.key: one.parse(text)
        for one in plugin.options
        if (text := texts[one.key]) is not None
    }
    assert plugin.decoder is not None
    return plugin.decoder(found, "t")


@pytest.mark.parametrize("name", ["json", "csv", "debezium"])
def test_every_decoder_names_them(name: str) -> None:
    decoder = made(name, schema="id bigint, name string")
    values = pa.array([FRAMED, GLUE], pa.binary())
    decoded = call_decoder(decoder, values, CONTEXT)
    one, other = decoded.errors
    assert "Schema Registry frame (id 7)" in one.what
    assert "AWS Glue" in other.what


def test_keys_are_columns_of_a_schema_of_their_own() -> None:
    """The values have one subject, the keys another one."""
    schemas = (
        json.dumps({"type": "record", "name": n, "fields": [{"name": n, "type": t}]})
        for n, t in (("k", "long"), ("v", "string"))
    )
    with serving() as server:
        numbers = [
            server.register(f"clicks-{part}", {"schema": schema})
            for part, schema in zip(("key", "value"), schemas, strict=True)
        ]
        given = zip(numbers, (b"\x0e", b"\x02a"), strict=True)
        key, value = (bytes([0, 0, 0, 0, number]) + text for number, text in given)
        base = {
            "streamType": "memory",
            "stream.memory.store": uuid.uuid4().hex,
            "stream.memory.topic.name": "clicks",
        }
        raw = {**base, "stream.memory.decoder.class.name": "raw"}
        raw["stream.memory.messages"] = "true"
        rows = pa.table({"_key": [key, None, value], "value": [value] * 3})
        with streamfactory.open_sink(raw) as sink:
            sink.put(rows)
        url = {"decoder.class.name": "avro"}
        url["decoder.prop.schema.registry.rest.url"] = server.url
        decoded = {
            **base,
            "metadata.columns": "true",
            "decode.on.error": "skip",
            **{f"stream.memory.{name}": text for name, text in url.items()},
            **{f"stream.memory.key.{name}": text for name, text in url.items()},
        }
        with streamfactory.open(decoded) as stream:
            found = stream.to_reader().read_all().to_pylist()
            bad = stream.counters.bad_messages
    assert [(row["_key"], row["v"]) for row in found] == [(7, "a"), (None, "a")]
    assert bad == 1
