"""What decoding costs, over the way that everybody writes first.

    python benchmarks/decoders.py [--json] [--rounds N] [FORMAT ...]

Ratios of processor time from the same rounds, on one thread, of ways that have just
run; of elapsed time where two threads are compared with one. Nothing is gated. A format
is one entry of `FORMATS`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import io
import json
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec
import orjson
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import AGAIN, figure, itself, ratios, report

from streamfactory.spi import DecodeContext, Partition
from streamfactory.spi.arrowjson import to_arrow_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from benchmarks.measuring.figures import Figure

    from streamfactory.spi import MessageDecoder

    Baseline = Callable[[pa.Array], pa.Table]

SIZES = (1_000, 10_000, 100_000)
CONTEXT = DecodeContext(Partition("bench", 0))
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("price", pa.float64()),
        ("ok", pa.bool_()),
        ("note", pa.string()),
        ("at", pa.int64()),
    ]
)
"""Six columns, about 150 bytes a message in JSON."""


@dataclass(frozen=True)
class Format:
    """What is measured of one format."""

    options: Mapping[str, str]
    """Of the decoder."""
    encode: Callable[[Mapping[str, Any]], bytes]
    """A message of a row of `SCHEMA`."""
    baseline: Baseline
    """What everybody writes first."""
    goals: Mapping[int, float]
    """How many times faster to be, by messages a batch."""
    bad: bytes = b"oops"
    compared: Callable[[Mapping[str, Any]], bytes] | None = None
    """What the baseline is given instead: the same row, written otherwise."""
    beside: tuple[str, Baseline] | None = None
    """Shown beside it: its name, and how it decodes."""
    threads: bool = False
    """Whether two threads are meant to decode more than one."""


# --- the formats ----------------------------------------------------------------------


class Row(msgspec.Struct, gc=False):
    """A message, as msgspec decodes it."""

    id: int
    user: str
    price: float
    ok: bool
    note: str
    at: int


def orjson_rows(values: pa.Array) -> pa.Table:
    """A dictionary each, and Arrow finds its way."""
    rows = [orjson.loads(value) for value in values.to_pylist()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def msgspec_columns(values: pa.Array) -> pa.Table:
    """An object each, and a list for each column."""
    decode = msgspec.json.Decoder(Row).decode
    rows = [decode(value) for value in values.to_pylist()]
    columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
    return pa.table(columns, schema=SCHEMA)


def csv_columns(values: pa.Array) -> pa.Table:
    """A list of texts each, and a conversion for each column."""
    return converted(csv.reader(value.decode() for value in values.to_pylist()))


def split_columns(values: pa.Array) -> pa.Table:
    """The same, for values between tabs."""
    return converted(value.decode().split("\t") for value in values.to_pylist())


def converted(rows: Iterable[Sequence[str]]) -> pa.Table:
    """Texts as columns of their types."""
    converters: list[Callable[[str], Any]] = [int, str, float, is_true, str, int]
    columns = [
        [convert(text) for text in column]
        for convert, column in zip(converters, zip(*rows, strict=True), strict=True)
    ]
    return pa.table(columns, schema=SCHEMA)


def is_true(text: str) -> bool:
    """Read a boolean."""
    return text == "true"


def delimited(row: Mapping[str, Any], delimiter: str) -> bytes:
    """The values, with a delimiter between them; none of them has to be quoted."""
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in row.values()]
    return delimiter.join(texts).encode()


FIELDS = {"id": "long", "user": "string", "price": "double", "ok": "boolean"} | {
    "note": "string",
    "at": "long",
}
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
PARSED = fastavro.parse_schema(json.loads(json.dumps(AVRO)))


def avro_message(row: Mapping[str, Any]) -> bytes:
    """A message, as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, row)
    return out.getvalue()


def fastavro_rows(values: pa.Array) -> pa.Table:
    """A dictionary each, and Arrow finds its way."""
    read = fastavro.schemaless_reader
    rows = [read(io.BytesIO(value), PARSED, None) for value in values.to_pylist()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def protobuf_file() -> descriptor_pb2.FileDescriptorProto:
    """A file with one message of the fields of `SCHEMA`."""
    kinds = {"long": 3, "string": 9, "double": 1, "boolean": 8}
    file = descriptor_pb2.FileDescriptorProto(
        name="bench.proto", package="bench", syntax="proto3"
    )
    message = file.message_type.add(name="Row")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        message.field.add(name=name, number=number, type=kinds[kind], label=1)
    return file


POOL = descriptor_pool.DescriptorPool()
POOL.Add(protobuf_file())
Message = message_factory.GetMessageClass(POOL.FindMessageTypeByName("bench.Row"))
DESCRIPTORS = Path(tempfile.gettempdir(), "bench-row.desc")
DESCRIPTORS.write_bytes(
    descriptor_pb2.FileDescriptorSet(file=[protobuf_file()]).SerializeToString()
)


def protobuf_columns(values: pa.Array) -> pa.Table:
    """An object each, and a list for each column."""
    rows = [Message.FromString(value) for value in values.to_pylist()]
    columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
    return pa.table(columns, schema=SCHEMA)


DECLARED = {"schema": to_arrow_json(SCHEMA)}


def arrow_batch(row: Mapping[str, Any]) -> bytes:
    """A batch of one row, without its schema."""
    return bytes(pa.RecordBatch.from_pylist([row], SCHEMA).serialize())


def arrow_stream(row: Mapping[str, Any]) -> bytes:
    """A stream of one row, with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist([row], SCHEMA))
    return bytes(sink.getvalue())


def arrow_streams(values: pa.Array) -> pa.Table:
    """The same decoder, of messages that repeat the schema."""
    decoder = made("arrow", FORMATS["arrow"])
    return pa.Table.from_batches([decoder.decode(values, CONTEXT).rows])


PATTERN = "\t".join(f"(?P<{name}>[^\t]*)" for name in SCHEMA.names)
FORMATS: dict[str, Format] = {
    "arrow": Format(
        options=DECLARED,
        encode=arrow_batch,
        baseline=arrow_streams,
        compared=arrow_stream,
        goals={1_000: 3.0, 10_000: 3.0, 100_000: 3.0},
    ),
    "json": Format(
        options=DECLARED,
        encode=orjson.dumps,
        baseline=orjson_rows,
        beside=("msgspec and columns", msgspec_columns),
        goals={10_000: 1.3, 100_000: 2.0},
    ),
    "avro": Format(
        options={"schema": json.dumps(AVRO)},
        encode=avro_message,
        baseline=fastavro_rows,
        goals={10_000: 20.0, 100_000: 20.0},
        threads=True,
    ),
    "protobuf": Format(
        options={"descriptor.file": str(DESCRIPTORS)},
        encode=lambda row: Message(**row).SerializeToString(),
        baseline=protobuf_columns,
        goals={10_000: 5.0, 100_000: 5.0},
    ),
    "csv": Format(
        options=DECLARED,
        encode=lambda row: delimited(row, ","),
        baseline=csv_columns,
        goals={10_000: 4.0, 100_000: 4.0},
        threads=True,
    ),
    "text": Format(
        options={**DECLARED, "pattern": PATTERN},
        encode=lambda row: delimited(row, "\t"),
        baseline=split_columns,
        goals={},
        threads=True,
    ),
}


# --- measuring ------------------------------------------------------------------------


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", default=[*FORMATS])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    # Once a large block was given back, the C library keeps those that are freed: as in
    # any process that runs for a while, and not by chance from some round on.
    bytes(31 << 20)
    unknown = set(arguments.formats) - set(FORMATS)
    if unknown:
        parser.error(f"no format {min(unknown)!r}; there are {', '.join(FORMATS)}")
    figures = (
        one
        for name in arguments.formats
        for one in format_figures(name, FORMATS[name], arguments.rounds)
    )
    report(figures, as_json=arguments.json)


def format_figures(name: str, format_: Format, rounds: int) -> list[Figure]:
    """All of one format."""
    figures = []
    decoder = made(name, format_)
    for size in SIZES:
        values = messages(format_.encode, size)
        others = values
        if format_.compared is not None:
            others = messages(format_.compared, size)
        check(format_.baseline(others), decoder, values)
        ways: dict[str, Callable[[], object]] = {
            "baseline": partial(format_.baseline, others),
            AGAIN: partial(format_.baseline, others),
            "ours": partial(decoder.decode, values, CONTEXT),
            "bad": partial(decoder.decode, spoilt(format_, values), CONTEXT),
        }
        if format_.beside is not None:
            ways["beside"] = partial(format_.beside[1], values)
        seconds = timed(ways, rounds)
        title = f"{name}, {size:,} messages"
        goal = format_.goals.get(size)
        wanted = "none" if goal is None else f">= {goal:g}"
        over = ratios(seconds["baseline"], seconds["ours"])
        name_, again = f"{title}: faster than the baseline", itself(seconds)
        figures.append(figure(name_, over, "x", wanted, again=again))
        if format_.beside is not None:
            over = ratios(seconds["baseline"], seconds["beside"])
            figures.append(figure(f"{title}: {format_.beside[0]}", over, "x", "none"))
        if size > SIZES[0]:
            over = ratios(seconds["bad"], seconds["ours"])
            figures.append(figure(f"{title}: 0.1% bad over none", over, "x", "<= 1.5"))
    goal_ = ">= 1.6" if format_.threads else "none"
    gain = thread_gains(name, format_, rounds)
    figures.append(figure(f"{name}: two threads over one", gain, "x", goal_))
    if format_.threads:
        gain = machine_gains(rounds)
        figures.append(figure(f"{name}: the same of hashing", gain, "x", "none"))
    return figures


def made(name: str, format_: Format) -> MessageDecoder:
    """The decoder, with its options parsed."""
    module = importlib.import_module(f"streamfactory.decoders.{name}")
    descriptor = module.streamfactory_decoder()
    options = {}
    for option in descriptor.options:
        text = format_.options.get(option.key, option.default)
        if text is not None:
            options[option.key] = option.parse(text)
    decoder: MessageDecoder = descriptor.decoder(options, "bench")
    return decoder


def messages(encode: Callable[[Mapping[str, Any]], bytes], count: int) -> pa.Array:
    """Messages of rows that chance made."""
    chance = random.Random(count)
    rows = (
        {
            "id": index,
            "user": f"user{chance.randrange(10**6)}",
            "price": chance.random() * 1000,
            "ok": chance.random() < 0.5,
            "note": "x" * chance.randrange(10, 90),
            "at": 1_700_000_000_000 + index,
        }
        for index in range(count)
    )
    return pa.array([encode(row) for row in rows], pa.binary())


def spoilt(format_: Format, values: pa.Array) -> pa.Array:
    """The same, but one of a thousand is bad."""
    found = values.to_pylist()
    found[500::1000] = [format_.bad] * len(found[500::1000])
    return pa.array(found, values.type)


def check(expected: pa.Table, decoder: MessageDecoder, values: pa.Array) -> None:
    """See that both ways answer the same."""
    decoded = pa.Table.from_batches([decoder.decode(values, CONTEXT).rows])
    if not decoded.cast(SCHEMA).equals(expected):
        sys.exit("the decoder and its baseline do not answer the same")


def timed(
    ways: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of processor time of each way, by round; each round has all ways."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            way()  # memory that the other ways gave back is there again
            started = time.process_time()
            way()
            seconds[name].append(time.process_time() - started)
    return seconds


def thread_gains(name: str, format_: Format, rounds: int) -> list[float]:
    """How many times more two threads decode than one, in the same time."""
    values = messages(format_.encode, SIZES[-1])
    ways = [partial(made(name, format_).decode, values, CONTEXT) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        return [thread_gain(pool, ways) for _ in range(rounds)]


def machine_gains(rounds: int) -> list[float]:
    """The same of hashing, which needs nothing that two threads share: all there is."""
    ways = [partial(hashlib.sha256, bytes(1 << 24))] * 2
    with ThreadPoolExecutor(2) as pool:
        return [thread_gain(pool, ways) for _ in range(rounds)]


def thread_gain(pool: Executor, ways: Sequence[Callable[[], object]]) -> float:
    """How many times more two ways do at the same time than one behind the other."""
    started = time.perf_counter()
    for way in ways:
        way()
    alone = time.perf_counter() - started
    started = time.perf_counter()
    for future in [pool.submit(way) for way in ways]:
        future.result()
    return alone / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
