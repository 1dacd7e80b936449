"""Hostile bytes: always an error of ours, never a crash, a hang or a leak."""

from __future__ import annotations

import random
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.sockets.peers import (
    DIALLED,
    Background,
    dialled,
    opened,
    rows,
    stream_of,
)

from streamfactory.arrowipc import END
from streamfactory.backends.socket.framing import _MOST_WAITS, EndedEarly, StreamDecoder
from streamfactory.live.messages import Limits
from streamfactory.spi import CorruptData, MessageTooLarge, SchemaMismatch, StreamError
from streamfactory.spi.soundness import UNPACKED_BYTES

if TYPE_CHECKING:
    from streamfactory.backends.socket.framing import Receive

LIMITS = Limits(64 * 1024, 1024 * 1024, 64 * 1024)
TABLE = pa.record_batch(
    {
        "n": pa.array([1, None, 3]),
        "text": ["a", None, "ü" * 40],
        "words": pa.array(["x", "y", None]).dictionary_encode(),
        "list": [[1], [], None],
        "struct": [{"a": 1, "b": [True]}, None, {"a": 2, "b": None}],
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "view": pa.array(["short", None, "longer than twelve"], pa.string_view()),
        "nulls": pa.nulls(3),
        "union": pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array([1, 2]), pa.array(["u"])],
        ),
        "runs": pa.RunEndEncodedArray.from_arrays([1, 3], [7, 8]),
    }
)
OFFSETS = struct.pack("<3i", 400, 404, 408)
FAR = struct.pack("<3i", 400, 2**30, 408)
OUTCOMES = {"read", "CorruptData", "MessageTooLarge", "SchemaMismatch", "early"}
PLAIN = stream_of(TABLE, TABLE, schema=TABLE.schema)
PACKED = stream_of(TABLE, TABLE, schema=TABLE.schema, compression="zstd")


def receiver(data: bytes, chunk: int = 2**30) -> Receive:
    """Bytes as a connection has them: in pieces, then no more."""
    at = 0

    def receive(views: list[memoryview]) -> int:
        nonlocal at
        got = 0
        for view in views:
            piece = data[at : at + min(len(view), chunk - got)]
            view[: len(piece)] = piece
            at, got = at + len(piece), got + len(piece)
        return got

    return receive


def read(data: bytes, chunk: int = 2**30) -> list[pa.RecordBatch]:
    """All batches, with every value looked at."""
    inflow, receive, found = StreamDecoder(LIMITS), receiver(data, chunk), []
    inflow.receive_schema(receive)
    while (some := inflow.receive_some(receive, 2**16)) is not None:
        found.append(some[0])
        some[0].to_pylist()
    return found


def test_whole_streams_are_read_whatever_their_pieces() -> None:
    for data in (PLAIN, PACKED):
        for chunk in (1, 3, 64, 2**30):
            assert pa.Table.from_batches(read(data, chunk)).num_rows == 6


def test_headers_that_repeat_and_change_are_each_read() -> None:
    texts = ["a", "b", "cc", "cc", None, "d" * 100, "a"]
    batches = [
        pa.record_batch({"word": pa.array([text], pa.string())}) for text in texts
    ]
    schema = batches[0].schema.serialize().to_pybytes()
    messages = [batch.serialize().to_pybytes() for batch in batches]
    found = read(schema + b"".join(messages) + END)
    assert pa.Table.from_batches(found).column("word").to_pylist() == texts
    with pytest.raises(CorruptData):
        read(schema + messages[0] + messages[0][:8] + bytes(len(messages[0]) - 8))


@pytest.mark.parametrize("rows", [1, 700, 1_000, 2_500, 3_000])
@pytest.mark.parametrize("chunk", [30_011, 1_000_003, 2**30])
def test_batches_of_every_size_survive_the_borders_of_blocks(
    rows: int, chunk: int
) -> None:
    numbers = pa.arange(0, rows)
    words = pa.array([f"word {n}" * 6 if n % 3 else None for n in range(rows)])
    batches = [
        pa.record_batch({"n": pc.add(numbers, index), "word": words})
        for index in range(3_000_000 // (rows * 60 + 300))
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    inflow, receive, found = StreamDecoder(LIMITS), receiver(data, chunk), []
    inflow.receive_schema(receive)
    while (some := inflow.receive_some(receive, 2**16)) is not None:
        found.append(some[0])  # and kept, while others are received
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(batches))


def test_a_damaged_place_in_the_middle_of_a_long_column_is_an_error() -> None:
    rows = pa.record_batch({"word": pa.array(["word"] * 5_000)})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    data = bytearray(stream.getvalue().to_pybytes())
    for place, damage in ((b"wordword", b"w\xffrdword"), (OFFSETS, FAR)):
        damaged = bytearray(data)
        at = damaged.index(place)
        damaged[at : at + len(damage)] = damage
        with pytest.raises(CorruptData) as caught:
            read(bytes(damaged))
        assert "a batch is corrupt: " in caught.value.what


@pytest.mark.parametrize("ends", [(1, 1, 3), (-5, 2, 3), (3, 2, 1)])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64()])
def test_small_batches_are_validated_before_they_are_joined(
    kind: pa.DataType, ends: tuple[int, ...]
) -> None:
    """Joined first, the second one's runs lie outside of the first one's values."""
    values = pa.array([7, 8, 9] if kind == pa.int64() else ["aa", "bb", "cc"], kind)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), values)
    rows = pa.record_batch({"c": runs})
    data = stream_of(rows, rows, schema=rows.schema)
    good = struct.pack("<3i", 1, 2, 3)
    assert data.count(good) == 2
    with pytest.raises(CorruptData, match="a batch is corrupt: column 'c'"):
        read(data.replace(good, struct.pack("<3i", *ends)))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@pytest.mark.parametrize("offset", [-1000, 5, 2**30])
def test_a_run_that_no_row_has_is_validated_too(kind: pa.DataType, offset: int) -> None:
    """Joined first, this ended the process, or read memory of others."""
    values = pa.array(["aaaa", "bbbb", "cccc"], kind)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), values)
    rows = pa.record_batch({"c": runs})
    data = stream_of(rows, rows, schema=rows.schema)
    data = data.replace(struct.pack("<3i", 1, 2, 3), struct.pack("<3i", 1, 3, 4))
    offsets = struct.pack("<4i", 0, 4, 8, 12)
    assert data.count(offsets) == 2
    with pytest.raises(CorruptData, match="a batch is corrupt: column 'c'"):
        read(data.replace(offsets, struct.pack("<4i", 0, offset, offset - 1, 12)))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("size", [5, 100, 2**30, -1])
def test_list_views_are_validated_before_they_are_joined(size: int, wide: bool) -> None:
    form = "q" if wide else "i"
    kind = pa.large_list_view if wide else pa.list_view
    rows = pa.record_batch({"c": pa.array([[1], [2, 3, 4]], kind(pa.int64()))})
    data = stream_of(rows, rows, schema=rows.schema)
    good = struct.pack(f"<2{form}", 1, 3)
    assert data.count(good) == 2
    with pytest.raises(CorruptData, match="a batch is corrupt: column 'c'"):
        read(data.replace(good, struct.pack(f"<2{form}", size, 3)))


def test_types_that_streams_do_not_carry_are_refused_with_their_schema() -> None:
    rows = pa.record_batch({"d": pa.nulls(1, pa.decimal128(20, 1000))})
    with pytest.raises(SchemaMismatch, match=r"column 'd': decimal128\(20, 1000\)"):
        read(stream_of(rows, schema=rows.schema))


def test_rows_that_share_their_values_come_in_slices_that_can_be_converted() -> None:
    words = pa.DictionaryArray.from_arrays(
        pa.array([0] * 10_000, pa.int8()), ["x" * 20_000]
    )
    rows = pa.record_batch({"n": pa.arange(0, 10_000), "c": words})
    limits = Limits(64 * 1024, 1024 * 1024, 64 * 1024)
    inflow, receive = (
        StreamDecoder(limits),
        receiver(stream_of(rows, schema=rows.schema)),
    )
    inflow.receive_schema(receive)
    counts: list[int] = []
    while (some := inflow.receive_some(receive, 2**16)) is not None:
        assert not inflow.is_dry or sum(counts) + some[0].num_rows == 10_000
        counts.append(some[0].num_rows)
    assert sum(counts) == 10_000
    assert max(counts) * 20_000 <= UNPACKED_BYTES


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_order_of_bytes_is_read_from_the_schema(order: str) -> None:
    message = struct.pack("<IHHHHHHi", 16, 12, 12, 0, 4, 8, 0, 12)
    message += struct.pack("<B3xI", 1, 12)
    schema = struct.pack("<HHHHiIHxxI", 8, 12, 8, 4, 8, 8, order == "big", 0)
    header = LIMITS.read_header(memoryview(message + schema))
    assert header.foreign_order == (order != sys.byteorder)


@pytest.mark.parametrize("data", [PLAIN, PACKED], ids=["plain", "packed"])
def test_a_stream_cut_off_anywhere_has_ended_early(data: bytes) -> None:
    # Every length near a border, and some of the others.
    lengths = {*range(0, len(data), 37), *range(24), *range(len(data) - 24, len(data))}
    for length in sorted(lengths):
        with pytest.raises(EndedEarly):
            read(data[:length])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("data", [PLAIN, PACKED], ids=["plain", "packed"])
def test_damage_anywhere_is_an_error_or_another_value(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    outcomes = set()
    for _ in range(700):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 8))):
            place = chance.randrange(len(damaged))
            value = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            damaged[place] = value
        outcomes.add(outcome(bytes(damaged)))
    assert outcomes <= OUTCOMES
    assert "CorruptData" in outcomes


@pytest.mark.parametrize("seed", range(2))
def test_lengths_that_lie_are_errors(seed: int) -> None:
    chance = random.Random(seed)
    lies = (-1, -8, 0, 1, 8, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63))
    outcomes = set()
    for _ in range(1500):
        damaged = bytearray(PLAIN)
        place = chance.randrange(0, len(damaged) - 8, 4)
        struct.pack_into("<q", damaged, place, chance.choice(lies))
        outcomes.add(outcome(bytes(damaged)))
    assert outcomes <= OUTCOMES
    assert {"CorruptData", "MessageTooLarge"} <= outcomes


def test_the_rest_of_a_message_is_waited_for_a_few_times() -> None:
    receive, left, waits = receiver(stream_of(rows(*range(2_000))), 100), 20, 0

    def in_drops(views: list[memoryview]) -> int:
        nonlocal left
        if left == 0:
            raise BlockingIOError
        left -= 1
        return receive(views)

    def wait() -> bool:
        nonlocal left, waits
        left, waits = 1, waits + 1
        return True

    inflow = StreamDecoder(LIMITS)
    inflow.receive_schema(in_drops)
    for _ in range(2):
        waits = 0
        with pytest.raises(BlockingIOError):
            inflow.receive_some(in_drops, 2**16, wait)
        assert waits == _MOST_WAITS
    waits, left = 0, 1
    with pytest.raises(BlockingIOError):
        inflow.receive_some(in_drops, 2**16)
    assert waits == 0
    left = 2**30
    found = inflow.receive_some(in_drops, 2**16, wait)
    assert found is not None
    assert found[0].column(0).to_pylist() == list(range(2_000))


def test_garbage_is_an_error() -> None:
    chance = random.Random(0)
    for _ in range(500):
        data = chance.randbytes(chance.randrange(1, 400))
        assert outcome(data) != "read"
        header = struct.pack("<Ii", 0xFFFFFFFF, len(data) // 8 * 8)
        assert outcome(header + data) != "read"


def outcome(data: bytes) -> str:
    """What became of it, by name."""
    try:
        read(data)
    except EndedEarly:
        return "early"
    except StreamError as error:
        # Streams that end before their schema are torn ones.
        return "early" if "before its schema" in error.what else type(error).__name__
    return "read"


def test_rows_without_bytes_are_counted_all_the_same() -> None:
    nulls = pa.record_batch({"x": pa.nulls(5)})
    data = bytearray(stream_of(nulls, schema=nulls.schema))
    begin = len(nulls.schema.serialize())
    place = data.index(struct.pack("<q", 5), begin)
    while place >= 0:
        struct.pack_into("<q", data, place, 2**40)
        place = data.find(struct.pack("<q", 5), begin)
    with pytest.raises(CorruptData) as caught:
        read(bytes(data))
    assert caught.value.what == f"a message announces {2**40} rows"


def schema_that_refers_to_itself(levels: int, width: int) -> bytes:
    """A schema of few bytes with `width` to the power of `levels` fields.

    Written by hand: a table for each level, whose children are all the same table.
    """
    # Message: version, kind, header, body length.
    out = bytearray(struct.pack("<I", 16))
    out += struct.pack("<HHHHHH", 12, 20, 4, 6, 8, 12)
    message = len(out)
    out += struct.pack("<iHBxIq", message - 4, 4, 1, 12, 0)
    # Schema: endianness, fields.
    vtable = len(out)
    out += struct.pack("<HHHH", 8, 8, 0, 4)
    schema = len(out)
    struct.pack_into("<I", out, message + 8, schema - (message + 8))
    out += struct.pack("<iI", schema - vtable, 4)
    hole = len(out) - 4
    for _ in range(levels):
        vector = len(out)
        struct.pack_into("<I", out, hole, vector - hole)
        out += struct.pack("<I", width)
        slots = len(out)
        out += bytes(4 * width)
        vtable = len(out)
        # Field: name, nullable, type kind, type, dictionary, children.
        out += struct.pack("<HHHHHHHH", 16, 8, 0, 0, 0, 0, 0, 4)
        table = len(out)
        out += struct.pack("<iI", table - vtable, 0)
        for slot in range(slots, slots + 4 * width, 4):
            struct.pack_into("<I", out, slot, table - slot)
        hole = table + 4
    vector = len(out)
    struct.pack_into("<I", out, hole, vector - hole)
    out += struct.pack("<I", 0)
    out += bytes(-len(out) % 8)
    return struct.pack("<Ii", 0xFFFFFFFF, len(out)) + out


@pytest.mark.parametrize(
    ("levels", "width"), [(60, 50), (10_000 // 40, 1), (8, 100), (2, 12_000)]
)
def test_schemas_that_multiply_are_refused_before_they_do(
    levels: int, width: int
) -> None:
    data = schema_that_refers_to_itself(levels, width)
    assert len(data) < 100_000
    with pytest.raises((CorruptData, MessageTooLarge)):
        read(data)


def test_a_hundred_hostile_peers_leave_nothing_behind(port: int, address: str) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    chance = random.Random(5)

    def collect() -> int:
        with opened(listen=address, writers="101", x_schema="n bigint") as stream:
            return sum(batch.num_rows for batch in stream)

    reading = Background(collect)
    good = dialled(port)
    good.sendall(stream_of(rows(1), end=False))
    for _ in range(100):
        with dialled(port) as peer:
            damaged = bytearray(PLAIN)
            damaged[chance.randrange(len(damaged))] ^= 0xFF
            try:
                peer.sendall(damaged[: chance.randrange(len(damaged))])
                peer.shutdown(socket.SHUT_WR)
            except OSError:
                continue
    good.sendall(b"\xff\xff\xff\xff\0\0\0\0")
    with pytest.raises(StreamError):
        reading.result()
    while DIALLED:
        DIALLED.pop().close()
    assert descriptors() <= before
