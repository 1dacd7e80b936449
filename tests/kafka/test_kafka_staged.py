"""Staged rows that somebody else wrote, or changed: refused, before they are used."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.arrowlog import message_schema
from streamfactory.backends.kafka.markers import Marker
from streamfactory.backends.kafka.parcels import encoded, read_parcels
from streamfactory.backends.kafka.staging import Staged
from streamfactory.spi import CorruptData, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable


def messages(values: list[bytes]) -> pa.RecordBatch:
    rows = [{"key": None, "value": one, "headers": [("a", one)]} for one in values]
    return pa.RecordBatch.from_pylist(rows, schema=message_schema())


SOUND = encoded([("clicks", 0, messages([b"one", b"two"])), ("carts", 3, messages([]))])


def read(data: bytes) -> list[tuple[str, int, int]]:
    found = read_parcels(pa.BufferReader(data))
    return [(topic, partition, rows.num_rows) for topic, partition, rows in found]


def written(
    rows: pa.RecordBatch,
    metadata: dict[str, str] | None,
    options: pa.ipc.IpcWriteOptions | None = None,
) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(
            rows, custom_metadata=metadata and pa.KeyValueMetadata(metadata)
        )
    found: bytes = sink.getvalue().to_pybytes()
    return found


def with_offsets_beyond_the_values() -> bytes:
    """The last offset of `value` is changed where it lies in the body."""
    rows = messages([b"x" * 11, b"y" * 13])
    sound = encoded([("clicks", 0, rows)])
    offsets = struct.pack("<3i", 0, 11, 24)
    assert sound.count(offsets) >= 1
    return sound.replace(offsets, struct.pack("<3i", 0, 11, 2**30), 1)


def with_a_body_that_is_announced_and_not_there() -> bytes:
    sound = encoded([("clicks", 0, messages([b"z" * 5000]))])
    length = [at for at in range(0, len(sound) - 8, 8) if sound[at : at + 8] == _BODY]
    assert length
    changed = bytearray(sound)
    changed[length[0] : length[0] + 8] = struct.pack("<q", 16 << 30)
    return bytes(changed)


def _body_length() -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, message_schema()).close()
    sound = encoded([("clicks", 0, messages([b"z" * 5000]))])
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(sound))
    reader.read_next_message()
    return struct.pack("<q", reader.read_next_message().body.size)


_BODY = _body_length()
HOSTILE: dict[str, Callable[[], bytes]] = {
    "offsets beyond the values": with_offsets_beyond_the_values,
    "a body that is announced and not there": (
        with_a_body_that_is_announced_and_not_there
    ),
    "cut": lambda: SOUND[:-20],
    "no Arrow": lambda: b"x" * 100,
    "no target": lambda: written(messages([b"a"]), None),
    "a target that is no partition": lambda: written(
        messages([b"a"]), {"topic": "clicks", "partition": "-1"}
    ),
    "a partition beyond all": lambda: written(
        messages([b"a"]), {"topic": "clicks", "partition": "4294967296"}
    ),
    "a topic that Kafka does not allow": lambda: written(
        messages([b"a"]), {"topic": "../clicks", "partition": "0"}
    ),
    "other columns": lambda: written(
        pa.record_batch({"value": [b"a"]}), {"topic": "clicks", "partition": "0"}
    ),
    "compressed": lambda: written(
        messages([b"a" * 9999]),
        {"topic": "clicks", "partition": "0"},
        pa.ipc.IpcWriteOptions(compression="zstd"),
    ),
}


def test_what_was_staged_is_read_back() -> None:
    assert read(SOUND) == [("clicks", 0, 2), ("carts", 3, 0)]
    assert read(encoded([])) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_foreign_staged_rows_are_refused(name: str) -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptData):
        read(HOSTILE[name]())
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"rows": "3", "size": 1},
        {"rows": 3, "size": 1, "file": "../../etc/passwd"},
        {"rows": 3, "size": 1, "file": 7},
        {"rows": 3, "size": 1, "inline": "text"},
    ],
)
def test_payloads_that_are_none_of_ours_are_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(CorruptData):
        Staged.from_payload(payload)


@pytest.mark.parametrize(
    "changed",
    [
        {"claim": float("inf")},
        {"claim": "2"},
        {"epoch": 1.5},
        {"instance": 7},
        {"summary": {"rows": 3, "sums": 5}},
        {"summary": {"rows": 3, "sums": [1]}},
        {"summary": {"rows": 3, "sums": {"a": "5"}}},
        {"summary": {"rows": 3}},
        {"summary": "rows"},
    ],
)
def test_a_marker_with_a_value_of_another_kind_is_refused(
    changed: dict[str, Any],
) -> None:
    body = {"version": 1, "instance": "a", "claim": 2, "epoch": 5}
    assert Marker.decode(json.dumps(body).encode()).claim == 2
    with pytest.raises(FormatRefused, match="is not an epoch marker"):
        Marker.decode(json.dumps(body | changed).encode())
