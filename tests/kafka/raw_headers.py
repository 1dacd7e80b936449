"""Messages with headers whose names the Python client would refuse."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog import message_schema
from streamfactory.backends.kafka import native_library
from streamfactory.backends.kafka.native_sending import NativeSender
from streamfactory.spi import headers_type


def send_header(bootstrap: str, topic: str, name: bytes) -> None:
    """Send a message with a header whose name the Python client would refuse."""
    library = native_library.load()
    assert isinstance(library, native_library.Library)
    sender = NativeSender(library)
    producer = sender.connect({"bootstrap.servers": bootstrap})
    for _ in sender.send(topic, 0, with_header(name)):
        assert producer.flush(30) == 0


def with_header(name: bytes) -> pa.RecordBatch:
    """A row of `message_schema`, whose only header may have a name that is no text."""
    ends = pa.py_buffer(np.array([0, len(name)], np.int32))
    names = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(name)])
    fields = list(headers_type().value_type)
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v"])], fields=fields)
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    columns = {"key": pa.nulls(1, pa.binary()), "value": pa.array([b"v"])}
    columns["timestamp"] = pa.nulls(1, pa.timestamp("us", tz="UTC"))
    columns["headers"] = lists.cast(headers_type())
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=message_schema())
