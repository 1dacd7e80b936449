"""Which dead letters a replay has still to process.

A dead letter has the identity of its message: stream, topic, incarnation, partition,
offset and ordinal. It counts once, however often its stream has it: several copies of a
stream, or members of groups, may have written it.

A letter that fails again is appended with the header `TAG`, which names the replay and
the letter that failed. Only that replay processes it, instead of the earlier one; for
others the earlier one still counts. So the state of a replay is its position, which its
target stores with the rows, and the tagged letters behind it.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.conversion.conform import conform
from streamfactory.spi import Partition, Position, headers_type
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA, IDENTITY
from streamfactory.wiring.reading.following import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from streamfactory.spi import MessageBatch
    from streamfactory.wiring.reading.source import Source

    Check = Callable[[], object]

TAG: Final = "streamfactory.replay"
"""Header of a letter that failed again: JSON with ``writer``, the replay's writer id,
and ``topic``, ``partition`` and ``offset`` of the letter that it replaces."""
_MOST: Final = 4096
"""Bytes of a tag: a longer one is not ours."""
_TURN: Final = 1.0

READ: Final = (*IDENTITY, "headers")
"""The columns that show which letters were processed."""
_READ: Final = pa.schema(
    [DEAD_LETTER_SCHEMA.field(name).with_nullable(True) for name in READ]
)


@final
class Ledger:
    """The dead letters that one replay has to process. One thread at a time.

    The identities are kept in a temporary database on disk, as they may be many.

    Args:
        writer_id: Of the replay.
        stream: The stream whose letters are replayed; None for all.
        position: Next letter to process, of each partition; None before the first run.
        whole: Whether messages are replayed whole: then the bad rows of a message
            count once together.
    """

    def __init__(
        self,
        writer_id: str,
        stream: str | None,
        position: Position | None,
        *,
        whole: bool,
    ) -> None:
        self.letters = 0
        """Different letters so far, processed or not."""
        self.repeated = 0
        """Letters that were skipped, because their message was counted before."""
        self.interrupted = False
        """Whether letters behind the position failed again already: the last run was
        killed before it committed their rows."""
        self._writer_id = writer_id
        self._stream = stream
        self._position = position or Position()
        self._by_row = not whole
        self._known = sqlite3.connect("", isolation_level=None)
        self._known.execute("CREATE TABLE known (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._known.execute("BEGIN")

    def read(self, history: Source, check: Check = lambda: None) -> None:
        """Read the letters before the position, and what failed again behind it.

        Args:
            history: The stream of dead letters, with the columns `READ`.
            check: See `batches_of`.

        Raises:
            StreamError: Of the stream.
        """
        for batch in batches_of(history, check):
            end = self._position.get(batch.partition, 0)
            letters = conform(batch.rows.select(_READ.names), _READ)
            offsets = offsets_of(batch).to_pylist()
            for offset, letter in zip(offsets, _rows(letters), strict=True):
                if self._stream not in (None, letter["stream"]):
                    continue
                tag = self._own(letter)
                if offset < end:
                    self._count(letter, tag)
                elif tag is not None:
                    self.interrupted = True
                    self._add("replaced", [*tag, letter["ordinal"]])

    def due(
        self, partition: Partition, letters: pa.RecordBatch, offsets: pa.Array
    ) -> pa.Array:
        """Return which letters are to be processed; they count as processed then.

        Args:
            partition: Their partition.
            letters: Dead letters, of the replayed stream only.
            offsets: The offset of each.
        """
        end = self._position.get(partition, 0)
        due = []
        for offset, letter in zip(offsets.to_pylist(), _rows(letters), strict=True):
            if offset < end:
                due.append(False)
                continue
            fresh = self._count(letter, self._own(letter))
            self.repeated += not fresh
            replaced = self.replaced(partition, offset, letter["ordinal"])
            due.append(fresh and not replaced)
        return pa.array(due, pa.bool_())

    def replaced(self, partition: Partition, offset: int, ordinal: int | None) -> bool:
        """Whether a letter, or one row of it, failed again behind the position.

        Args:
            partition: Partition of the letter.
            offset: Its offset.
            ordinal: The row of its message; None for all of it.
        """
        place = [partition.topic, partition.id, offset, ordinal]
        return self.interrupted and self._has("replaced", place)

    def tagged(
        self, letters: pa.RecordBatch, partition: Partition, offsets: pa.Array
    ) -> pa.RecordBatch:
        """Return letters that failed again, with the tag of this replay.

        Args:
            letters: Without tags.
            partition: Partition of the letters that they replace.
            offsets: The offset of each of these.
        """
        headers = []
        for old, offset in zip(
            letters.column("headers").to_pylist(), offsets.to_pylist(), strict=True
        ):
            tag = {
                "offset": offset,
                "partition": partition.id,
                "topic": partition.topic,
                "writer": self._writer_id,
            }
            value = json.dumps(tag, sort_keys=True).encode()
            headers.append([*(old or ()), {"key": TAG, "value": value}])
        return _with_headers(letters, headers)

    def close(self) -> None:
        """Close; may be called twice."""
        self._known.close()

    def _count(self, letter: dict[str, Any], tag: list[Any] | None) -> bool:
        """Count a letter; whether it was not counted before."""
        *message, ordinal = (letter[name] for name in IDENTITY)
        if not self._by_row:
            ordinal = None
        # A letter of a whole message counts for all of its rows.
        of_row = ordinal is not None
        first = not (of_row and self._has("letter", [*message, None]))
        first = first and self._add("letter", [*message, ordinal])
        self.letters += first
        return first if tag is None else self._add("again", [*tag, ordinal])

    def _own(self, letter: dict[str, Any]) -> list[Any] | None:
        """The place of the letter that this one replaces in this replay."""
        for header in reversed(letter["headers"] or ()):
            value = header["value"]
            if header["key"] != TAG or value is None or len(value) > _MOST:
                continue
            try:
                tag = json.loads(value)
            except (ValueError, RecursionError):
                continue
            if isinstance(tag, dict) and tag.get("writer") == self._writer_id:
                return [tag.get(name) for name in ("topic", "partition", "offset")]
        return None

    def _add(self, kind: str, key: list[Any]) -> bool:
        """Add a key; whether it is new."""
        sql = "INSERT OR IGNORE INTO known VALUES (?)"
        return self._known.execute(sql, [_digest(kind, key)]).rowcount == 1

    def _has(self, kind: str, key: list[Any]) -> bool:
        sql = "SELECT 1 FROM known WHERE key = ?"
        return self._known.execute(sql, [_digest(kind, key)]).fetchone() is not None


def untagged(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Return letters with the headers that their messages had."""
    column = letters.column("headers")
    if not pc.any(pc.equal(column.flatten().field("key"), TAG)).as_py():
        return letters
    headers = column.to_pylist()
    kept = [
        None if held is None else [one for one in held if one["key"] != TAG]
        for held in headers
    ]
    # A message without headers has none again, and not an empty list.
    return _with_headers(letters, [held or None for held in kept])


def batches_of(letters: Source, check: Check = lambda: None) -> Generator[MessageBatch]:
    """Read a stream of dead letters from the earliest to the latest of now.

    Args:
        letters: The stream.
        check: Called before each fetch, at least once in a second; raises to end.

    Raises:
        StreamError: Of the stream.
    """
    rotation = read_from(letters, start="earliest", default="earliest", follow=False)
    try:
        while not rotation.finished:
            check()
            batch = rotation.next_batch(_TURN)
            if batch is not None and batch.num_rows:
                yield batch
    finally:
        rotation.close()


def offsets_of(batch: MessageBatch) -> pa.Array:
    """Return the offset of each row."""
    if batch.offsets is not None:
        return batch.offsets
    first = batch.first_offset or 0
    return pa.arange(first, first + batch.num_rows)


def _rows(letters: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [letters.column(name).to_pylist() for name in READ]
    return (dict(zip(READ, row, strict=True)) for row in zip(*columns, strict=True))


def _with_headers(letters: pa.RecordBatch, headers: list[Any]) -> pa.RecordBatch:
    index = letters.schema.get_field_index("headers")
    held = pa.array(headers, headers_type())
    return letters.set_column(index, letters.schema.field(index), held)


def _digest(kind: str, key: list[Any]) -> bytes:
    return blake2b(repr((kind, key)).encode(), digest_size=16).digest()
