"""What decoders of whole batches share: plain values, bad messages set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from streamfactory.decoders.columns.buffers import data_of, offsets_of
from streamfactory.decoders.columns.misfits import Misfits
from streamfactory.spi import BadMessage, Decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_AT_ONCE: Final = 16_384
"""Messages of one try: more do not fit a processor's caches."""
_LOOKS: Final = (1, 64)
"""Fields of a message that are looked at: what is of another format shows at once."""
_CHUNK: Final = 256
"""Messages of one try, once the suspects are known not to be all that is bad."""
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
    found = offsets_of(values).astype(np.int64)
    return found[:-1] - found[0], np.diff(found), data_of(values)


@dataclass(slots=True)
class Sieve:
    """What a batch became, in parts, until all is put together."""

    schema: pa.Schema
    parts: list[tuple[pa.RecordBatch, np.ndarray]] = field(default_factory=list)
    """Rows, and the message of each."""
    errors: list[BadMessage] = field(default_factory=list)
    misfits: Misfits = field(default_factory=Misfits)

    def keep(self, rows: pa.RecordBatch, messages: np.ndarray) -> None:
        """Take rows; ``messages`` has the message of each."""
        if rows.num_rows:
            self.parts.append((rows, messages))

    def refuse(self, messages: Iterable[int], refusal: Refusal) -> None:
        """Take bad messages."""
        self.errors += [BadMessage(int(message), *refusal) for message in messages]

    def decoded(self, count: int) -> Decoded:
        """The answer: rows in the order of their messages, and what is bad."""
        errors = sorted(self.errors, key=lambda error: error.message)
        if not self.parts:
            none = pa.RecordBatch.from_pylist([], self.schema)
            return Decoded(none, pa.array([], pa.int32()), errors)
        rows, messages = self.parts[0]
        if len(self.parts) > 1:
            rows = pa.concat_batches([rows for rows, _ in self.parts])
            messages = np.concatenate([messages for _, messages in self.parts])
        if (np.diff(messages) < 0).any():
            order = np.argsort(messages, kind="stable")
            rows, messages = rows.take(pa.array(order)), messages[order]
        reported = self.misfits.reported(messages)
        lookalikes = sorted(self.misfits.lookalikes)
        if not errors and np.array_equal(messages, np.arange(count)):
            return Decoded(rows, None, (), reported, lookalikes)
        source = pa.array(messages, pa.int32())
        return Decoded(rows, source, errors, reported, lookalikes)


class Kernel(Protocol):
    """What a format knows of messages of one row each."""

    def batch(self, values: pa.Array) -> pa.RecordBatch | None:
        """All or nothing: rows for the values, or None where one is bad."""

    def judge(self, value: pa.Array) -> Refusal | None:
        """The arbiter: why a message, the only one of the array, is bad; or None."""

    def suspects(self, values: pa.Array, fields: int) -> np.ndarray:
        """Which values are likely to be bad, by their first so many fields."""


def sift(
    values: pa.Array,
    messages: np.ndarray,
    sieve: Sieve,
    kernel: Kernel,
    *,
    doubtful: bool,
) -> bool:
    """Decode messages of one row each; what cannot be decoded is set aside.

    As many are tried at once as fit the caches. If one of them is bad, the suspects are
    judged, and the others tried again: those of a short look first, then of a long
    one. If there still is one, they are tried in chunks, a chunk that fails in halves,
    and the last few are judged one by one. Where the messages before held a bad one,
    the short look comes before the first try.

    Args:
        values: binary.
        messages: The message of each value.
        sieve: Takes rows and refusals.
        kernel: Of the format.
        doubtful: Whether the messages before these held a bad one.

    Returns:
        Whether the last of these held one.
    """
    for at in range(0, len(values), _AT_ONCE):
        end, told = at + _AT_ONCE, len(sieve.errors)
        _Some(values[at:end], messages[at:end], sieve, kernel).sift(doubtful=doubtful)
        doubtful = len(sieve.errors) > told
    return doubtful


class _Some:
    """The messages of one try."""

    def __init__(
        self, values: pa.Array, messages: np.ndarray, sieve: Sieve, kernel: Kernel
    ) -> None:
        self._values, self._messages = values, messages
        self._sieve, self._kernel = sieve, kernel
        self._good = np.ones(len(values), bool)
        """Those that were not judged bad."""

    def sift(self, *, doubtful: bool) -> None:
        tried, rows = not doubtful, None if doubtful else self._try()
        for fields in _LOOKS:
            if rows is not None:
                break
            found = self._kernel.suspects(self._values, fields)
            if self._judge(found[self._good[found]]) or not tried:
                tried, rows = True, self._try()
        if rows is None:
            for few in self._groups_with_bad():
                self._judge(few)
            rows = self._try()
        if rows is None:  # what was judged good is bad to the library all the same
            self._one_by_one()
        else:
            self._sieve.keep(rows, self._messages[self._good])

    def _try(self) -> pa.RecordBatch | None:
        if self._good.all():
            return self._kernel.batch(self._values)
        return self._kernel.batch(self._values.filter(pa.array(self._good)))

    def _judge(self, which: np.ndarray) -> bool:
        """Judge some; whether one of them is bad."""
        for at in which.tolist():
            refusal = self._kernel.judge(self._values[at : at + 1])
            if refusal is not None:
                self._good[at] = False
                self._sieve.refuse([self._messages[at]], refusal)
        return not self._good[which].all()

    def _groups_with_bad(self) -> Iterator[np.ndarray]:
        """Few messages at a time, a bad one among them."""
        which = np.flatnonzero(self._good)
        stack = [which[at : at + _CHUNK] for at in range(0, len(which), _CHUNK)][::-1]
        while stack:
            group = stack.pop()
            if len(group) <= _FEW:
                yield group
            elif self._kernel.batch(self._values.take(pa.array(group))) is None:
                middle = len(group) // 2
                stack += [group[middle:], group[:middle]]

    def _one_by_one(self) -> None:
        for at in np.flatnonzero(self._good).tolist():
            rows = self._kernel.batch(self._values[at : at + 1])
            if rows is None:
                why = "the library that reads whole columns refuses the message"
                self._sieve.refuse([self._messages[at]], (MALFORMED, why))
            else:
                self._sieve.keep(rows, self._messages[at : at + 1])


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
