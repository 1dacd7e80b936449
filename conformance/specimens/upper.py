"""``upper``: lines of UTF-8 text become rows, in capitals.

A message has as many rows as it has lines that are not empty: none, one or many. Bytes
that are no UTF-8 make it bad. Whole columns are decoded at once; where one does not
decode, it is halved until what is bad stands alone, so that a bad message costs its
own half each time, not a loop over its neighbours.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import (
    BadMessage,
    DecodeContext,
    Decoded,
    Decoder,
    MessageDecoder,
    Option,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SCHEMA: Final = pa.schema([pa.field("text", pa.string(), nullable=False)])


class UpperDecoder(MessageDecoder):
    """Decodes lines of text."""

    def schema(self) -> pa.Schema:
        return _SCHEMA

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        errors: list[BadMessage] = []
        texts = pa.concat_arrays(_texts(values.cast(pa.binary()), 0, errors))
        lines = pc.split_pattern(texts, self.options["separator"])
        source = pc.list_parent_indices(lines).cast(pa.int32())
        found = pc.utf8_upper(lines.flatten())
        kept = pc.not_equal(found, "")
        rows = pa.RecordBatch.from_arrays([found.filter(kept)], schema=_SCHEMA)
        return Decoded(rows, source.filter(kept), errors)


def _texts(values: pa.Array, first: int, errors: list[BadMessage]) -> list[pa.Array]:
    """The values as text; a bad one is empty, which becomes no row."""
    try:
        return [values.cast(pa.string())]
    except pa.ArrowInvalid:
        if len(values) == 1:
            errors.append(BadMessage(first, "malformed", "the bytes are no UTF-8"))
            return [pa.array([""])]
        half = len(values) // 2
        return [
            *_texts(values[:half], first, errors),
            *_texts(values[half:], first + half, errors),
        ]


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="upper",
        doc="Lines of UTF-8 text, in capitals: a specimen.",
        spi_level=1,
        decoder=UpperDecoder,
        options=(Option("separator", "What stands between lines.", default="\n"),),
    )


class UpperHarness:
    """A number is a line of text."""

    def options(self) -> Mapping[str, str]:
        """Another separator than the default."""
        return {"separator": "|"}

    def message(self, numbers: Sequence[int]) -> bytes:
        """One message with a row for each number."""
        return "|".join(f"number {number}" for number in numbers).encode()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """What stands behind the word."""
        return [int(text.split()[1]) for text in rows.column("text").to_pylist()]

    def bad(self) -> Mapping[str, bytes]:
        """Bytes that are no UTF-8."""
        return {"a lone continuation byte": b"number \x80", "cut short": b"caf\xc3"}
