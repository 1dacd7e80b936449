"""Keys decoded beside values, and payloads that come packed."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.specimens import Dictionary, Words

from streamfactory.spi import (
    INTEGER,
    BadMessage,
    ConfigError,
    DecodeContext,
    Decoded,
    DecodeError,
    Decoder,
    Option,
    hookimpl,
)
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.decoding import payloads
from streamfactory.wiring.decoding.payloads import CODECS, Payloads
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from tests.decoding.conftest import Streams

Pack = Callable[[bytes], bytes]

PACKERS: dict[str, Pack] = {
    "gzip": gzip.compress,
    "zstd": lambda value: bytes(cramjam.zstd.compress(value)),
    "lz4": lambda value: bytes(cramjam.lz4.compress(value)),
    "snappy": lambda value: bytes(cramjam.snappy.compress_raw(value)),
}


def opened(codec: str, *values: bytes | None, most: int = 1 << 20) -> Any:
    found, bad = Payloads(codec, most).open(pa.array(values, pa.binary()))
    return found.to_pylist(), [(one.index, one.code) for one in bad]


# --- payloads -------------------------------------------------------------------------


@given(value=st.binary(max_size=2000), codec=st.sampled_from(sorted(PACKERS)))
def test_payload_is_what_it_was_before_it_was_packed(value: bytes, codec: str) -> None:
    packed = PACKERS[codec](value)
    assert opened(codec, packed, None, packed) == ([value, None, value], [])


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_first_bytes_identify_the_compression_of_a_payload(codec: str) -> None:
    packed = PACKERS[codec](b"value")
    assert opened("auto", packed, b"plain", b"") == ([b"value", b"plain", b""], [])


def test_framed_snappy_is_reported_rather_than_taken_for_data() -> None:
    framed = bytes(cramjam.snappy.compress(b"value"))
    assert opened("auto", framed) == ([None], [(0, "compression")])


@pytest.mark.parametrize("codec", sorted(PACKERS))
def test_torn_payload_is_bad_and_hurts_no_other(codec: str) -> None:
    packed = PACKERS[codec](b"value " * 100)
    torn = [packed[:-1], packed[: len(packed) // 2], packed[:3], b"", packed + b"junk!"]
    found, bad = opened(codec, packed, *torn, packed)
    assert found == [b"value " * 100, *[None] * len(torn), b"value " * 100]
    assert bad == [(n + 1, "compression") for n in range(len(torn))]


@given(value=st.binary(max_size=300), codec=st.sampled_from(CODECS[1:]))
def test_any_bytes_are_opened_or_bad(value: bytes, codec: str) -> None:
    found, bad = opened(codec, value)
    assert (found == [None]) == bool(bad)


@pytest.mark.parametrize("codec", sorted(PACKERS))
def test_bomb_is_left_at_the_limit(codec: str) -> None:
    bomb = PACKERS[codec](bytes(1 << 26))
    fits = PACKERS[codec](bytes(1000))
    found, bad = opened(codec, bomb, fits, most=1000)
    assert bad == [(0, "payload_too_long")]
    assert found == [None, bytes(1000)]


def test_payloads_that_are_too_long_together_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payloads, "_TOGETHER", 2500)
    packed = gzip.compress(bytes(1000))
    with pytest.raises(DecodeError) as caught:
        opened("gzip", packed, packed, packed)
    assert str(caught.value) == (
        "the payloads of one fetch have more than 2500 bytes, unpacked; reduce "
        "batch.bytes or batch.rows"
    )


def test_packed_stream_decodes_and_keeps_what_it_cannot_open(streams: Streams) -> None:
    bad = gzip.compress(b"!")
    packed = [gzip.compress(b"a,b"), b"a,b", None, bad]
    streams.messages("from", packed)
    properties = streams.define(
        "from",
        stream__memory__decoder__class__name="words",
        decode__on__error="dead-letter",
        payload__compression="gzip",
    )
    with open_stream(properties, plugins=streams.plugins) as stream:
        (batch,) = list(stream)
    found = batch.rows.to_pydict()
    assert found["word"] == ["a", "b", None, None, None]
    codes = [error and error["code"] for error in found["_error"]]
    assert codes == [None, None, "compression", None, "malformed"]
    # as it came, to be sent through again
    assert found["_raw"] == [None, None, b"a,b", None, bad]


# --- keys -----------------------------------------------------------------------------


class Numbers(Words):
    """``7`` becomes one row, ``7 8`` two, ``x`` is bad; ``add`` is added."""

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("number", pa.int64(), nullable=False)])

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        found, source, errors = [], [], []
        for at, value in enumerate(values.to_pylist()):
            if b"x" in value:
                errors.append(BadMessage(at, "letters", "it is no number"))
                continue
            for part in value.split():
                found.append(int(part) + self.options["add"])
                source.append(at)
        rows = pa.record_batch([pa.array(found, pa.int64())], schema=self.schema())
        return Decoded(rows, pa.array(source, pa.int32()), errors)


class NumbersPlugin:
    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        return Decoder(
            name="numbers",
            doc="Numbers.",
            spi_level=1,
            decoder=Numbers,
            options=(Option("add", "Is added.", INTEGER, default="0"),),
        )


KEYED: dict[str, str] = {
    "stream__memory__decoder__class__name": "words",
    "stream__memory__key__decoder__class__name": "numbers",
    "metadata__columns": "true",
}


def keyed(streams: Streams, keys: list[bytes | None], **options: str) -> dict[str, Any]:
    """Words ``w0``, ``w1``, ... with these keys, as they are read."""
    values = [b"w%d" % n for n in range(len(keys))]
    streams.plugins.register(NumbersPlugin())
    streams.messages("from", values, keys=keys)
    properties = streams.define("from", **KEYED, **options)
    with open_stream(properties, plugins=streams.plugins) as stream:
        key = stream.schema.field("_key")
        assert (key.type, key.nullable) == (pa.int64(), True)
        table = pa.Table.from_batches([b.rows for b in stream], stream.schema)
    found: dict[str, Any] = table.to_pydict()
    return found


def test_key_is_of_the_type_of_its_decoder(streams: Streams) -> None:
    found = keyed(
        streams, [b"7", None, b"9"], stream__memory__key__decoder__prop__add="1"
    )
    assert found["_key"] == [8, None, 10]


def test_message_whose_key_is_bad_is_bad(streams: Streams) -> None:
    keys: list[bytes | None] = [b"1", b"x", b"2 3", b"", b"4"]
    found = keyed(streams, keys, decode__on__error="dead-letter")
    assert found["word"] == ["w0", None, None, None, "w4"]
    assert found["_key"] == [1, None, None, None, 4]
    errors = [error and (error["code"], error["message"]) for error in found["_error"]]
    assert errors == [
        None,
        ("key_letters", "it is no number"),
        ("key", "its key decodes to 2 rows, not 1"),
        ("key", "its key decodes to 0 rows, not 1"),
        None,
    ]


def test_key_of_several_columns_is_a_struct(streams: Streams) -> None:
    class Pairs(Words):
        def schema(self) -> pa.Schema:
            return pa.schema({"a": pa.string(), "b": pa.string()})

        def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
            rows = [v.decode().split("-") for v in values.to_pylist()]
            columns = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
            return Decoded(pa.record_batch(columns, schema=self.schema()))

    streams.plugins.register(Dictionary(Pairs, "numbers"))
    streams.messages("from", [b"v", b"w"], keys=[b"x-y", None])
    properties = streams.define("from", **KEYED)
    with open_stream(properties, plugins=streams.plugins) as stream:
        (batch,) = list(stream)
    assert batch.rows.column("_key").to_pylist() == [{"a": "x", "b": "y"}, None]


def test_mistakes_about_the_key_decoder_are_reported_together(streams: Streams) -> None:
    streams.plugins.register(NumbersPlugin())
    properties = streams.define(
        "from",
        **KEYED,
        stream__memory__key__decoder__prop__ad="1",
        stream__memory__key__decoder__prop__add="one",
    )
    with pytest.raises(ConfigError) as caught:
        open_stream(properties, plugins=streams.plugins)
    prefix = "stream.memory.key.decoder.prop."
    assert Counter((p.key, p.what) for p in caught.value.problems) == Counter(
        [
            (f"{prefix}ad", "the decoder 'numbers' has no such option"),
            (f"{prefix}add", "'one' is not a whole number"),
        ]
    )


def test_key_decoder_alone_is_refused(streams: Streams) -> None:
    properties = streams.define(
        "from",
        stream__memory__key__decoder__class__name="numbers",
        stream__memory__decoder__prop__add="1",
    )
    with pytest.raises(ConfigError) as caught:
        open_stream(properties, plugins=streams.plugins)
    assert {problem.what for problem in caught.value.problems} == {
        "is set, but stream.memory.decoder.class.name is not",
        "is set, but the decoder of the values is not",
    }


def test_decoders_of_keys_are_closed(streams: Streams) -> None:
    before = Words.opened
    keyed(streams, [b"1"])
    assert Words.opened == before


def test_what_says_how_to_decode_is_reported_where_nothing_is_decoded(
    streams: Streams,
) -> None:
    streams.plugins.register(NumbersPlugin())
    properties = streams.define(
        "from",
        stream__memory__decoder__class__name="raw",
        stream__memory__key__decoder__class__name="numbers",
        payload__compression="gzip",
        dead__letter__stream="dead",
    )
    found = inspect(from_mapping(properties), streams.plugins, use="read")
    nothing = "has no effect: this stream has no decoder"
    assert found.errors == []
    assert {(problem.key, problem.what) for problem in found.warnings} == {
        ("stream.memory.key.decoder.class.name", nothing),
        ("payload.compression", nothing),
        ("dead.letter.stream", "has no effect without decode.on.error=dead-letter"),
    }
