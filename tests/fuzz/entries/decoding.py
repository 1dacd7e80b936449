"""Decoders: each damaged message lies between sound ones, which have to survive."""

from __future__ import annotations

import gzip
import io
import json
import struct
import threading
from abc import abstractmethod
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa
from tests.decoders import decoding
from tests.decoders.test_protobuf import MANY, SCALARS, Types, add
from tests.fuzz import mutating
from tests.fuzz.columns import batch_of, columns
from tests.fuzz.corpus import Seed, write_stream
from tests.fuzz.entries.base import VARIED, Entry
from tests.fuzz.ipc import END

from streamfactory.decoders import arrow, avro, csv, protobuf, text
from streamfactory.decoders import json as json_decoder
from streamfactory.decoders.arrow.decoder import ArrowDecoder
from streamfactory.decoders.avro.decoder import AvroDecoder
from streamfactory.decoders.csv.decoder import CsvDecoder
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.protobuf.decoder import ProtobufDecoder
from streamfactory.decoders.text.decoder import TextDecoder
from streamfactory.wiring.decoding.calling import contradiction
from streamfactory.wiring.decoding.payloads import Payloads

if TYPE_CHECKING:
    import random
    from collections.abc import Generator, Iterator

    from streamfactory.spi import Decoder, MessageDecoder

_SCHEMA: Final = (
    "number bigint not null, text string, at timestamp, day date, flag boolean, "
    "x double, money decimal(10,2), more struct<list:array<double>, m:map<string,int>>"
)
_OBJECT: Final[dict[str, Any]] = {
    "number": 1,
    "text": "a text, é",
    "at": "2013-01-01T05:00:00Z",
    "day": "2013-01-01",
    "flag": True,
    "x": 0.5,
    "money": "12.34",
    "more": {"list": [0.5, None, 3], "m": {"a": 1}},
    "unread": {"deep": [[1]]},
}


class _Decoding(Entry):
    """One decoder; a damaged message stands between sound ones."""

    SHARE = 4
    MESSAGES = 8

    def prepare(self) -> None:
        self.decoders = self.made()

    @abstractmethod
    def made(self) -> list[MessageDecoder]:
        """Decoders with different options."""

    @abstractmethod
    def good(self) -> bytes:
        """A sound message."""

    @abstractmethod
    def damaged(self, chance: random.Random) -> bytes:
        """A damaged message."""

    def varied(self, chance: random.Random) -> bytes:
        """A sound message."""
        return self.good()

    def make(self, chance: random.Random) -> bytes:
        found = [
            self.varied(chance) if chance.random() < VARIED else self.damaged(chance)
            for _ in range(self.MESSAGES)
        ]
        return b"".join(struct.pack("<I", len(one)) + one for one in found)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        good = self.good()
        values = [good]
        for message in _split(data):
            values += [message, good]
        for decoder in self.decoders:
            # Bad data never raises (rule D1), and spares its neighbours.
            decoded = decoder.decode(pa.array(values, pa.binary()), decoding.CONTEXT)
            yield decoded.rows
            assert decoded.rows.schema.equals(decoder.schema()), "another schema"
            wrong = contradiction(decoded, len(values))
            assert wrong is None, wrong
            bad = {e.message for e in decoded.errors if e.message % 2}
            self._accepted = len(values) // 2 - len(bad)
            refused = [error.what for error in decoded.errors if not error.message % 2]
            assert not refused, f"a sound neighbour is refused: {refused[:1]}"

    def accepted(self) -> int:
        return self._accepted  # by the last decoder

    def close(self) -> None:
        for decoder in self.decoders:
            decoder.close()


def _split(data: bytes) -> Iterator[bytes]:
    """The messages of an input; each after its length."""
    while data:
        (length,) = struct.unpack("<I", data[:4].ljust(4, b"\0"))
        yield data[4 : 4 + length]
        data = data[4 + length :]


def _options(
    plugin: Decoder, schema: str | None = None, **given: str
) -> dict[str, Any]:
    return decoding.options(plugin, schema, **given)


class JsonDecoding(_Decoding):
    """``json``."""

    NAME = "json"

    def made(self) -> list[MessageDecoder]:
        plugin = json_decoder.streamfactory_decoder()
        texts = _options(plugin, _SCHEMA, numbers_as_text="true")
        return [
            JsonDecoder(_options(plugin, _SCHEMA), "t"),
            JsonDecoder(texts, "t"),
        ]

    def good(self) -> bytes:
        return json.dumps(_OBJECT).encode()

    def damaged(self, chance: random.Random) -> bytes:
        if chance.random() < 0.5:
            plain = mutating.json_of(_OBJECT, chance)
            return plain.encode("utf-8", "surrogatepass")
        return mutating.text_of(self.varied(chance), chance)

    def varied(self, chance: random.Random) -> bytes:
        return mutating.varied_json(_OBJECT, chance).encode()


class CsvDecoding(_Decoding):
    """``csv``."""

    NAME = "csv"

    def made(self) -> list[MessageDecoder]:
        plugin = csv.streamfactory_decoder()
        schema = (
            "number bigint, text string, at timestamp, x double, money decimal(9,2)"
        )
        escaped = _options(plugin, schema, escape_character="\\")
        return [CsvDecoder(_options(plugin, schema), "t"), CsvDecoder(escaped, "t")]

    def good(self) -> bytes:
        return b'1,"a text, \xc3\xa9",2013-01-01T05:00:00Z,0.5,12.34'

    def damaged(self, chance: random.Random) -> bytes:
        return mutating.text_of(self.good(), chance)


class TextDecoding(_Decoding):
    """``text``."""

    NAME = "text"

    def made(self) -> list[MessageDecoder]:
        plugin = text.streamfactory_decoder()
        pattern = r"(?P<host>\S+) (?P<status>\d+)(?: (?P<rest>.*))?"
        options = _options(
            plugin, "host string, status int, rest string", pattern=pattern
        )
        return [TextDecoder(options, "t")]

    def good(self) -> bytes:
        return b"host 200 \xc3\xa9 and more"

    def damaged(self, chance: random.Random) -> bytes:
        return mutating.text_of(self.good(), chance)


_AVRO: Final[dict[str, Any]] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "b", "type": "bytes"},
        {"name": "x", "type": "double"},
        {"name": "l", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "m", "type": {"type": "map", "values": "string"}},
        {"name": "f", "type": {"type": "fixed", "name": "f3", "size": 3}},
        {"name": "e", "type": {"type": "enum", "name": "e2", "symbols": ["A", "B"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "money",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 10,
                "scale": 2,
            },
        },
        {
            "name": "r",
            "type": {
                "type": "record",
                "name": "inner",
                "fields": [{"name": "x", "type": ["null", "boolean"]}],
            },
        },
    ],
}
_AVRO_ROW: Final[dict[str, Any]] = {
    "n": -5,
    "s": "é",
    "b": b"\xff",
    "x": 0.5,
    "l": [1, None, 3],
    "m": {"k": "v"},
    "f": b"abc",
    "e": "B",
    "at": 1,
    "money": Decimal("1.25"),
    "r": {"x": True},
}
_NUMBERS: Final = (
    b"\xff" * 9 + b"\x01",
    b"\xf6" + b"\xff" * 8 + b"\x7f",
    b"\xff" * 10,
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x01",
    b"\x0b" * 40,
    b"\x80",
)
"""Of seven bits a byte: lengths that overflow, are negative, or do not end."""


def _of_wire(data: bytes, chance: random.Random) -> bytes:
    """Damage in a format of lengths and numbers of seven bits a byte."""
    if chance.random() < 0.5:
        at = chance.randrange(len(data) + 1)
        data = (
            data[:at] + chance.choice(_NUMBERS) + data[at + chance.choice((0, 1, 2)) :]
        )
    return data if chance.random() < 0.3 else mutating.bytes_of(data, chance)


class AvroDecoding(_Decoding):
    """``avro``, bare."""

    NAME = "avro"

    def made(self) -> list[MessageDecoder]:
        plugin = avro.streamfactory_decoder()
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(_copied(_AVRO)), _AVRO_ROW
        )
        self._good = out.getvalue()
        return [AvroDecoder(_options(plugin, json.dumps(_AVRO)), "t")]

    def good(self) -> bytes:
        return self._good

    def damaged(self, chance: random.Random) -> bytes:
        return _of_wire(self._good, chance)


class AvroSchemas(Entry):
    """Schemas of ``avro``, as a file or a registry has them."""

    NAME = "avro-schema"

    def make(self, chance: random.Random) -> bytes:
        if chance.random() < VARIED:
            return mutating.varied_json(_AVRO, chance, values=False).encode()
        if chance.random() < 0.5:
            return mutating.text_of(json.dumps(_AVRO).encode(), chance)
        return mutating.json_of(_AVRO, chance).encode("utf-8", "surrogatepass")

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        plugin = avro.streamfactory_decoder()
        path = self.folder / "schema.avsc"
        path.write_bytes(data)
        options = _options(plugin, schema_file=str(path))
        decoder = AvroDecoder(options, "t")
        values = pa.array([b"", b"\0" * 40, b"\2" * 40], pa.binary())
        yield decoder.decode(values, decoding.CONTEXT).rows
        decoder.close()


def _copied(plain: Any) -> Any:
    return json.loads(json.dumps(plain))


def _types(folder: Path) -> Types:
    """A file of messages with a field of each kind."""
    types = Types(folder)
    color = types.file.enum_type.add(name="Color")
    for name, number in (("RED", 0), ("BLUE", 2)):
        color.value.add(name=name, number=number)
    inner = types.message("Inner")
    add(inner, "x", SCALARS["int64"])
    add(inner, "at", ".google.protobuf.Timestamp")
    outer = types.message("All")
    for name, kind in SCALARS.items():
        add(outer, f"f_{name}", kind)
    for name in ("int64", "string", "double", "bool"):
        add(outer, f"r_{name}", SCALARS[name], MANY)
    for name, kind in (
        ("color", ".t.Color"),
        ("inner", ".t.Inner"),
        ("at", ".google.protobuf.Timestamp"),
        ("for", ".google.protobuf.Duration"),
        ("wrapped", ".google.protobuf.Int64Value"),
    ):
        add(outer, name, kind)
    add(outer, "colors", ".t.Color", MANY)
    add(outer, "inners", ".t.Inner", MANY)
    entry = outer.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add(entry, "key", SCALARS["string"])
    add(entry, "value", SCALARS["int32"])
    add(outer, "tags", ".t.All.TagsEntry", MANY)
    return types


def _message(types: Types) -> bytes:
    found = types.made("All")(
        f_int64=-5,
        f_string="é",
        f_bytes=b"\xff",
        f_double=0.5,
        r_int64=[1, -1, 300],
        r_string=["a", ""],
        color=2,
        colors=[0, 2],
    )
    found.inner.x = 3
    found.inner.at.seconds = -5
    found.inners.add(x=1)
    found.at.seconds = 2**30
    getattr(found, "for").nanos = 5
    found.wrapped.value = 7
    found.tags["k"] = 1
    data: bytes = found.SerializeToString()
    return data


class ProtobufDecoding(_Decoding):
    """``protobuf``, bare."""

    NAME = "protobuf"

    def made(self) -> list[MessageDecoder]:
        types = _types(self.folder)
        plugin = protobuf.streamfactory_decoder()
        options = _options(plugin, descriptor_file=types.write(), message="t.All")
        self._good = _message(types)
        return [ProtobufDecoder(options, "t")]

    def good(self) -> bytes:
        return self._good

    def damaged(self, chance: random.Random) -> bytes:
        return _of_wire(self._good, chance)


class Descriptors(Entry):
    """Descriptor sets of ``protobuf``."""

    NAME = "protobuf-descriptor"

    def prepare(self) -> None:
        types = _types(self.folder)
        self.path = Path(types.write())
        self._good, self._message = self.path.read_bytes(), _message(types)

    def make(self, chance: random.Random) -> bytes:
        if chance.random() < VARIED:
            return self._good
        return _of_wire(self._good, chance)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self.path.write_bytes(data)
        plugin = protobuf.streamfactory_decoder()
        decoder = ProtobufDecoder(_options(plugin, descriptor_file=str(self.path)), "t")
        values = pa.array([self._message, b"", b"\x0a\x02\x08\x01"], pa.binary())
        yield decoder.decode(values, decoding.CONTEXT).rows
        decoder.close()


def _is_odd(kind: pa.DataType) -> bool:
    """Whether ``arrow`` takes it only in place of another type."""
    words = ("dictionary", "run_end", "union", "view", "extension")
    return any(word in str(kind) for word in words)


def _wider(kind: pa.DataType) -> pa.DataType:
    """A type that values of another are cast to."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, 2)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_string(kind):
        return pa.large_string()
    return kind


_BARE: Final = ("int64", "string", "list", "decimal128", "struct", "time_us")


class ArrowDecoding(_Decoding):
    """``arrow``: streams and batches, read as they are and with casts."""

    NAME = "arrow"
    SHARE = 6

    def made(self) -> list[MessageDecoder]:
        plain = {
            name: column.type
            for name, column in columns().items()
            if not _is_odd(column.type)
        }
        # What is encoded in a message is declared by the type of its values.
        odd = {name: pa.string() for name in columns() if name not in plain}
        odd["dictionary_of_numbers"] = pa.int64()
        cast = {name: _wider(kind) for name, kind in plain.items()}
        bare = pa.schema([(name, plain[name]) for name in _BARE])
        batch = batch_of(*_BARE).slice(0, 2)
        self._bare = Seed("bare", write_stream([batch]), b"", bytes(bare.serialize()))
        self._good = write_stream([batch_of("int64")])
        schemas = [pa.schema(plain | odd), pa.schema(cast | odd), bare]
        return [self._decoder(number, kind) for number, kind in enumerate(schemas)]

    def _decoder(self, number: int, schema: pa.Schema) -> MessageDecoder:
        path = self.folder / f"{number}.arrow"
        path.write_bytes(schema.serialize())
        options = _options(
            arrow.streamfactory_decoder(),
            schema_file=str(path),
            max_message_bytes="32M",
        )
        return ArrowDecoder(options, "t")

    def good(self) -> bytes:
        return self._good

    def damaged(self, chance: random.Random) -> bytes:
        if chance.random() < 0.7:
            return mutating.stream_of(self.seed(chance), chance, self._plain)
        # A batch alone: what follows the schema, without the mark of the end.
        damage = mutating.bodies_of if chance.random() < 0.7 else mutating.headers_of
        return damage(self._bare, chance)[len(self._bare.schema) : -len(END)]


class PackedPayloads(Entry):
    """Payloads that were compressed, of every codec."""

    NAME = "payloads"
    SHARE = 2

    def prepare(self) -> None:
        plain = b"a payload, " * 20
        self._packed = {
            "gzip": [
                gzip.compress(plain, mtime=0),
                gzip.compress(bytes(2**26), 9, mtime=0),
            ],
            **{
                codec: [
                    pa.compress(each, codec=name, asbytes=True)
                    for each in (plain, bytes(2**26))
                ]
                for codec, name in (("zstd", "zstd"), ("snappy", "snappy"))
            },
        }
        sinks = []
        for each in (plain, bytes(2**26)):
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "lz4") as stream:
                stream.write(each)
            sinks.append(bytes(sink.getvalue()))
        self._packed["lz4"] = sinks
        self._codecs = sorted(self._packed)

    def make(self, chance: random.Random) -> bytes:
        codec = chance.choice(self._codecs)
        good, growing = self._packed[codec]
        seed = growing if chance.random() < 0.02 and len(growing) < 2**18 else good
        damaged = mutating.bytes_of(seed, chance, good)
        return bytes([self._codecs.index(codec)]) + damaged

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        for codec in (self._codecs[data[0] % 4] if data else "gzip", "auto"):
            values = pa.array([data[1:], None, data[1:5]], pa.binary())
            opened, bad = Payloads(codec, 2**20).open(values)
            assert opened.null_count == 1 + len(bad), "a bad payload is not null"
            self._accepted = int(opened[0].is_valid)
            yield pa.record_batch([opened], names=["value"])

    def accepted(self) -> int:
        return self._accepted


class _Answering(ThreadingHTTPServer):
    """A Schema Registry that gives every request the same answer."""

    daemon_threads = True
    answer = b""


class _Answers(BaseHTTPRequestHandler):
    """One request of it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, _Answering)
        body = self.server.answer
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not on stderr: that is watched."""


class RegistryAnswers(Entry):
    """What a Schema Registry answers, and messages framed for it."""

    NAME = "registry"

    def prepare(self) -> None:
        self._server = _Answering(("127.0.0.1", 0), _Answers)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self._answer = {
            "subject": "t-value",
            "version": 1,
            "id": 7,
            "schemaType": "AVRO",
            "references": [],
            "schema": json.dumps(_AVRO),
        }
        port = self._server.server_address[1]
        self._options = _options(
            avro.streamfactory_decoder(),
            **{
                "schema.registry.rest.url": f"http://127.0.0.1:{port}",
                "schema.registry.max.retries": "0",
                "schema.registry.timeout.millis": "5s",
            },
        )

    def make(self, chance: random.Random) -> bytes:
        if chance.random() < VARIED:
            answer = mutating.varied_json(self._answer, chance, values=False).encode()
        elif chance.random() < 0.5:
            answer = mutating.json_of(self._answer, chance).encode(
                "utf-8", "surrogatepass"
            )
        else:
            answer = mutating.text_of(json.dumps(self._answer).encode(), chance)
        message = mutating.bytes_of(b"\0\0\0\0\7" + bytes(40), chance)
        return struct.pack("<I", len(message)) + message + answer

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        (length,) = struct.unpack_from("<I", data.ljust(4, b"\0"))
        message, self._server.answer = data[4 : 4 + length], data[4 + length :]
        decoder = AvroDecoder(self._options, "t")
        try:
            values = pa.array([message, b"\0\0\0\0\7" + bytes(40)], pa.binary())
            yield decoder.decode(values, decoding.CONTEXT).rows
        finally:
            decoder.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
