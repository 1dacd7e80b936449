"""Decoders of one message at a time: every policy, and no wrong value."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.specimens import PARTITION_0, Dictionary

from streamfactory.spi import (
    ConnectionFailed,
    DecodeContext,
    Decoded,
    Unsupported,
    UntranslatedError,
)
from streamfactory.spi.decoder import MessageDecoder, PerMessageDecoder
from streamfactory.spi.hooks import DECODERS
from streamfactory.wiring.decoding.calling import call_decoder
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from tests.decoding.conftest import Streams

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


class Parsing(PerMessageDecoder):
    """What ``json.loads`` says."""

    def schema(self) -> pa.Schema:
        return SCHEMA

    def decode_message(self, value: bytes) -> Any:
        return json.loads(value)


def decoded(*values: bytes) -> tuple[list[Any], list[int], list[tuple[int, str, str]]]:
    decoder = Parsing({}, "t")
    found = decoder.decode(pa.array(values, pa.binary()), DecodeContext(PARTITION_0))
    assert found.source is not None
    errors = [(e.message, e.code, e.what) for e in found.errors]
    return found.rows.to_pylist(), found.source.to_pylist(), errors


def test_message_becomes_no_row_one_or_several() -> None:
    rows, source, errors = decoded(
        b'{"id":1}', b"null", b'[{"id":2,"name":"b"},{"id":3}]', b"[]"
    )
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert rows[0]["name"] is None
    assert (source, errors) == ([0, 2, 2], [])


@pytest.mark.parametrize(
    ("value", "code", "what"),
    [
        (b"{", "malformed", "it cannot be decoded: JSONDecodeError"),
        (b"7", "malformed", "it cannot be decoded: TypeError"),
        (b"[7]", "malformed", "it cannot be decoded: AttributeError"),
        (b'{"id":"seven"}', "malformed", "it cannot be decoded: ArrowInvalid"),
        (b'{"id":1.5}', "schema", "column 'id' has a value that is not of type bigint"),
        (b'{"id":true}', "malformed", "it cannot be decoded: ArrowTypeError"),
        (b'{"id":NaN}', "malformed", "it cannot be decoded: "),
        (b'{"id":99999999999999999999}', "malformed", "it cannot be decoded: Overflow"),
        (b'{"name":"b"}', "schema", "column 'id' is null"),
        (b'[{"id":1},{"id":null}]', "schema", "column 'id' is null"),
        (b'{"id":1,"age":2}', "schema", "column 'age' is not in the schema"),
    ],
)
def test_bad_message_is_reported_without_its_content(
    value: bytes, code: str, what: str
) -> None:
    rows, source, errors = decoded(b'{"id":1}', value, b'{"id":2}')
    assert [row["id"] for row in rows] == [1, 2]
    assert source == [0, 2]
    ((message, found, reported),) = errors
    assert (message, found) == (1, code)
    assert reported.startswith(what)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.list_(pa.int32()), [1, 2.0, None], [1, 2.5]),
        (pa.struct({"n": pa.int8()}), {"n": 3}, {"n": 3.5}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1}, {"a": 1.5}),
        (pa.float32(), 0.1, 1e300),
        (pa.list_(pa.float32()), [float("inf")], [1e300]),
    ],
)
def test_number_is_never_another_one(kind: pa.DataType, good: Any, bad: Any) -> None:
    given_ = {b"good": good, b"bad": bad}

    class Given(Parsing):
        def schema(self) -> pa.Schema:
            return pa.schema({"n": kind})

        def decode_message(self, value: bytes) -> dict[str, Any]:
            return {"n": given_[value]}

    values = pa.array([b"good", b"bad", b"good"])
    found = Given({}, "t").decode(values, DecodeContext(PARTITION_0))
    assert found.source is not None
    assert found.source.to_pylist() == [0, 2]
    assert [error.code for error in found.errors] == ["schema"]


@given(
    st.lists(
        st.sampled_from([b'{"id":1}', b'{"id":"x"}', b"{", b"null", b'{"name":"b"}']),
        max_size=30,
    )
)
def test_bad_messages_are_found_whatever_stands_beside_them(
    values: list[bytes],
) -> None:
    rows, source, errors = decoded(*values)
    good = [at for at, value in enumerate(values) if value == b'{"id":1}']
    assert source == good
    assert rows == [{"id": 1, "name": None}] * len(good)
    bad = [at for at, v in enumerate(values) if v not in (b'{"id":1}', b"null")]
    assert sorted(message for message, _, _ in errors) == bad


def test_what_the_decoder_needs_is_no_fault_of_the_message() -> None:
    class Away(Parsing):
        def decode_message(self, value: bytes) -> None:
            msg = "the registry is away"
            raise ConnectionFailed(msg)

    with pytest.raises(ConnectionFailed):
        Away({}, "t").decode(pa.array([b"a"]), DecodeContext(PARTITION_0))


def test_what_a_decoder_raises_is_an_error_of_it_without_its_text() -> None:
    class Broken(MessageDecoder):
        def schema(self) -> pa.Schema:
            return SCHEMA

        def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
            msg = "card 4111 1111 1111 1111"
            raise KeyError(msg)

    with pytest.raises(UntranslatedError) as caught:
        call_decoder(Broken({}, "t"), pa.array([b"a"]), DecodeContext(PARTITION_0))
    assert caught.value.what == "the decoder raised KeyError, which rule D1 forbids"
    assert caught.value.partition == PARTITION_0
    assert isinstance(caught.value.__cause__, KeyError)
    assert b"4111" not in pickle.dumps(caught.value)


def test_policies_hold_for_it_as_for_any_decoder(streams: Streams) -> None:
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(Parsing))
    streams.messages("from", [b'{"id":1}', b"{", None, b'[{"id":2},{"id":3}]'])
    properties = streams.define(
        "from",
        stream__memory__decoder__class__name="words",
        decode__on__error="dead-letter",
    )
    with open_stream(properties, plugins=streams.plugins) as stream:
        (batch,) = list(stream)
    found = batch.rows.to_pydict()
    assert found["id"] == [1, None, None, 2, 3]
    assert found["_raw"] == [None, b"{", None, None, None]


def test_it_reports_that_it_works_message_by_message() -> None:
    assert Parsing.MESSAGE_BY_MESSAGE
    assert not MessageDecoder.MESSAGE_BY_MESSAGE


def test_decoder_that_cannot_infer_reports_it() -> None:
    with pytest.raises(Unsupported) as caught:
        Parsing.infer(pa.array([b"{}"]), {})
    assert str(caught.value) == "this decoder cannot infer a schema; declare it"
