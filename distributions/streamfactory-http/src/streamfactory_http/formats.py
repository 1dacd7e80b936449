"""Formats of the body of a request."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

CONTENT_TYPES: Final = {
    "ndjson": "application/x-ndjson",
    "cloudevents": "application/cloudevents-batch+json",
    "arrow": "application/vnd.apache.arrow.stream",
}
_ARROW: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class Message:
    """A message to post."""

    key: bytes | None
    value: bytes | None


def body(form: str, messages: Sequence[Message], name: str, kind: str) -> bytes:
    """The body of a request.

    Args:
        form: One of `CONTENT_TYPES`.
        messages: What it holds.
        name: Identifies the request; with the number of an event it identifies that.
        kind: Type of CloudEvents.

    Raises:
        ValueError: A message cannot be written in this format.
    """
    if form == "arrow":
        rows = [{"key": m.key, "value": m.value} for m in messages]
        batch = pa.RecordBatch.from_pylist(rows, schema=_ARROW)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _ARROW) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())
    if form == "cloudevents":
        events = [_event(m, f"{name}-{n}", kind) for n, m in enumerate(messages)]
        return json.dumps(events, separators=(",", ":")).encode()
    lines = [b"null" if m.value is None else m.value for m in messages]
    if any(b"\n" in line for line in lines):
        msg = "a message has a line break, which NDJSON separates messages by"
        raise ValueError(msg)
    return b"".join(line + b"\n" for line in lines)


def _event(message: Message, name: str, kind: str) -> dict[str, Any]:
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": name,
        "source": "streamfactory",
        "type": kind,
    }
    if message.key is not None:
        event["partitionkey"] = message.key.decode(errors="replace")
    if message.value is None:
        return event
    try:
        event["data"] = json.loads(message.value)
        event["datacontenttype"] = "application/json"
    except ValueError:
        event["data_base64"] = base64.b64encode(message.value).decode()
    return event
