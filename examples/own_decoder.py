"""Two decoders of your own for one format: a function per message, and whole columns.

A machine sends lines such as `press-1;2.5;1735689600`: its name, a pressure, a time in
seconds. The first decoder is a function that decodes one message. The second one
decodes thousands of messages at once with Arrow's functions. Both return the same rows,
and both report bad messages instead of raising.

    python examples/own_decoder.py

Needs: pip install streamfactory. Writes into a temporary folder.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import streamfactory
from streamfactory import spi

SCHEMA = pa.schema([("machine", "string"), ("bar", "float64"), ("at", "timestamp[s]")])


class PerMessage(spi.PerMessageDecoder):
    """Short, but runs Python for each message."""

    def schema(self) -> pa.Schema:
        return SCHEMA

    def decode_message(self, value: bytes) -> dict[str, Any]:
        # Any exception makes the message bad. Several rows, or None, are allowed too.
        machine, bar, at = value.decode("ascii").split(";")
        return {"machine": machine, "bar": float(bar), "at": int(at)}


class Columnar(spi.MessageDecoder):
    """Decodes a column of messages; runs Python only for bad ones."""

    PATTERN = r"^(?P<machine>[\w-]+);(?P<bar>\d+\.\d+);(?P<at>\d{10})$"

    def schema(self) -> pa.Schema:
        return SCHEMA

    def decode(self, values: pa.Array, context: spi.DecodeContext) -> spi.Decoded:
        found = pc.extract_regex(values, self.PATTERN)  # null where it does not match
        bad = pc.indices_nonzero(found.is_null()).to_pylist()
        machine, bar, at = found.drop_null().flatten()
        columns = [
            machine.cast("string"),
            bar.cast("string").cast("float64"),
            at.cast("string").cast("int64").cast("timestamp[s]"),
        ]
        return spi.Decoded(
            rows=pa.record_batch(columns, schema=SCHEMA),
            source=pc.indices_nonzero(found.is_valid()).cast("int32"),
            errors=[spi.BadMessage(n, "malformed", "not name;bar;time") for n in bad],
        )


# A package names a module with a hook for its decoder in its entry points. Without a
# package, the configuration names a descriptor: module:NAME.
PER_MESSAGE = spi.Decoder(
    name="machines", doc="One by one.", spi_level=1, decoder=PerMessage
)
COLUMNAR = spi.Decoder(
    name="machines", doc="By columns.", spi_level=1, decoder=Columnar
)


def main() -> None:
    lines = [b"press-%d;%d.5;1735689600" % (n % 5, n % 9) for n in range(100_000)]
    lines[1] = b"press-1;high;1735689600"
    with tempfile.TemporaryDirectory() as folder:
        stream = {
            "streamType": "file",
            "stream.file.path": folder,
            "stream.file.topic.name": "machines",
        }
        raw = {"stream.file.decoder.class.name": "raw", "stream.file.messages": True}
        with streamfactory.open_sink(stream, options=raw) as sink:
            sink.put(pa.table({"value": lines}))
        tables = [read(stream, name) for name in ("PER_MESSAGE", "COLUMNAR")]
    print("the same rows:", tables[0].equals(tables[1]))


def read(stream: dict[str, str], name: str) -> pa.Table:
    """Read a stream with the decoder of this file that has this name."""
    options = {
        "stream.file.decoder.class.name": f"own_decoder:{name}",
        "decode.on.error": "skip",
    }
    began = time.monotonic()
    with streamfactory.open(stream, options=options, allow_class_paths=True) as opened:
        rows = opened.to_reader().read_all()
        skipped = opened.counters.bad_messages
    seconds = time.monotonic() - began
    print(f"{name}: {rows.num_rows:,} rows, {skipped} bad, {seconds:.2f} s")
    return rows


if __name__ == "__main__":
    main()
