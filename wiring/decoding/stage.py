"""Decodes envelopes to rows: tombstones, bad messages, budgets (rules D1 to D4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa

from streamfactory.spi import (
    DecodeContext,
    DecodeError,
)
from streamfactory.spi.computing import pc
from streamfactory.wiring.decoding.budgets import Budget
from streamfactory.wiring.decoding.calling import call_decoder
from streamfactory.wiring.decoding.contracts import Contract, agreed, refused
from streamfactory.wiring.decoding.deadletters import (
    EVIDENCE,
    Bad,
    Origin,
    evidence_of,
    letters_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import MessageDecoder, Partition, StreamConfig
    from streamfactory.wiring.decoding.keys import KeyStage
    from streamfactory.wiring.decoding.payloads import Payloads


@dataclass(frozen=True, slots=True)
class DecodePolicy:
    """How bad messages, and rows that do not fit, are handled."""

    on_error: str
    """``fail``, ``skip``, ``null`` or ``dead-letter``."""
    max_errors: int | None
    max_ratio: float | None
    contract: str | None = None
    """``evolve``, ``freeze``, ``discard_row`` or ``discard_value``."""
    aside: Origin | None = None
    """Under ``dead-letter``: the origin of the dead letters, which are collected apart
    from the rows; None if bad messages are rows with evidence."""

    @classmethod
    def of(
        cls, config: StreamConfig, aside: Origin | None, *, drop: bool = False
    ) -> DecodePolicy:
        """Create the policy from the options.

        Args:
            config: Configuration of the stream.
            aside: Origin of dead letters that are collected apart from the rows.
            drop: Whether dead letters are dropped, because nothing writes them.
        """
        on_error = config["decode.on.error"]
        return cls(
            "skip" if drop and on_error == "dead-letter" else on_error,
            config.get("max.errors"),
            config.get("max.error.ratio"),
            config.get("schema.contract"),
            aside,
        )

    @property
    def evidence(self) -> bool:
        """Whether bad messages become rows with ``_error`` and ``_raw``."""
        return self.on_error == "dead-letter" and self.aside is None


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of decoding the envelopes of one fetch."""

    rows: pa.RecordBatch
    """Rows of the stage's schema, with `EVIDENCE` if the policy has it."""
    source: pa.Int32Array | None
    """For each row the index of its envelope; None if row i belongs to envelope i."""
    keys: pa.Array | None = None
    """The decoded key of each envelope, if keys are decoded to ``_key``."""
    letters: pa.RecordBatch | None = None
    """Dead letters of the bad messages, if they are collected apart from the rows."""
    bad: Sequence[Bad] = ()
    """Sorts by message, then by row within it."""


@final
class DecodeStage:
    """Decodes one partition's envelopes. Not thread-safe.

    Args:
        decoder: The decoder; closed with this stage.
        policy: How bad messages are handled.
        partition: Partition, for errors.
        fields: Columns to return; None means all.
        declared: The schema by the option ``schema``, if set.
        keys: Decodes keys; closed with this stage.
        payloads: Decompresses payloads.
    """

    def __init__(
        self,
        decoder: MessageDecoder,
        policy: DecodePolicy,
        partition: Partition,
        fields: Sequence[str] | None,
        *,
        declared: pa.Schema | None = None,
        keys: KeyStage | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        self._decoder = decoder
        self._policy = policy
        self._partition = partition
        self._payloads = payloads
        self.keys = keys
        found = decoder.schema()
        values = agreed(declared, found, policy.contract)
        self.schema = values if keys is None else keys.joined(values)
        """The schema of all columns, selected or not; every one nullable."""
        if fields is not None and keys is not None and keys.columns:
            # A batch needs a column of the values to have a number of rows.
            fields = [name for name in fields if name in values.names] or None
        self._fields = fields
        promised = found if declared is None else declared
        required = [one.name for one in promised if not one.nullable]
        self._contract = Contract(values, policy.contract, fields, required)
        self._budget = Budget(policy.max_errors, policy.max_ratio)
        self.bad = 0
        """Number of bad messages and discarded rows so far."""

    def begin_range(self) -> None:
        """Begin a planned range: reset the error budget."""
        self._budget.begin()

    def apply(
        self, envelopes: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.Int32Array | None]:
        """Return the rows of `decode`, and the index of each row's envelope."""
        staged = self.decode(envelopes)
        return staged.rows, staged.source

    def decode(self, envelopes: pa.RecordBatch) -> Staged:
        """Decode envelopes.

        Raises:
            DecodeError: decode; a message is bad and the policy is ``fail``.
            ErrorBudgetExceeded: decode.
            SchemaMismatch: permanent; rows do not fit, and the contract is ``freeze``
                or ``evolve``.
            ContractBroken: plugin; the decoder's result is inconsistent.
        """
        staged = self._decode(envelopes)
        if self.keys is None or staged.keys is None or not self.keys.columns:
            return staged
        rows = self.keys.with_columns(staged.rows, staged.keys, staged.source)
        return replace(staged, rows=rows, keys=None)

    def _decode(self, envelopes: pa.RecordBatch) -> Staged:
        values, keys, bad = self._opened(envelopes)
        alive = _alive(values, bad)
        headers = envelopes.column("headers")
        context = DecodeContext(
            self._partition,
            self._fields,
            headers if alive is None else headers.take(alive),
            undeclared=self._contract.undeclared,
            salvage=self._contract.salvages,
        )
        given = values if alive is None else values.take(alive)
        decoded = call_decoder(self._decoder, given, context)
        self._budget.saw(envelopes.num_rows)
        self._contract.warn_of_case(decoded.lookalikes)
        if decoded.misfits and self._contract.refuses:
            decoded = refused(decoded)
        rows, wrong = self._contract.fit(decoded.rows, decoded.misfits)
        source = decoded.source
        if alive is None and not (decoded.errors or wrong or self._policy.evidence):
            return Staged(rows, source, keys)
        if source is None and (alive is not None or wrong):
            source = pa.arange(0, rows.num_rows).cast(pa.int32())
        if alive is not None:
            source = alive.take(source)
        for error in decoded.errors:
            index = error.message if alive is None else alive[error.message].as_py()
            bad.append(Bad(index, None, error.code, error.what))
        if wrong:
            assert source is not None
            bad += _discarded(wrong, source)
            mask = np.ones(rows.num_rows, bool)
            mask[list(wrong)] = False
            rows, source = rows.filter(pa.array(mask)), source.filter(pa.array(mask))
        bad.sort(key=lambda one: (one.index, one.ordinal or 0))
        letters = self._judge(envelopes, bad) if bad else None
        return self._composed(envelopes, rows, source, bad, keys, letters)

    def _opened(
        self, envelopes: pa.RecordBatch
    ) -> tuple[pa.Array, pa.Array | None, list[Bad]]:
        """Return decompressed payloads and keys."""
        values, keys = envelopes.column("value"), None
        bad: dict[int, Bad] = {}
        if self._payloads is not None:
            values, found = self._payloads.open(values)
            bad |= {one.index: one for one in found}
        if self.keys is not None:
            context = DecodeContext(self._partition, None, envelopes.column("headers"))
            keys, found = self.keys.decode(envelopes.column("key"), context)
            bad |= {one.index: one for one in found if one.index not in bad}
        return values, keys, list(bad.values())

    def _judge(
        self, envelopes: pa.RecordBatch, bad: Sequence[Bad]
    ) -> pa.RecordBatch | None:
        """Count bad messages; return their dead letters if these are collected."""
        policy, offsets = self._policy, envelopes.column("offset")
        first = next((one for one in bad if one.ordinal is None), None)
        if policy.on_error == "fail" and first is not None:
            msg = f"a message cannot be decoded: {first.code}: {first.what}"
            offset = offsets[first.index].as_py()
            raise DecodeError(msg, partition=self._partition, offset=offset)
        self.bad += len(bad)
        where: dict[str, Any] = {"partition": self._partition}
        where["offset"] = offsets[bad[0].index].as_py()
        causes = [
            (offsets[one.index].as_py(), f"{one.code}: {one.what}") for one in bad[:10]
        ]
        causes += [(0, "")] * (len(bad) - len(causes))  # counted, never shown
        self._budget.spend(causes, where)
        if policy.on_error != "dead-letter" or policy.aside is None:
            return None
        return letters_of(envelopes, bad, policy.aside)

    def _composed(
        self,
        envelopes: pa.RecordBatch,
        rows: pa.RecordBatch,
        source: pa.Array | None,
        bad: Sequence[Bad],
        keys: pa.Array | None,
        letters: pa.RecordBatch | None,
    ) -> Staged:
        """Insert the rows of tombstones and bad messages among the rows, in order."""
        values = envelopes.column("value")
        shown: list[Bad] = []
        if self._policy.evidence:
            shown = list(bad)
        elif self._policy.on_error == "null":
            shown = [one for one in bad if one.ordinal is None]
        dead: list[int] = []
        if values.null_count:
            ill = {one.index for one in bad}
            found = pc.indices_nonzero(values.is_null()).to_pylist()
            dead = [index for index in found if index not in ill]
        places: np.ndarray | None = None
        extra: list[tuple[int, int | None]]
        extra = [(one.index, at) for at, one in enumerate(shown)]
        extra += [(index, None) for index in dead]
        if extra:
            assert source is not None
            extra.sort(key=lambda pair: pair[0])
            rows, source, places = _inserted(rows, source, [at for at, _ in extra])
        if self._policy.evidence:
            columns = [pa.nulls(rows.num_rows, one.type) for one in EVIDENCE]
            if shown:
                which = np.full(rows.num_rows, -1)
                which[places] = [-1 if at is None else at for _, at in extra]
                index = pa.array(which, mask=which < 0)
                columns = [one.take(index) for one in evidence_of(shown, values)]
            schema = pa.schema([*rows.schema, *EVIDENCE])
            rows = pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=schema)
        return Staged(rows, source, keys, letters, bad)

    def close(self) -> None:
        """Close the decoders."""
        try:
            self._decoder.close()
        finally:
            if self.keys is not None:
                self.keys.close()


def _inserted(
    rows: pa.RecordBatch, source: pa.Array, messages: Sequence[int]
) -> tuple[pa.RecordBatch, pa.Array, np.ndarray]:
    """Insert rows of nulls after the rows of their messages.

    Args:
        rows: The rows of other messages, in order.
        source: The message of each.
        messages: The message of each new row, in order.

    Returns:
        All rows, the message of each, and the indices of the new ones.
    """
    found = source.to_numpy()
    at = np.searchsorted(found, messages, side="right")
    index = np.insert(np.arange(len(found)), at, -1)
    merged = np.insert(found, at, messages)
    wanted = pa.array(index, mask=index < 0)
    return rows.take(wanted), pa.array(merged, pa.int32()), np.flatnonzero(index < 0)


def _alive(values: pa.Array, bad: Sequence[Bad]) -> pa.Array | None:
    """Return the indices of the messages to decode; None for all."""
    if not values.null_count and not bad:
        return None
    mask = values.is_valid().to_numpy(zero_copy_only=False)
    if bad:
        mask = mask.copy()
        mask[[one.index for one in bad]] = False
    return pa.array(np.flatnonzero(mask), pa.int32())


def _discarded(wrong: dict[int, str], source: pa.Array) -> list[Bad]:
    """Return the misfits of the contract, by message and row within it."""
    indices = source.to_numpy()
    firsts = np.searchsorted(indices, indices[list(wrong)])
    return [
        Bad(int(indices[row]), row - int(first), "contract", what)
        for (row, what), first in zip(wrong.items(), firsts, strict=True)
    ]
