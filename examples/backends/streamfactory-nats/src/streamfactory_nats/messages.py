"""Messages: from envelopes to JetStream, and back."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from streamfactory import spi

KEY: Final = "Streamfactory-Key"
"""Header of the key, in base64: headers of NATS are text."""
RUN: Final = "Streamfactory-Run"
"""Header of a row's run and index (see `streamfactory_nats.commits`)."""
OPERATION: Final = "KV-Operation"
"""Header by which NATS's key-value buckets mark deletions: a tombstone."""

_STAGED: Final = pa.schema([("value", pa.binary()), ("key", pa.binary())])
_APPENDED: Final = 1
"""``timestampType``: the server's time."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be published."""

    value: bytes | None
    key: bytes | None

    @property
    def payload(self) -> bytes:
        """The bytes that NATS carries."""
        return b"" if self.value is None else self.value

    def headers(self) -> dict[str, str]:
        """The headers beside them."""
        headers = {}
        if self.key is not None:
            headers[KEY] = base64.b64encode(self.key).decode()
        if self.value is None:
            headers[OPERATION] = "DEL"
        return headers


@dataclass(frozen=True, slots=True)
class Received:
    """A message that JetStream delivered."""

    sequence: int
    nanoseconds: int
    """When JetStream stored it, since the epoch."""
    value: bytes
    headers: dict[str, str] | None


def pack(outgoing: spi.Outgoing, start: int, stop: int) -> bytes:
    """Rows of an `Outgoing` as one staged message: an Arrow IPC stream."""
    value = outgoing.rows.column("value").cast(pa.binary())
    key = outgoing.key
    keys = pa.nulls(len(value), pa.binary()) if key is None else key.cast(pa.binary())
    rows = pa.record_batch([value, keys], schema=_STAGED).slice(start, stop - start)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _STAGED) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> list[Message]:
    """The rows of a staged message."""
    table = pa.ipc.open_stream(data).read_all()
    values, keys = table["value"].to_pylist(), table["key"].to_pylist()
    return [Message(value, key) for value, key in zip(values, keys, strict=True)]


def parse_headers(raw: bytes) -> dict[str, str]:
    """The headers of a stored message; the first line names the protocol."""
    found = {}
    for line in raw.decode(errors="replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found


def envelopes(partition: spi.Partition, messages: Sequence[Received]) -> pa.RecordBatch:
    """Messages as rows of `envelope_schema`."""
    headers = [message.headers or {} for message in messages]
    columns = {
        "key": [_key(h) for h in headers],
        "value": [_value(m, h) for m, h in zip(messages, headers, strict=True)],
        "topic": [partition.topic] * len(messages),
        "partition": [partition.id] * len(messages),
        "offset": [message.sequence for message in messages],
        "timestamp": [message.nanoseconds // 1000 for message in messages],
        "timestampType": [_APPENDED] * len(messages),
        "headers": [_others(h) for h in headers],
    }
    schema = spi.envelope_schema()
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _key(headers: dict[str, str]) -> bytes | None:
    text = headers.get(KEY)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text.encode()  # written by another program


def _value(message: Received, headers: dict[str, str]) -> bytes | None:
    if not message.value and headers.get(OPERATION) in ("DEL", "PURGE"):
        return None
    return message.value


def _others(headers: dict[str, str]) -> list[tuple[str, bytes]] | None:
    found = [
        (str(name), value.encode())
        for name, value in headers.items()
        if not str(name).startswith(("Nats-", "Streamfactory-")) and name != OPERATION
    ]
    return found or None
