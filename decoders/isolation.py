"""Isolation of bad messages, for decoders of whole batches of single-row messages."""

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
"""Messages per attempt. More do not fit a processor's caches."""
_LOOKS: Final = (1, 64)
"""Leading fields to check: first one, which detects other formats, then more."""
_CHUNK: Final = 256
"""Messages per attempt, once removing the suspects was not enough."""
_FEW: Final = 16
"""Group size below which checking one by one is cheaper than halving."""

Refusal = tuple[str, str]
"""Why a message is bad: error code and reason."""

MALFORMED: Final = "malformed"
SCHEMA: Final = "schema"


def plain(values: pa.Array) -> pa.Array:
    """The values as ``binary``, the type that the libraries accept."""
    return values if values.type == pa.binary() else values.cast(pa.binary())


def places(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and length of each value, and the bytes of all values."""
    found = offsets_of(values).astype(np.int64)
    return found[:-1] - found[0], np.diff(found), data_of(values)


@dataclass(slots=True)
class DecodedParts:
    """Collects the decoded parts and the errors of a batch."""

    schema: pa.Schema
    parts: list[tuple[pa.RecordBatch, np.ndarray]] = field(default_factory=list)
    """Rows, and the message index of each."""
    errors: list[BadMessage] = field(default_factory=list)
    misfits: Misfits = field(default_factory=Misfits)

    def keep(self, rows: pa.RecordBatch, messages: np.ndarray) -> None:
        """Add rows; ``messages`` contains the message index of each."""
        if rows.num_rows:
            self.parts.append((rows, messages))

    def refuse(self, messages: Iterable[int], refusal: Refusal) -> None:
        """Add bad messages."""
        self.errors += [BadMessage(int(message), *refusal) for message in messages]

    def decoded(self, count: int) -> Decoded:
        """The result: rows in the order of their messages, and the errors."""
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


class RowFormat(Protocol):
    """Implemented by formats whose messages have one row each."""

    def batch(self, values: pa.Array) -> pa.RecordBatch | None:
        """Decode all values; None if one is bad."""

    def check(self, value: pa.Array) -> Refusal | None:
        """Why the only message of the array is bad, or None. This decides."""

    def suspects(self, values: pa.Array, fields: int) -> np.ndarray:
        """Indices of values that look bad within their first ``fields`` fields."""


def decode_isolating(
    values: pa.Array,
    messages: np.ndarray,
    result: DecodedParts,
    row_format: RowFormat,
    *,
    doubtful: bool,
) -> bool:
    """Decode messages of one row each and isolate the bad ones.

    A batch that fits the caches is decoded at once. If a message is bad, the suspects
    found by a short check are decoded one by one and the rest is tried again, then the
    same with a longer check. If it still fails, the rest is decoded in chunks, a
    failing chunk in halves, and the last few messages one by one. If the previous batch
    had bad messages, the short check comes before the first attempt.

    Args:
        values: binary.
        messages: Message index of each value.
        result: Receives rows and errors.
        row_format: The format.
        doubtful: Whether the previous messages contained a bad one.

    Returns:
        Whether the last batch contained a bad message.
    """
    for at in range(0, len(values), _AT_ONCE):
        end, errors_before = at + _AT_ONCE, len(result.errors)
        attempt = _Attempt(values[at:end], messages[at:end], result, row_format)
        attempt.run(doubtful=doubtful)
        doubtful = len(result.errors) > errors_before
    return doubtful


class _Attempt:
    """Decodes the messages of one attempt."""

    def __init__(
        self,
        values: pa.Array,
        messages: np.ndarray,
        result: DecodedParts,
        row_format: RowFormat,
    ) -> None:
        self._values, self._messages = values, messages
        self._result, self._format = result, row_format
        self._good = np.ones(len(values), bool)
        """Messages that were not found bad."""

    def run(self, *, doubtful: bool) -> None:
        tried, rows = not doubtful, None if doubtful else self._try()
        for fields in _LOOKS:
            if rows is not None:
                break
            found = self._format.suspects(self._values, fields)
            if self._check(found[self._good[found]]) or not tried:
                tried, rows = True, self._try()
        if rows is None:
            for few in self._groups_with_bad():
                self._check(few)
            rows = self._try()
        if rows is None:  # the library refuses a message that `check` accepts
            self._one_by_one()
        else:
            self._result.keep(rows, self._messages[self._good])

    def _try(self) -> pa.RecordBatch | None:
        if self._good.all():
            return self._format.batch(self._values)
        return self._format.batch(self._values.filter(pa.array(self._good)))

    def _check(self, which: np.ndarray) -> bool:
        """Check messages one by one; whether one of them is bad."""
        for at in which.tolist():
            refusal = self._format.check(self._values[at : at + 1])
            if refusal is not None:
                self._good[at] = False
                self._result.refuse([self._messages[at]], refusal)
        return not self._good[which].all()

    def _groups_with_bad(self) -> Iterator[np.ndarray]:
        """Small groups of messages that contain a bad one."""
        which = np.flatnonzero(self._good)
        stack = [which[at : at + _CHUNK] for at in range(0, len(which), _CHUNK)][::-1]
        while stack:
            group = stack.pop()
            if len(group) <= _FEW:
                yield group
            elif self._format.batch(self._values.take(pa.array(group))) is None:
                middle = len(group) // 2
                stack += [group[middle:], group[:middle]]

    def _one_by_one(self) -> None:
        for at in np.flatnonzero(self._good).tolist():
            rows = self._format.batch(self._values[at : at + 1])
            if rows is None:
                why = "the columnar decoder cannot decode the message"
                self._result.refuse([self._messages[at]], (MALFORMED, why))
            else:
                self._result.keep(rows, self._messages[at : at + 1])


def varint(number: int) -> bytes:
    """The varint encoding of an unsigned number."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
