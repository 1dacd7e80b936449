"""Protobuf: whole columns, row by row, and protobuf's own word on both."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.decoders.decoding import decode
from tests.proving.generated import cases

from streamfactory.decoders.protobuf import streamfactory_decoder
from streamfactory.decoders.protobuf.decoder import ProtobufDecoder, ProtobufEncoder
from streamfactory.decoders.protobuf.decoding import ProtobufBatchDecoder
from streamfactory.decoders.protobuf.harness import ProtobufHarness
from streamfactory.spi import (
    ConfigError,
    SchemaMismatch,
    SchemaUnknown,
)

if TYPE_CHECKING:
    from pathlib import Path

ONE, MANY, REQUIRED = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED, Field.LABEL_REQUIRED
SCALARS = {
    "double": Field.TYPE_DOUBLE,
    "float": Field.TYPE_FLOAT,
    "int64": Field.TYPE_INT64,
    "uint64": Field.TYPE_UINT64,
    "int32": Field.TYPE_INT32,
    "fixed64": Field.TYPE_FIXED64,
    "fixed32": Field.TYPE_FIXED32,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
    "uint32": Field.TYPE_UINT32,
    "sfixed32": Field.TYPE_SFIXED32,
    "sfixed64": Field.TYPE_SFIXED64,
    "sint32": Field.TYPE_SINT32,
    "sint64": Field.TYPE_SINT64,
}
KNOWN = ("timestamp", "duration", "wrappers")


class Types:
    """A file with messages, in a pool, and as a descriptor set on disk."""

    def __init__(self, folder: Path, syntax: str = "proto3") -> None:
        self.file = descriptor_pb2.FileDescriptorProto(
            name="t.proto",
            package="t",
            syntax=syntax,
            dependency=[f"google/protobuf/{word}.proto" for word in KNOWN],
        )
        self.path = folder / "t.desc"

    def message(self, name: str) -> Any:
        return self.file.message_type.add(name=name)

    def write(self) -> str:
        files = descriptor_pb2.FileDescriptorSet(file=[self.file])
        self.path.write_bytes(files.SerializeToString())
        return str(self.path)

    def made(self, name: str) -> Any:
        pool = descriptor_pool.DescriptorPool()
        for word in KNOWN:
            module = __import__(f"google.protobuf.{word}_pb2", fromlist=["x"])
            known = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(known)
            pool.Add(known)
        pool.Add(self.file)
        found = pool.FindMessageTypeByName(f"t.{name}")
        return message_factory.GetMessageClass(found)


def add(message: Any, name: str, kind: Any, label: Any = ONE, **others: Any) -> None:
    if isinstance(kind, str):
        others["type_name"] = kind
        kind = Field.TYPE_ENUM if kind == ".t.Color" else Field.TYPE_MESSAGE
    number = len(message.field) + 1
    message.field.add(name=name, number=number, type=kind, label=label, **others)


@pytest.fixture
def everything(tmp_path: Path) -> Types:
    """A message with a field of each kind."""
    found = Types(tmp_path)
    color = found.file.enum_type.add(name="Color")
    for name, number in (("RED", 0), ("BLUE", 2)):
        color.value.add(name=name, number=number)
    inner = found.message("Inner")
    add(inner, "x", Field.TYPE_INT64)
    add(inner, "at", ".google.protobuf.Timestamp")
    outer = found.message("All")
    for name, kind in SCALARS.items():
        add(outer, f"f_{name}", kind)
    for name in ("int64", "string", "double", "bool"):
        add(outer, f"r_{name}", SCALARS[name], MANY)
    add(outer, "color", ".t.Color")
    add(outer, "colors", ".t.Color", MANY)
    add(outer, "inner", ".t.Inner")
    add(outer, "inners", ".t.Inner", MANY)
    add(outer, "at", ".google.protobuf.Timestamp")
    add(outer, "for", ".google.protobuf.Duration")
    add(outer, "wrapped", ".google.protobuf.Int64Value")
    add(outer, "text", ".google.protobuf.StringValue")
    entry = outer.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add(entry, "key", Field.TYPE_STRING)
    add(entry, "value", Field.TYPE_INT32)
    add(outer, "tags", ".t.All.TagsEntry", MANY)
    outer.oneof_decl.add(name="choice")
    add(outer, "one", Field.TYPE_INT64, oneof_index=0)
    add(outer, "other", Field.TYPE_STRING, oneof_index=0)
    outer.oneof_decl.add(name="_maybe")
    add(outer, "maybe", Field.TYPE_INT32, oneof_index=1, proto3_optional=True)
    return found


def decoder(types: Types, message: str, **chosen: str) -> ProtobufDecoder:
    texts = {"descriptor.file": types.write(), "message": f"t.{message}", **chosen}
    options = decoding.options(streamfactory_decoder(), **texts)
    return ProtobufDecoder(options, "topic")


def filled(make: Any) -> Any:
    found = make(
        f_int64=-5,
        f_uint64=2**64 - 1,
        f_string="é",
        f_bytes=b"\xff",
        f_bool=True,
        r_int64=[1, -1],
        r_string=["a", ""],
        color=2,
        colors=[0, 2],
        one=0,
        maybe=0,
    )
    found.inner.x = 3
    found.inner.at.FromJsonString("1969-12-31T23:59:59.999999Z")
    found.inners.add(x=1)
    found.at.FromJsonString("2013-01-01T00:00:00.000001Z")
    getattr(found, "for").FromTimedelta(timedelta(seconds=-1, microseconds=-5))
    found.wrapped.value = 0
    found.tags["k"] = 1
    found.tags["j"] = 2
    return found


def test_every_kind_of_field_is_read_and_written(everything: Types) -> None:
    make = everything.made("All")
    payloads = [filled(make).SerializeToString(), b""]
    made = decoder(everything, "All")
    decoded = decode(made, payloads)
    first, empty = decoded.rows.to_pylist()
    assert first["f_uint64"] == 2**64 - 1
    assert first["f_bytes"] == b"\xff"
    assert first["colors"] == ["RED", "BLUE"]
    assert first["inner"] == {
        "x": 3,
        "at": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    }
    assert first["inners"] == [{"x": 1, "at": None}]
    assert first["for"] == timedelta(seconds=-1, microseconds=-5)
    assert (first["wrapped"], first["text"]) == (0, None)
    assert sorted(first["tags"]) == [("j", 2), ("k", 1)]
    assert (first["one"], first["other"], first["maybe"]) == (0, None, 0)
    assert (empty["f_int64"], empty["color"], empty["inner"]) == (0, "RED", None)
    assert (empty["maybe"], empty["r_int64"], empty["tags"]) == (None, [], [])
    encoder = ProtobufEncoder(made.options, "topic")
    again = [
        make.FromString(value) for value in encoder.encode(decoded.rows).to_pylist()
    ]
    assert again == [make.FromString(payload) for payload in payloads]


def test_enums_are_numbers_where_that_is_asked_for(everything: Types) -> None:
    make = everything.made("All")
    made = decoder(everything, "All", enums="number")
    payloads = [make(color=2, colors=[7]).SerializeToString()]
    decoded = decode(made, payloads)
    [row] = decoded.rows.to_pylist()
    assert (row["color"], row["colors"]) == (2, [7])
    encoder = ProtobufEncoder(made.options, "topic")
    assert encoder.encode(decoded.rows).to_pylist() == payloads


def test_a_number_without_a_name_is_its_digits(everything: Types) -> None:
    make = everything.made("All")
    payloads = [make(color=7).SerializeToString()]
    made = decoder(everything, "All")
    decoded = decode(made, payloads)
    assert decoded.rows.column("color").to_pylist() == ["7"]
    assert (
        ProtobufEncoder(made.options, "t").encode(decoded.rows).to_pylist() == payloads
    )


def by_row(reading: ProtobufBatchDecoder) -> ProtobufBatchDecoder:
    """The same reading without its library."""
    reading._handler = None
    return reading


def sorted_maps(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return [
        {k: sorted(v) if k == "tags" else v for k, v in row.items()}
        for row in rows.to_pylist()
    ]


@settings(
    max_examples=cases(300), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_both_ways_of_reading_agree(everything: Types, data: st.DataObject) -> None:
    make = everything.made("All")
    # Of small numbers: with them nothing looks like a tag of more than five bytes,
    # which protobuf refuses and ptars, as Java's, cuts off.
    found = make(f_int64=5, f_string="é", r_int64=[1, 2], color=2, maybe=0, one=3)
    found.inner.at.seconds = 100
    found.inners.add(x=1)
    found.tags["k"] = 1
    found.wrapped.value = 7
    getattr(found, "for").seconds = 5
    payload = bytearray(found.SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(payload)))
        payload[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=3)
        )
    value = bytes(payload)
    assume(not re.search(rb"[\x80-\xff]{5}", value))
    library = ProtobufBatchDecoder(make.DESCRIPTOR, text=True)
    assert library.columnar
    values = pa.array([value], pa.binary())
    one = library._decode(values)
    other = by_row(ProtobufBatchDecoder(make.DESCRIPTOR, text=True))._decode(values)
    assert isinstance(one, tuple) == isinstance(other, tuple), (value.hex(), one, other)
    if isinstance(one, pa.RecordBatch):
        assert repr(sorted_maps(one)) == repr(sorted_maps(other))
    else:
        assert one == other


def test_proto2_has_required_fields_and_presence(tmp_path: Path) -> None:
    types = Types(tmp_path, "proto2")
    message = types.message("Old")
    add(message, "id", Field.TYPE_INT64, REQUIRED)
    add(message, "name", Field.TYPE_STRING, default_value="none")
    add(message, "many", Field.TYPE_INT32, MANY)
    make = types.made("Old")
    made = decoder(types, "Old")
    assert made.schema() == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field(
                "many",
                pa.list_(pa.field("item", pa.int32(), nullable=False)),
                nullable=False,
            ),
        ]
    )
    payload = make(id=1, many=[1, 2]).SerializeToString()
    decoded = decode(made, [payload, payload])
    assert decoded.rows.to_pylist() == [{"id": 1, "name": None, "many": [1, 2]}] * 2


def test_a_required_field_that_is_missing_makes_a_message_bad(tmp_path: Path) -> None:
    types = Types(tmp_path, "proto2")
    add(types.message("Old"), "id", Field.TYPE_INT64, REQUIRED)
    decoded = decode(decoder(types, "Old"), [b"\x08\x01", b"", b"\x10\x01"])
    assert [error.message for error in decoded.errors] == [1, 2]


def test_fields_that_are_not_known_are_passed_over(everything: Types) -> None:
    payload = everything.made("All")(f_int64=3).SerializeToString()
    decoded = decode(decoder(everything, "All"), [payload + b"\xf8\x07\x05"])
    assert decoded.rows.column("f_int64").to_pylist() == [3]


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (253_402_300_800, 0),
        (-62_135_596_801, 0),
        (2**63 - 1, 0),
        (-(2**63), 0),
        (9_223_372_036_854, 775_807_000),
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_a_time_beyond_protobufs_years_is_bad(
    everything: Types, seconds: int, nanos: int, nested: bool
) -> None:
    found = everything.made("All")()
    target = found.inners.add().at if nested else found.at
    target.seconds, target.nanos = seconds, nanos
    good = everything.made("All")(f_int64=1).SerializeToString()
    payloads = [good, found.SerializeToString(), good]
    [error] = decode(decoder(everything, "All"), payloads).errors
    assert (error.message, error.code) == (1, "range")
    assert error.what == "a time is outside of protobuf's range"


def test_exactly_the_bad_ones_among_many_are_reported(everything: Types) -> None:
    make = everything.made("All")
    payloads = [
        make(f_int64=at, f_string="t").SerializeToString() for at in range(50_000)
    ]
    rng = np.random.default_rng(1)
    bad = sorted(rng.choice(len(payloads), 50, replace=False).tolist())
    for at in bad:
        payloads[at] = [payloads[at][:-1], payloads[at] + b"\0", b"{}", b"\xff" * 30][
            at % 4
        ]
    decoded = decode(decoder(everything, "All"), payloads)
    assert [error.message for error in decoded.errors] == bad
    assert decoded.source is not None
    kept = [at for at in range(len(payloads)) if at not in set(bad)]
    assert decoded.source.to_pylist() == kept
    assert decoded.rows.column("f_int64").to_pylist() == kept


BAD = {
    "a huge length": b"\x4a\xff\xff\xff\xff\x0f",
    "text that is no UTF-8": b"\x4a\x01\xff",
    "an endless number": b"\x18" + b"\xff" * 11,
    "groups without end": b"\xfb\x07" * 10_000,
    "groups as deep as the stack": b"\xfb\x07" * 300_000 + b"\xfc\x07" * 300_000,
    "a field of number 0": b"\x00\x01",
    "a reserved wire type": b"\x0f",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_messages_are_reported_and_their_neighbours_kept(
    everything: Types, name: str
) -> None:
    with pytest.raises(DecodeError):
        everything.made("All").FromString(BAD[name])
    good = everything.made("All")(f_int64=3).SerializeToString()
    decoded = decode(decoder(everything, "All"), [good, BAD[name], good] * 10)
    assert [error.message for error in decoded.errors] == list(range(1, 30, 3))
    assert {error.code for error in decoded.errors} == {"malformed"}
    assert decoded.rows.column("f_int64").to_pylist() == [3] * 20


FIXED = ["double", "float", "fixed64", "fixed32", "sfixed32", "sfixed64"]


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.parametrize(
    "before",
    [
        b"\x0a",
        b"\x8a\x80\x00",  # a tag longer than needed
        b"\x0a\x08" + b"\x01" * 8 + b"\x0a",  # behind another list of the field
    ],
)
def test_a_packed_list_that_ends_within_a_number_is_refused(
    tmp_path: Path, kind: str, before: bytes
) -> None:
    types = Types(tmp_path)
    for name in ("Leaf", "All"):
        add(types.message(name), "numbers", SCALARS[kind], MANY)
    message = types.file.message_type[1]
    add(message, "leaf", ".t.Leaf")
    add(message, "leaves", ".t.Leaf", MANY)
    make = types.made("All")
    size = 8 if kind == "double" or "64" in kind else 4
    good = before + bytes([size]) + b"\x01" * size
    bad = [before + bytes([length]) + bytes(length) for length in (1, size - 1, 15)]
    within = [tag + bytes([len(bad[0])]) + bad[0] for tag in (b"\x12", b"\x1a")]
    for payload in (*bad, *within):
        with pytest.raises(DecodeError):
            make.FromString(payload)
        decoded = decode(decoder(types, "All"), [good, payload, good])
        assert decoding.bad(decoded) == [(1, "malformed")]
        wanted = list(make.FromString(good).numbers)
        assert decoded.rows["numbers"].to_pylist() == [wanted, wanted]


@pytest.mark.parametrize("last", [b"\x01", b"\x7d", b"\x7f"])
@pytest.mark.parametrize("first", [b"\xf6", b"\xf7", b"\xff"])
@pytest.mark.parametrize(
    "before",
    [
        b"\x4a",  # f_string
        b"\xb2\x01\x0b\x12",  # inner.at
        b"\xfa\x0f",  # a field that the descriptor lacks
        b"\xca\x80\x80\x00",  # f_string, with a tag longer than needed
    ],
)
def test_a_length_that_overflows_is_refused_without_a_panic(
    everything: Types,
    capfd: pytest.CaptureFixture[str],
    *,
    before: bytes,
    first: bytes,
    last: bytes,
) -> None:
    bad = before + first + b"\xff" * 8 + last + b"\x08\x01" * 20
    with pytest.raises(DecodeError):
        everything.made("All").FromString(bad)
    good = everything.made("All")(f_int64=3).SerializeToString()
    decoded = decode(decoder(everything, "All"), [good, bad, good])
    assert decoding.bad(decoded) == [(1, "malformed")]
    assert capfd.readouterr().err == ""


def test_what_looks_like_a_length_that_overflows_is_read(everything: Types) -> None:
    make = everything.made("All")
    messages = [make(f_int64=-number, f_bytes=b"\x4a" * number) for number in range(12)]
    messages += [make(r_int64=[-1, -10, -2]), make(f_bytes=b"J" + b"\xff" * 9 + b"\1")]
    payloads = [message.SerializeToString() for message in messages]
    decoded = decode(decoder(everything, "All"), payloads)
    assert decoding.bad(decoded) == []
    for row, message in zip(decoded.rows.to_pylist(), messages, strict=True):
        assert row["f_int64"] == message.f_int64
        assert row["f_bytes"] == message.f_bytes
        assert row["r_int64"] == list(message.r_int64)


def test_large_and_sliced_values_are_taken(everything: Types) -> None:
    payloads = [
        everything.made("All")(f_int64=at).SerializeToString() for at in range(4)
    ]
    made = decoder(everything, "All")
    large = decode(made, pa.array(payloads, pa.large_binary()))
    assert large.rows.column("f_int64").to_pylist() == [0, 1, 2, 3]
    sliced = decode(made, pa.array(payloads, pa.binary())[2:])
    assert sliced.rows.column("f_int64").to_pylist() == [2, 3]


# --- descriptors --------------------------------------------------------------------


def test_a_message_that_holds_itself_is_refused_with_a_message(tmp_path: Path) -> None:
    types = Types(tmp_path)
    tree = types.message("Tree")
    add(tree, "next", ".t.Tree")
    with pytest.raises(ConfigError) as caught:
        decoder(types, "Tree").schema()
    assert "message 't.Tree' is recursive" in str(caught.value)


def test_descriptors_that_are_none_are_refused_with_a_message(tmp_path: Path) -> None:
    path = tmp_path / "bad.desc"
    cases = {
        b"": "contains no descriptor",
        b"\xff\xff": "is not a descriptor set: write it with protoc",
    }
    for content, what in cases.items():
        path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            ProtobufDecoder({"descriptor.file": str(path)}, "topic").schema()
        assert what in str(caught.value)
    path.unlink()
    with pytest.raises(ConfigError) as caught:
        ProtobufDecoder({"descriptor.file": str(path)}, "topic").schema()
    assert "cannot be read: No such file or directory" in str(caught.value)
    os.mkfifo(path)
    for special in (str(path), "/dev/zero", str(tmp_path)):
        with pytest.raises(ConfigError, match="it is not a regular file"):
            ProtobufDecoder({"descriptor.file": special}, "topic").schema()
    with pytest.raises(SchemaUnknown) as unknown:
        ProtobufDecoder({}, "clicks")
    assert "the message type of topic 'clicks' is unknown" in str(unknown.value)


@pytest.mark.parametrize("text", [b"One", b"syntactic", b"other.proto"])
def test_descriptors_with_text_that_is_no_utf8_are_refused(
    tmp_path: Path, text: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """A panic was printed, or an untyped error raised."""
    types = Types(tmp_path)
    add(types.message("One"), "syntactic", Field.TYPE_INT32)
    types.file.dependency.append("other.proto")
    types.write()
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(text, b"\xff" * len(text)))
    made = ProtobufDecoder({"descriptor.file": str(path)}, "topic")
    with pytest.raises(ConfigError, match="that is not UTF-8"):
        made.schema()
    assert capfd.readouterr().err == ""


def test_an_import_that_is_missing_and_a_wrong_name_are_reported(
    tmp_path: Path,
) -> None:
    types = Types(tmp_path)
    types.message("One")
    with pytest.raises(ConfigError) as caught:
        decoder(types, "Two").schema()
    assert "the descriptor has no message 't.Two'; it has t.One" in str(caught.value)
    types.file.dependency.append("other.proto")
    with pytest.raises(ConfigError) as caught:
        decoder(types, "One").schema()
    assert "the imported file 'other.proto' is missing" in str(caught.value)


def test_the_first_message_is_meant_where_none_is_named(everything: Types) -> None:
    made = ProtobufDecoder({"descriptor.file": everything.write()}, "topic")
    assert made.schema().names == ["x", "at"]


# --- the way back -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"x": ["text"]}, "column 'x' is string, declared bigint: text is not parsed"),
        ({"x": [None]}, "column 'x' is not nullable, but has 1 nulls"),
        ({"x": [1], "y": [1]}, "column 'y' is not in the declared schema"),
        ({"at": pa.array([1], pa.timestamp("us", "UTC"))}, "column 'x' is missing"),
        (
            {"x": [1], "at": pa.array([2**62], pa.timestamp("us", "UTC"))},
            "column 'at' has a time outside of protobuf's range",
        ),
    ],
)
def test_rows_that_are_not_of_the_message_are_refused(
    everything: Types, rows: dict[str, Any], what: str
) -> None:
    made = decoder(everything, "Inner")
    with pytest.raises(SchemaMismatch) as caught:
        ProtobufEncoder(made.options, "topic").encode(pa.record_batch(rows))
    assert what in str(caught.value)


def test_two_of_a_choice_are_refused(tmp_path: Path) -> None:
    types = Types(tmp_path)
    message = types.message("Choice")
    message.oneof_decl.add(name="choice")
    add(message, "a", Field.TYPE_INT64, oneof_index=0)
    add(message, "b", Field.TYPE_INT64, oneof_index=0)
    made = decoder(types, "Choice")
    encoder = ProtobufEncoder(made.options, "topic")
    rows = pa.record_batch({"a": [1, None], "b": [None, 2]})
    assert encoder.encode(rows).to_pylist() == [b"\x08\x01", b"\x10\x02"]
    with pytest.raises(SchemaMismatch) as caught:
        encoder.encode(pa.record_batch({"a": [1], "b": [2]}))
    assert "a row has values for more than one of 'a', 'b'" in str(caught.value)


def test_flights_go_there_and_back(tmp_path: Path) -> None:
    table = decoding.flights()
    types = Types(tmp_path)
    message = types.message("Flight")
    kinds = {
        pa.int64(): Field.TYPE_INT64,
        pa.float64(): Field.TYPE_DOUBLE,
        pa.string(): Field.TYPE_STRING,
    }
    for at, field in enumerate(table.schema):
        message.oneof_decl.add(name=f"_{field.name}")
        add(
            message, field.name, kinds[field.type], oneof_index=at, proto3_optional=True
        )
    made = decoder(types, "Flight")
    [rows] = table.cast(made.schema()).combine_chunks().to_batches()
    assert rows.num_rows == 336_776
    payloads = ProtobufEncoder(made.options, "topic").encode(rows)
    decoded = decode(made, payloads)
    assert decoded.source is None
    assert decoded.rows.equals(rows)


def test_the_kit_finds_nothing() -> None:
    assert decoding.complaints(streamfactory_decoder(), ProtobufHarness) == []


# --- merging --------------------------------------------------------------------------


def generated(draw: Any, file: Any, depth: int = 2) -> str:
    """Add a message type with fields of drawn kinds; returns its name."""
    kinds = ["int64", "string", "double", "bool", "bytes", "Timestamp", "Int64Value"]
    message = descriptor_pb2.DescriptorProto()
    number, in_choice = 0, draw(st.integers(0, 2))
    if in_choice:
        message.oneof_decl.add(name="choice")
    for at in range(draw(st.integers(max(1, in_choice), 4))):
        number += draw(st.sampled_from([1, 2, 20]))
        field = message.field.add(name=f"f{at}", number=number, label=ONE)
        kind = draw(st.sampled_from([*kinds, *["message", "map"] * (depth > 0)]))
        if kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            field.type = Field.TYPE_MESSAGE
            field.type_name = f".google.protobuf.{kind}"
        if kind == "message":
            field.type_name = f".t.{generated(draw, file, depth - 1)}"
        if at < in_choice and kind != "map":
            field.oneof_index = 0
        elif kind == "map":
            entry = message.nested_type.add(name=f"F{at}Entry")
            entry.options.map_entry = True
            add(entry, "key", Field.TYPE_STRING)
            inner = draw(st.sampled_from([Field.TYPE_INT64, "message"]))
            if inner == "message":
                inner = f".t.{generated(draw, file, 0)}"
            add(entry, "value", inner)
            field.label, field.type_name = MANY, f"F{at}Entry"
        elif draw(st.integers(0, 3)) == 0:
            field.label = MANY
    if in_choice and not any(f.HasField("oneof_index") for f in message.field):
        del message.oneof_decl[:]
    message.name = f"M{len(file.message_type)}"
    file.message_type.append(message)
    return str(message.name)


def fill(draw: Any, found: Any) -> None:
    """Set some fields of a message."""
    values: dict[Any, list[Any]] = {
        Field.TYPE_STRING: ["", "a"],
        Field.TYPE_BYTES: [b"", b"a"],
        Field.TYPE_BOOL: [False, True],
        Field.TYPE_DOUBLE: [0.0, 1.5],
    }
    for field in found.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        some, inner = st.sampled_from(values.get(field.type, [0, 1, 7])), None
        if field.message_type is not None:
            inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key = draw(st.sampled_from("ab"))
            if inner.fields_by_name["value"].message_type is None:
                getattr(found, field.name)[key] = draw(st.sampled_from([0, 7]))
            else:
                fill(draw, getattr(found, field.name)[key])
        elif field.is_repeated and inner is not None:
            fill(draw, getattr(found, field.name).add())
        elif field.is_repeated:
            getattr(found, field.name).append(draw(some))
        elif inner is not None:
            getattr(found, field.name).SetInParent()
            fill(draw, getattr(found, field.name))
        else:
            setattr(found, field.name, draw(some))


def in_key_order(value: Any) -> Any:
    """A value with the pairs of maps sorted, as protobuf has no order for them."""
    if isinstance(value, dict):
        return {name: in_key_order(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(in_key_order, value))
    if isinstance(value, list):
        found = [in_key_order(one) for one in value]
        pairs = bool(found) and isinstance(found[0], tuple)
        return sorted(found, key=lambda pair: pair[0]) if pairs else found
    return value


@settings(
    max_examples=cases(150), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_concatenated_messages_of_any_type_are_merged_as_protobuf_does(
    tmp_path: Path, data: st.DataObject
) -> None:
    types = Types(tmp_path)
    make = types.made(generated(data.draw, types.file))
    payloads = []
    for _ in range(4):
        parts = []
        for _ in range(data.draw(st.integers(1, 3))):
            part = make()
            fill(data.draw, part)
            parts.append(part.SerializeToString())
        payloads.append(b"".join(parts))
    values = pa.array(payloads, pa.binary())
    library = ProtobufBatchDecoder(make.DESCRIPTOR, text=True)
    assert library.columnar
    one = library._decode(values)
    other = by_row(ProtobufBatchDecoder(make.DESCRIPTOR, text=True))._decode(values)
    assert isinstance(one, pa.RecordBatch)
    assert isinstance(other, pa.RecordBatch)
    assert in_key_order(one.to_pylist()) == in_key_order(other.to_pylist())


def test_the_last_member_of_a_choice_counts_also_where_it_is_the_first_field(
    tmp_path: Path,
) -> None:
    types = Types(tmp_path)
    message = types.message("One")
    message.oneof_decl.add(name="choice")
    add(message, "first", Field.TYPE_INT64, oneof_index=0)
    add(message, "second", Field.TYPE_STRING, oneof_index=0)
    add(message, "parts_3", Field.TYPE_INT64)
    add(message, "at", ".google.protobuf.Timestamp")
    make = types.made("One")
    first, second = (make(first=1), make(second="a"))
    orders = [(first, second), (second, first), (first, second, first), (second,)]
    payloads = [b"".join(m.SerializeToString() for m in order) for order in orders]
    decoded = decode(decoder(types, "One"), payloads)
    assert decoded.rows.select(["first", "second"]).to_pylist() == [
        {"first": None, "second": "a"},
        {"first": 1, "second": None},
        {"first": 1, "second": None},
        {"first": None, "second": "a"},
    ]


def test_an_entry_of_a_map_without_its_message_has_an_empty_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such as Rust's prost writes for a value without fields."""
    types = Types(tmp_path)
    inner = types.message("Inner")
    add(inner, "x", Field.TYPE_INT64)
    add(inner, "at", ".google.protobuf.Timestamp")
    message = types.message("Held")
    for name, kind in (("inners", ".t.Inner"), ("times", ".google.protobuf.Duration")):
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        add(entry, "key", Field.TYPE_STRING)
        add(entry, "value", kind)
        add(message, name, f".t.Held.{name.title()}Entry", MANY)
    outer = types.message("Outer")
    add(outer, "held", ".t.Held", MANY)
    key, value = b"\x0a\x01k", b"\x12\x02\x08\x07"
    entries = [b"", key, value, key + value, key + value + value + b"\x12\x00"]
    held = [
        tag + bytes([len(one)]) + one for tag in (b"\n", b"\x12") for one in entries
    ]
    payloads = [b"\n" + bytes([len(one)]) + one for one in [*held, held[1] + held[8]]]
    make = types.made("Outer")
    library = ProtobufBatchDecoder(make.DESCRIPTOR, text=True)
    assert library.columnar
    values = pa.array(payloads, pa.binary())
    one = library._decode(values)
    other = by_row(ProtobufBatchDecoder(make.DESCRIPTOR, text=True))._decode(values)
    assert isinstance(one, pa.RecordBatch)
    assert isinstance(other, pa.RecordBatch)
    assert one.to_pylist() == other.to_pylist()
    assert one.to_pylist()[1]["held"][0]["inners"] == [("k", {"x": 0, "at": None})]
    assert not capfd.readouterr().err
