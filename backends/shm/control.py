"""The control file of a topic: its schema, its two states and its commit word."""

from __future__ import annotations

import json
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from streamfactory.arrowlog.decoding import (
    InvalidValue,
    list_of,
    mapping_of,
    members_of,
    text,
)
from streamfactory.arrowlog.disk.records import WriterState, decode_writer
from streamfactory.backends.shm.layout import (
    COMMIT_WORD,
    CONTROL,
    CONTROL_HEAD,
    CONTROL_MAGIC,
    DELETED_WORD,
    MOST_SCHEMA,
    PAGE,
    SLOT,
    VERSION,
    Damaged,
    Part,
    State,
    decode_state,
    encode_state,
    slot_at,
)
from streamfactory.backends.shm.waking import Word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_RECENT: Final = 64
"""Attempts whose carried rows are remembered, so that they are not appended twice."""
_TRIES: Final = 1000
"""Readings of a state, before one that changes meanwhile is taken for damaged."""


class Known(NamedTuple):
    """What a topic remembers of its writers."""

    writers: Mapping[str, WriterState]
    recent: Sequence[str]
    """The last attempts whose rows were carried."""


_KNOWN: Final = members_of(
    {"writers": mapping_of(text, decode_writer), "recent": list_of(text)}
)


def create_control(
    folder: Path, schema: pa.Schema, incarnation: bytes, capacity: int, flags: int
) -> None:
    """Create the file of a topic without partitions."""
    encoded = schema.serialize().to_pybytes()
    numbers = (VERSION, flags, incarnation, capacity, len(encoded), SLOT)
    head = CONTROL_HEAD.pack(CONTROL_MAGIC, *numbers)
    flags_ = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(folder / CONTROL, flags_, 0o600)
    try:
        os.pwrite(file, head.ljust(PAGE, b"\0") + encoded, 0)
        first = slot_at(0, len(encoded), SLOT)
        state = encode_state(State(0, 0, ()), _encoded(Known({}, [])))
        os.pwrite(file, state, first)
        os.ftruncate(file, first + 2 * SLOT)
    finally:
        os.close(file)


class Control:
    """The control file of one topic, mapped. Readers need no lock.

    Args:
        folder: Of the topic.

    Raises:
        FileNotFoundError: There is none.
        Damaged: It is not of the format.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / CONTROL
        self._file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._open(os.pread(self._file, CONTROL_HEAD.size, 0), path)
        except BaseException:
            os.close(self._file)
            raise

    def _open(self, head: bytes, path: Path) -> None:
        size = os.fstat(self._file).st_size
        if len(head) < CONTROL_HEAD.size:
            msg = f"{path} is shorter than its header"
            raise Damaged(msg)
        magic, version, flags, incarnation, capacity, schema, slot = (
            CONTROL_HEAD.unpack(head)
        )
        if magic != CONTROL_MAGIC or version != VERSION:
            msg = f"{path} is no topic in shared memory of version {VERSION}"
            raise Damaged(msg)
        fits = schema <= MOST_SCHEMA and slot == SLOT and capacity > 0
        if not fits or capacity % PAGE or size != slot_at(0, schema, SLOT) + 2 * SLOT:
            msg = f"{path} announces sizes that it has not"
            raise Damaged(msg)
        self.flags: int = flags
        self.incarnation: bytes = incarnation
        self.capacity: int = capacity
        self._schema_size: int = schema
        self.schema = _schema_of(os.pread(self._file, schema, PAGE), path)
        self._map = mmap.mmap(self._file, size)
        self._view = memoryview(self._map)
        self._words = self._view[:PAGE].cast("Q")
        at = 8 * COMMIT_WORD
        # The lower half of the commit word: machines of both formats are little-endian.
        self.word = Word(pa.py_buffer(self._map).address + at, self._view[at : at + 4])
        self._state: State | None = None
        self._where = (0, 0, 0)
        self._known: tuple[int, Known] | None = None

    def close(self) -> None:
        """Close the file. Then the topic is gone, for those who still have this."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self.word.close()
            self._words.release()
            self._view.release()
            self._map.close()  # which has a descriptor of its own

    @property
    def is_gone(self) -> bool:
        """Whether the topic was deleted."""
        return self._file < 0 or self._words[DELETED_WORD] != 0

    @property
    def is_unlinked(self) -> bool:
        """Whether its files were removed by something else than a deletion."""
        return self._file >= 0 and os.fstat(self._file).st_nlink == 0

    def mark_deleted(self) -> None:
        """Tell all who have mapped it that the topic is deleted."""
        self._words[DELETED_WORD] = 1
        self.word.wake()

    @property
    def number(self) -> int:
        """The number of the last commit."""
        return self._words[COMMIT_WORD]

    def state(self) -> State:
        """What the last commit left; the same object until there is another one.

        Raises:
            Damaged: The checksum of the state is wrong.
        """
        return self._read()[0]

    def _read(self) -> tuple[State, tuple[int, int, int]]:
        failure = Damaged("the state of the topic changes all the time")
        for _ in range(_TRIES):
            number, known = self.number, self._state
            if known is not None and known.number == number:
                return known, self._where
            begin = slot_at(number, self._schema_size, SLOT)
            try:
                # Released, or an error that is kept would keep the file mapped.
                with self._view[begin : begin + SLOT] as slot:
                    state, where = decode_state(slot)
            except Damaged as error:
                failure = error
                if self.number == number:
                    break  # no process writes there
                continue
            if state.number == number == self.number:
                self._state, self._where = state, where
                return state, where
        raise failure

    def known(self) -> Known:
        """What is remembered of writers. The caller has the lock, or tries again.

        Raises:
            Damaged: It is not of the format.
        """
        for _ in range(_TRIES):
            state, (at, length, crc) = self._read()
            if self._known is not None and self._known[0] == state.number:
                return self._known[1]
            begin = slot_at(state.number, self._schema_size, SLOT) + at
            data = bytes(self._view[begin : begin + length])
            if crc32(data) == crc:
                found = _decoded(data)
                self._known = state.number, found
                return found
            if self.number == state.number:
                break
        msg = "the checksum of the writers of the topic is wrong"
        raise Damaged(msg)

    def publish(
        self, parts: Sequence[Part], known: Known | None = None, appended: int = 0
    ) -> None:
        """Replace the state, at once for all who read it. The caller has the lock.

        Args:
            parts: Bounds of all partitions.
            known: What is remembered of writers; as before by default.
            appended: Time of a commit, in milliseconds.

        Raises:
            Damaged: It does not fit into a slot.
            OSError: There is no memory left.
        """
        before = self.state()
        known = known or self.known()
        known = Known(known.writers, known.recent[-_RECENT:])
        number = before.number + 1
        state = State(number, max(appended, before.appended_ms), parts)
        writers = _encoded(known)
        data = encode_state(state, writers)
        # Not through the map: without memory that would end the process.
        at = slot_at(number, self._schema_size, SLOT)
        if os.pwrite(self._file, data, at) != len(data):
            msg = "there is no memory left for the state of the topic"
            raise OSError(msg)
        self._words[COMMIT_WORD] = number
        self.word.wake()
        self._state = state
        self._where = len(data) - len(writers), len(writers), crc32(writers)
        self._known = number, known


def _encoded(known: Known) -> bytes:
    plain = {name: writer.to_plain() for name, writer in known.writers.items()}
    return json.dumps({"writers": plain, "recent": known.recent}).encode()


def _decoded(data: bytes) -> Known:
    try:
        plain: Any = json.loads(data)
        return Known(**_KNOWN(plain))
    except (ValueError, RecursionError, InvalidValue) as error:
        msg = f"the writers of the topic cannot be read: {error}"
        raise Damaged(msg) from error


def _schema_of(data: bytes, path: Path) -> pa.Schema:
    with suppress(pa.ArrowException, OSError, ValueError):
        return pa.ipc.read_schema(pa.py_buffer(data))
    msg = f"{path} has a schema that cannot be read"
    raise Damaged(msg)
