"""The files of a topic in shared memory: structures, names and limits.

`docs/shm-format.md` describes them for programs in other languages.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
CONTROL_MAGIC: Final = b"SFSHMCTL"
RING_MAGIC: Final = b"SFSHMRNG"
LEASE_MAGIC: Final = b"SFSHMLSE"
PAGE: Final = 4096
"""Bytes before the data of a ring, and before the schema of the control file."""
ALIGNED: Final = 64
"""Alignment of records."""

CONTROL: Final = "control"
LOCK: Final = "lock"
STAGING: Final = "staging"
LEASES: Final = "leases"

BLOCKS: Final = 1
"""Flag of a topic whose writers wait for readers when a ring is full."""

COMMIT_WORD: Final = 8
"""Index, in words of 8 bytes, of the commit word of the control file."""
DELETED_WORD: Final = 9
"""Index of the word that is not 0 once the topic was deleted."""

CONTROL_HEAD: Final = struct.Struct("<8sII16sQQQ")
"""Magic, version, flags, incarnation, capacity, bytes of the schema, of a slot."""
RING_HEAD: Final = struct.Struct("<8sII16sQ")
"""Magic, version, partition, incarnation, capacity."""
LEASE_HEAD: Final = struct.Struct("<8sIIQ")
"""Magic, version, entries, process id."""
LEASE_ENTRIES: Final = 1024
LEASE_SIZE: Final = PAGE + 16 * LEASE_ENTRIES
PINNED: Final = 1
"""Kind of a lease: the record at the position is in use."""
READING: Final = 2
"""Kind of a lease: a reader needs the records from the position on."""

SLOT: Final = 8 << 20
"""Bytes of one of the two states; only what is used takes memory."""
MOST_SCHEMA: Final = 1 << 20
_LARGEST: Final = 2**62
"""Largest number of a state or of a record: the sum of two fits in 64 bits."""

_STATE: Final = struct.Struct("<QQIIII")
"""Commit word, time of the last commit, partitions, bytes and CRC-32 of the writers,
CRC-32 of the table with the fields before it."""
_PART: Final = struct.Struct("<4Q")
STATE_HEAD: Final = _STATE.size


class Part(NamedTuple):
    """The bounds of one partition."""

    earliest: int
    """First offset that is held."""
    latest: int
    tail: int
    """Position of the first record that is held: bytes since the ring was created."""
    head: int
    """Position behind the last record."""


class State(NamedTuple):
    """What the last commit made of a topic."""

    number: int
    """Of the commit."""
    appended_ms: int
    parts: Sequence[Part]


class Damaged(ValueError):
    """Bytes that are not of the format."""


def slot_at(number: int, schema: int, slot: int) -> int:
    """Where the state of a commit is in the control file."""
    begin = PAGE + -(-schema // PAGE) * PAGE
    return begin + number % 2 * slot


def encode_state(state: State, writers: bytes) -> bytes:
    """The bytes of a slot.

    Raises:
        Damaged: They do not fit into it.
    """
    table = b"".join(_PART.pack(*part) for part in state.parts)
    numbers = (state.number, state.appended_ms, len(state.parts), len(writers))
    head = struct.pack("<QQIII", *numbers, crc32(writers))
    encoded = head + struct.pack("<I", crc32(table, crc32(head))) + table + writers
    if len(encoded) > SLOT:
        msg = f"the state of the topic has {len(encoded)} bytes, {SLOT} are possible"
        raise Damaged(msg)
    return encoded


def decode_state(slot: memoryview) -> tuple[State, tuple[int, int, int]]:
    """The state of a slot; and where its writers are, their bytes and CRC.

    Raises:
        Damaged: The checksum is wrong, or the bounds of a partition are none.
    """
    number, appended, count, length, crc, sealed = _STATE.unpack_from(slot)
    end = STATE_HEAD + count * _PART.size
    if end + length > len(slot):
        msg = "the state of the topic is longer than its slot"
        raise Damaged(msg)
    table = bytes(slot[STATE_HEAD:end])
    if crc32(table, crc32(slot[: STATE_HEAD - 4])) != sealed:
        msg = "the checksum of the state is wrong"
        raise Damaged(msg)
    parts = [Part(*numbers) for numbers in _PART.iter_unpack(table)]
    if max(number, appended) > _LARGEST or not all(map(_is_sound, parts)):
        msg = f"the state of commit {number} contradicts itself"
        raise Damaged(msg)
    return State(number, appended, parts), (end, length, crc)


def _is_sound(part: Part) -> bool:
    """Whether a checksum seals bounds, and not any numbers."""
    rising = part.earliest <= part.latest and part.tail <= part.head
    aligned = part.tail % ALIGNED == part.head % ALIGNED == 0
    return rising and aligned and max(part) <= _LARGEST


# --- records ------------------------------------------------------------------------

_RECORD_MAGIC: Final = 0x43524653
_RECORD: Final = struct.Struct("<II6QII")
RECORD_HEAD: Final = _RECORD.size
assert RECORD_HEAD == ALIGNED

PADDING, MESSAGE, STREAM = 0, 1, 2
"""Kinds of records: the rest of a lap; one message; messages with dictionaries."""


class Record(NamedTuple):
    """The header of a record."""

    position: int
    length: int
    """Bytes with header and padding."""
    base: int
    """Offset of the first row."""
    rows: int
    appended_ms: int
    payload: int
    """Bytes of the messages."""
    kind: int = MESSAGE


def record_length(payload: int) -> int:
    """Bytes of a record with a payload of so many."""
    return RECORD_HEAD + -(-payload // ALIGNED) * ALIGNED


def encode_record(record: Record) -> bytes:
    """The header of a record."""
    body = _RECORD.pack(_RECORD_MAGIC, 0, *record, 0)[8:]
    return struct.pack("<II", _RECORD_MAGIC, crc32(body)) + body


def decode_record(data: memoryview, position: int, most: int) -> Record:
    """The header of the record at a position.

    Args:
        data: The 64 bytes.
        position: Where they are.
        most: Bytes that the record may have.

    Raises:
        Damaged: No record of the format is there.
    """
    magic, crc, *numbers, _ = _RECORD.unpack(data)
    found = Record(*numbers)
    if magic != _RECORD_MAGIC or crc32(data[8:]) != crc or found.position != position:
        msg = f"no record begins at position {position}"
        raise Damaged(msg)
    if not RECORD_HEAD <= found.length <= most or found.length % ALIGNED:
        msg = f"the record at position {position} has {found.length} bytes"
        raise Damaged(msg)
    if found.kind == PADDING:
        fits = found.rows == found.payload == 0
    else:
        fits = found.rows > 0 and record_length(found.payload) == found.length
        fits = fits and found.kind in (MESSAGE, STREAM)
    if not fits or max(found) > _LARGEST:
        msg = f"the record at position {position} contradicts itself"
        raise Damaged(msg)
    return found
