"""From envelopes to rows: tombstones, bad messages, their budget (rules D1 to D4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import (
    BadMessage,
    ContractBroken,
    DecodeContext,
    Decoded,
    DecodeError,
    ErrorBudgetExceeded,
    StreamError,
    UntranslatedError,
)
from streamfactory.wiring.conform import conform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import MessageDecoder, Partition, StreamConfig

_RATIO_AFTER = 1000
"""Messages before a ratio means anything."""
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class DecodePolicy:
    """What becomes of bad messages."""

    on_error: str
    """``fail``, ``skip`` or ``null``."""
    max_errors: int | None
    max_ratio: float | None

    @classmethod
    def of(cls, config: StreamConfig) -> DecodePolicy:
        """As the options say."""
        return cls(
            config["decode.on.error"],
            config.get("max.errors"),
            config.get("max.error.ratio"),
        )


@final
class DecodeStage:
    """Decodes one partition's envelopes. One thread at a time.

    Args:
        decoder: The author's; closed with this stage.
        policy: What becomes of bad messages.
        partition: Named in errors.
        fields: Columns wanted; None means all.
    """

    def __init__(
        self,
        decoder: MessageDecoder,
        policy: DecodePolicy,
        partition: Partition,
        fields: Sequence[str] | None,
    ) -> None:
        self._decoder = decoder
        self._policy = policy
        self._partition = partition
        self._fields = fields
        # A tombstone is a row of nulls, whatever the decoder says (rule D2).
        self.schema = pa.schema([f.with_nullable(True) for f in decoder.schema()])
        self.bad = 0
        self._seen = 0
        self._first: list[str] = []

    def apply(
        self, envelopes: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Decode.

        Returns:
            The rows, and for each the index of its envelope; None where row i is of
            envelope i.

        Raises:
            DecodeError: decode; a message is bad and the policy is ``fail``.
            ErrorBudgetExceeded: decode.
            ContractBroken: plugin; the decoder's answer contradicts itself.
        """
        values = envelopes.column("value")
        alive = None
        if values.null_count:
            alive = pc.indices_nonzero(values.is_valid()).cast(pa.int32())
            values = values.take(alive)
        headers = envelopes.column("headers")
        context = DecodeContext(
            self._partition,
            self._fields,
            headers if alive is None else headers.take(alive),
        )
        decoded = self._decode(values, context)
        self._seen += envelopes.num_rows
        if alive is None and not decoded.errors:
            return decoded.rows, decoded.source
        return self._mend(envelopes, decoded, alive)

    def close(self) -> None:
        """Close the decoder."""
        self._decoder.close()

    def _decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        try:
            decoded = self._decoder.decode(values, context)
        except StreamError:
            raise  # about what the decoder needs (a registry), not about the data
        except Exception as error:
            what = f"the decoder raised {type(error).__name__}, which rule D1 forbids"
            broken = UntranslatedError(what, partition=self._partition)
            # Its text may hold what nobody should log: it stays in this process.
            broken.cause_text = type(error).__name__
            raise broken from error
        contradiction = _contradiction(decoded, len(values))
        if contradiction is not None:
            msg = f"rule D1: {contradiction}"
            raise ContractBroken(msg, partition=self._partition)
        return decoded

    def _mend(
        self, envelopes: pa.RecordBatch, decoded: Decoded, alive: pa.Array | None
    ) -> tuple[pa.RecordBatch, pa.Array]:
        """Put tombstones, and nulls for bad messages, among the rows, in order."""
        source = decoded.source
        if source is None:
            source = pa.arange(0, decoded.rows.num_rows).cast(pa.int32())
        if alive is not None:
            source = alive.take(source)
        bad = [
            error.message if alive is None else alive[error.message].as_py()
            for error in decoded.errors
        ]
        if bad:
            self._judge(envelopes, decoded.errors, bad)
        nulls = bad if self._policy.on_error == "null" else []
        if alive is not None:
            dead = pc.indices_nonzero(envelopes.column("value").is_null())
            nulls = nulls + dead.to_pylist()
        rows = conform(decoded.rows, self.schema)
        if not nulls:
            return rows, source
        empty = [pa.nulls(len(nulls), field.type) for field in self.schema]
        blank = pa.RecordBatch.from_arrays(empty, schema=self.schema)
        source = pa.concat_arrays([source, pa.array(nulls, pa.int32())])
        order = pc.array_sort_indices(source)  # stable: rows of a message stay in order
        return pa.concat_batches([rows, blank]).take(order), source.take(order)

    def _judge(
        self, envelopes: pa.RecordBatch, errors: Sequence[BadMessage], bad: list[int]
    ) -> None:
        offsets = envelopes.column("offset")
        where = {"partition": self._partition, "offset": offsets[bad[0]].as_py()}
        if self._policy.on_error == "fail":
            first = errors[0]
            msg = f"a message cannot be decoded: {first.code}: {first.what}"
            raise DecodeError(msg, **where)
        self.bad += len(bad)
        for error, index in zip(errors, bad, strict=True):
            if len(self._first) == _SHOWN:
                break
            offset = offsets[index].as_py()
            self._first.append(f"offset {offset}: {error.code}: {error.what}")
        limit, ratio = self._policy.max_errors, self._policy.max_ratio
        over = limit is not None and self.bad > limit
        if ratio is not None and self._seen >= _RATIO_AFTER:
            over = over or self.bad > ratio * self._seen
        if over:
            msg = (
                f"{self.bad} of {self._seen} messages are bad: {'; '.join(self._first)}"
            )
            raise ErrorBudgetExceeded(msg, **where)


def _contradiction(decoded: Decoded, messages: int) -> str | None:
    """What does not fit in a decoder's answer; None where all does."""
    rows, source = decoded.rows.num_rows, decoded.source
    bad = [error.message for error in decoded.errors]
    if source is None:
        if rows != messages or bad:
            return f"{rows} rows do not match {messages} messages, {len(bad)} bad"
        return None
    if len(source) != rows or source.null_count:
        return f"{rows} rows have {len(source)} sources, {source.null_count} null"
    steps = np.diff(source.to_numpy(), prepend=0, append=messages - 1)
    if rows and (steps < 0).any():
        return f"the sources do not rise from 0 to {messages - 1}"
    if len(set(bad)) < len(bad) or not all(0 <= index < messages for index in bad):
        return f"the bad messages are not different ones of {messages}"
    if bad and pc.any(pc.is_in(source, pa.array(bad, source.type))).as_py():
        return "a message is bad and has rows"
    return None
