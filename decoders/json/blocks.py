"""Arrow's half: its own JSON reader, for batches in which it means what msgspec means.

Where it refuses something, or accepts what msgspec refuses, it answers nothing, and
msgspec decodes. `docs/decoders.md` has the rule; what is asked here is why it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLOCK: Final = 1 << 20
_WORDS: Final = r"[:\[,\s-](?:NaN|Inf)"


@final
class Blocks:
    """Reads lines of JSON.

    Args:
        carriers: What stands for the columns in JSON.
        strict_fields: Whether a field that the schema lacks is an error.
        all_fields: Whether a field that a message lacks is an error.
    """

    def __init__(
        self, carriers: pa.Schema, *, strict_fields: bool, all_fields: bool
    ) -> None:
        self._carriers = carriers
        self._strict_fields = strict_fields
        self._all_fields = all_fields

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        *,
        strict_fields: bool,
        all_fields: bool,
        numeric_times: bool,
    ) -> Blocks | None:
        """A reader for a schema; None where Arrow reads one of its types otherwise."""
        kinds = [_carrier(field.type, numeric_times) for field in schema]
        if None in kinds:
            return None
        carriers = pa.schema(list(zip(schema.names, kinds, strict=True)))
        return cls(carriers, strict_fields=strict_fields, all_fields=all_fields)

    def read(self, lines: pa.Buffer, count: int) -> list[pa.Array] | None:
        """The columns; None where msgspec has to look.

        Args:
            lines: UTF-8; messages that begin and end with a brace, each with a line
                end behind, but for the last.
            count: How many.
        """
        columns = self._read(lines, "error")
        if columns is None and not self._strict_fields and not _has_words(lines):
            columns = self._read(lines, "ignore")
        if columns is None or len(columns[0]) != count:
            return None
        return columns if all(map(self._same, columns)) else None

    def _read(self, lines: pa.Buffer, unexpected: str) -> list[pa.Array] | None:
        try:
            table = json.read_json(
                pa.BufferReader(lines),
                read_options=json.ReadOptions(use_threads=False, block_size=_BLOCK),
                parse_options=json.ParseOptions(
                    explicit_schema=self._carriers, unexpected_field_behavior=unexpected
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [_one(column) for column in table.columns]

    def _same(self, column: pa.Array) -> bool:
        """Whether msgspec would have answered this column."""
        if self._all_fields and column.null_count:
            return False  # null, or missing?
        if pa.types.is_floating(column.type):
            # It reads NaN and too many digits for numbers, and -0 for -0.0.
            numbers = np.asarray(column.drop_null())
            return bool(
                np.isfinite(numbers).all()
                and not (np.signbit(numbers) & (numbers == 0)).any()
            )
        if pa.types.is_nested(column.type):
            parts = column.flatten()
            children = parts if pa.types.is_struct(column.type) else [parts]
            return all(map(self._same, children))
        return True


def _carrier(kind: pa.DataType, numeric_times: bool) -> pa.DataType | None:
    is_ = pa.types
    if is_.is_struct(kind):
        children = [_carrier(field.type, numeric_times) for field in kind]
        names = [field.name for field in kind]
        if None in children or len(set(names)) < len(names):
            return None
        return pa.struct(list(zip(names, children, strict=True)))
    if is_.is_list(kind) or is_.is_large_list(kind):
        item = _carrier(kind.value_type, numeric_times)
        return None if item is None else pa.list_(item)
    if is_.is_map(kind) or is_.is_decimal(kind) or kind == pa.uint64():
        return None
    if is_.is_boolean(kind):
        return kind
    if is_.is_integer(kind):
        return pa.int64()
    if is_.is_floating(kind):
        return pa.float64()
    return pa.int64() if is_.is_timestamp(kind) and numeric_times else pa.string()


def _has_words(lines: pa.Buffer) -> bool:
    """Whether there may be a NaN or an Infinity in a field that nobody reads."""
    whole = pa.Array.from_buffers(
        pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, len(lines)])), lines]
    )
    return bool(pc.match_substring_regex(whole, _WORDS)[0].as_py())


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunks: Sequence[pa.Array] = column.chunks
    return chunks[0] if len(chunks) == 1 else column.combine_chunks()
