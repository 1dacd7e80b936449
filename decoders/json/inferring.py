"""Inference of a schema from a sample of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from streamfactory.decoders.columns.inferring import declarable
from streamfactory.decoders.columns.messages import BadMessages, as_texts, joined
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.spi import SchemaUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

_FEW: Final = 100
_LONG: Final = r'(?s)^(?:[^"]|"(?:[^"\\]|\\.)*")*[:,\[]\s*-?[1-9][0-9]{38,}\s*[,}\]]'
"""An integer of more than 38 digits; not in text, which is skipped as a whole."""
_OBJECTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def infer(
    values: pa.Array, decodes: Callable[[pa.Array, pa.Schema], bool]
) -> pa.Schema:
    """A schema that fits the good messages of a sample.

    Args:
        values: The sample.
        decodes: Whether messages decode with a schema.

    Raises:
        SchemaUnknown: config; no message is good, their types differ, or an integer has
            more digits than a type keeps.
    """
    findings = BadMessages()
    texts = as_texts(values, findings)
    findings.add(too_deep(texts), "too_deep", "")
    rows = None if findings.errors or not _are_objects(texts) else _read(texts)
    sample = values
    if rows is None:
        bad = {error.message for error in findings.errors}
        sample = _good(texts, bad)
        if not len(sample):
            msg = f"none of {len(values)} messages is a JSON object with a field, or "
            msg += "they have numbers beyond the largest double"
            raise SchemaUnknown(msg, remedy="declare the schema")
        rows = _read(sample)
    if rows is None:
        # Arrow's text may quote messages: do not chain it.
        msg = f"{len(sample)} messages have a field with values of different types"
        raise SchemaUnknown(msg, remedy="declare the schema")

    if pc.any(pc.match_substring_regex(as_texts(sample, findings), _LONG)).as_py():
        msg = "a field has integers of more than 38 digits, which no type keeps"
        remedy = "declare the schema: a double keeps 15 digits"
        raise SchemaUnknown(msg, remedy=remedy)

    def fits(tried: pa.Schema) -> bool:
        # Most types that do not fit fail at once: every bad value takes its time.
        return decodes(sample[:_FEW], tried) and decodes(sample, tried)

    return declarable(rows, fits)


def _are_objects(texts: pa.StringArray) -> bool:
    """Whether every message is one object: Arrow's reader crashes on others (26)."""
    try:
        found = _OBJECTS.decode_lines(joined(texts, "\n"))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return len(found) == len(texts) and all(found)


def _read(texts: pa.StringArray) -> pa.Table | None:
    """Read objects by Arrow's types; None if it does not read a row of each."""
    whole = joined(texts, "\n")
    # One block: Arrow infers types from the first block only.
    options = json.ReadOptions(use_threads=False, block_size=len(whole) + 1)
    try:
        rows = json.read_json(pa.BufferReader(whole), options)
    except pa.ArrowInvalid:
        return None
    return rows if rows.num_rows == len(texts) and rows.num_columns else None


def _good(texts: pa.StringArray, bad: set[int]) -> pa.StringArray:
    """Return the messages that are objects with a field."""
    found = (
        _object(text)
        for index, text in enumerate(texts.to_pylist())
        if index not in bad
    )
    return pa.array([msgspec.json.encode(one).decode() for one in found if one])


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
