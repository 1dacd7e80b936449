"""Formats of the body of a request."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

CONTENT_TYPES: Final = {
    "ndjson": "application/x-ndjson",
    "cloudevents": "application/cloudevents-batch+json",
    "arrow": "application/vnd.apache.arrow.stream",
}
SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""Messages to post."""


def body(form: str, messages: pa.RecordBatch, name: str, kind: str) -> bytes:
    """The body of a request.

    Args:
        form: One of `CONTENT_TYPES`.
        messages: What it holds, of `SCHEMA`.
        name: Identifies the request; with the number of an event it identifies that.
        kind: Type of CloudEvents.

    Raises:
        ValueError: A message cannot be written in this format.
    """
    if form == "arrow":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(messages)
        return bytes(sink.getvalue())
    if form == "cloudevents":
        rows = messages.to_pylist()
        return b"[%s]" % b",".join(
            _event(row["key"], row["value"], f"{name}-{number}", kind)
            for number, row in enumerate(rows)
        )
    return _lines(messages.column("value"))


def _lines(values: pa.BinaryArray) -> bytes:
    if pc.any(pc.match_substring(values, "\n")).as_py():
        msg = "a message has a line break, which NDJSON separates messages by"
        raise ValueError(msg)
    if pc.any(pc.equal(pc.binary_length(values), 0)).as_py():
        msg = "a message is empty, and readers of NDJSON skip empty lines"
        raise ValueError(msg)
    filled = pc.fill_null(values, b"null")
    whole = pa.ListArray.from_arrays([0, len(filled)], filled)
    joined: bytes = pc.binary_join(whole, b"\n")[0].as_py()
    return joined + b"\n"


def _event(key: bytes | None, value: bytes | None, name: str, kind: str) -> bytes:
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": name,
        "source": "streamfactory",
        "type": kind,
    }
    if key is not None:
        event["partitionkey"] = key.decode(errors="replace")
    data = b""
    if value is not None and _is_json(value):
        event["datacontenttype"] = "application/json"
        # As it is: numbers keep their digits.
        data = b',"data":' + value
    elif value is not None:
        event["data_base64"] = base64.b64encode(value).decode()
    text = json.dumps(event, separators=(",", ":")).encode()
    return text.removesuffix(b"}") + data + b"}"


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have.

    Raises:
        ValueError: Always.
    """
    msg = f"{name} is no JSON"
    raise ValueError(msg)
