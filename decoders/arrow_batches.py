"""What decoders of whole batches share: plain values, bad messages set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi import BadMessage, Decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_CHUNK: Final = 256
"""Messages of one try, once a batch is known to hold a bad one."""
_FEW: Final = 16
"""Messages that are cheaper to look at one by one than to try again in halves."""

Refusal = tuple[str, str]
"""Why a message is bad: its code, and one sentence."""

MALFORMED: Final = "malformed"
SCHEMA: Final = "schema"


def plain(values: pa.Array) -> pa.Array:
    """The values as ``binary``, which is what the libraries take."""
    return values if values.type == pa.binary() else values.cast(pa.binary())


def places(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each value begins, how long it is, and the bytes of all of them."""
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    found = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1]
    found = found.astype(np.int64)
    return found[:-1], np.diff(found), np.frombuffer(data or b"", np.uint8)


@dataclass(slots=True)
class Sieve:
    """What a batch became, in parts, until all is put together."""

    schema: pa.Schema
    parts: list[tuple[pa.RecordBatch, np.ndarray]] = field(default_factory=list)
    """Rows, and the message of each."""
    errors: list[BadMessage] = field(default_factory=list)

    def keep(self, rows: pa.RecordBatch, messages: np.ndarray) -> None:
        """Take rows; ``messages`` has the message of each."""
        if rows.num_rows:
            self.parts.append((rows, messages))

    def refuse(self, messages: Iterable[int], refusal: Refusal) -> None:
        """Take bad messages."""
        self.errors += [BadMessage(int(message), *refusal) for message in messages]

    def decoded(self, count: int) -> Decoded:
        """The answer: rows in the order of their messages, and what is bad."""
        if not self.errors and len(self.parts) == 1:
            rows, messages = self.parts[0]
            if len(messages) == count and rows.num_rows == count:
                in_order = count == 0 or bool((np.diff(messages) > 0).all())
                if in_order:
                    return Decoded(rows)
        if not self.parts:
            empty = self.schema.empty_table().to_batches() or [
                pa.RecordBatch.from_pylist([], self.schema)
            ]
            return Decoded(empty[0], pa.array([], pa.int32()), self._sorted())
        rows = pa.concat_batches([rows for rows, _ in self.parts])
        messages = np.concatenate([messages for _, messages in self.parts])
        if len(self.parts) > 1 and (np.diff(messages) < 0).any():
            order = np.argsort(messages, kind="stable")
            rows, messages = rows.take(pa.array(order)), messages[order]
        return Decoded(rows, pa.array(messages.astype(np.int32)), self._sorted())

    def _sorted(self) -> list[BadMessage]:
        return sorted(self.errors, key=lambda error: error.message)


def sift(
    values: pa.Array,
    messages: np.ndarray,
    sieve: Sieve,
    decode: Callable[[pa.Array], pa.RecordBatch | None],
    judge: Callable[[bytes], Refusal | None],
    suspects: Callable[[pa.Array], np.ndarray],
) -> None:
    """Decode messages of one row each; what cannot be decoded is set aside.

    The whole batch is tried at once. If it holds a bad message, the suspects are
    judged, and the others tried again. If there still is one, they are tried in
    chunks, a chunk that fails in halves, and the last few are judged one by one.

    Args:
        values: binary.
        messages: The message of each value.
        sieve: Takes rows and refusals.
        decode: All or nothing: rows for the values, or None where one is bad.
        judge: The arbiter: why one message is bad, or None.
        suspects: Which values are likely to be bad, found by the batch.
    """
    rows = decode(values)
    if rows is not None:
        sieve.keep(rows, messages)
        return
    good = np.ones(len(values), bool)
    _judge(values, messages, suspects(values), sieve, judge, good)
    rows = None if good.all() else decode(values.filter(pa.array(good)))
    if rows is None:
        for at in _groups_with_bad(values, np.flatnonzero(good), decode):
            _judge(values, messages, at, sieve, judge, good)
        rows = decode(values.filter(pa.array(good)))
    if rows is None:  # what was judged good is bad to the library all the same
        _one_by_one(values, messages, np.flatnonzero(good), sieve, decode)
    else:
        sieve.keep(rows, messages[good])


def _one_by_one(
    values: pa.Array,
    messages: np.ndarray,
    which: np.ndarray,
    sieve: Sieve,
    decode: Callable[[pa.Array], pa.RecordBatch | None],
) -> None:
    for at in which.tolist():
        rows = decode(values[at : at + 1])
        if rows is None:
            why = "the library that reads whole columns refuses the message"
            sieve.refuse([messages[at]], (MALFORMED, why))
        else:
            sieve.keep(rows, messages[at : at + 1])


def _judge(
    values: pa.Array,
    messages: np.ndarray,
    which: np.ndarray,
    sieve: Sieve,
    judge: Callable[[bytes], Refusal | None],
    good: np.ndarray,
) -> None:
    for at in which.tolist():
        refusal = judge(values[at].as_py())
        if refusal is not None:
            good[at] = False
            sieve.refuse([messages[at]], refusal)


def _groups_with_bad(
    values: pa.Array,
    which: np.ndarray,
    decode: Callable[[pa.Array], pa.RecordBatch | None],
) -> Iterator[np.ndarray]:
    """Few messages at a time, a bad one among them."""
    stack = [which[at : at + _CHUNK] for at in range(0, len(which), _CHUNK)][::-1]
    while stack:
        group = stack.pop()
        if len(group) > _FEW:
            if decode(values.take(pa.array(group))) is None:
                middle = len(group) // 2
                stack += [group[middle:], group[:middle]]
        else:
            yield group


def varint(number: int) -> bytes:
    """A number without sign, seven bits a byte."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up; that is no `Exception`."""
    return type(error).__name__ == "PanicException"
