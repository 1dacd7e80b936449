"""Inference of a schema from a sample of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import json

from streamfactory.decoders.columns.inferring import declarable
from streamfactory.decoders.columns.messages import BadMessages, as_texts
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.spi import SchemaUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

_FEW: Final = 100


def infer(
    values: pa.Array, decodes: Callable[[pa.Array, pa.Schema], bool]
) -> pa.Schema:
    """A schema that fits the good messages of a sample.

    Args:
        values: The sample.
        decodes: Whether messages decode with a schema.

    Raises:
        SchemaUnknown: config; no message is good, or their types differ.
    """
    findings = BadMessages()
    texts = as_texts(values, findings)
    findings.add(too_deep(texts), "too_deep", "")
    bad = {error.message for error in findings.errors}
    found = (
        _object(text)
        for index, text in enumerate(texts.to_pylist())
        if index not in bad
    )
    lines = [msgspec.json.encode(one) for one in found if one]
    if not lines:
        msg = f"none of {len(values)} messages is a JSON object with a field"
        raise SchemaUnknown(msg, remedy="declare the schema")
    whole = b"\n".join(lines)
    # One block: Arrow infers types from the first block only.
    options = json.ReadOptions(use_threads=False, block_size=len(whole) + 1)
    try:
        rows = json.read_json(pa.BufferReader(whole), options)
    except pa.ArrowInvalid:
        # Arrow's text may quote messages: do not chain it.
        msg = f"{len(lines)} messages have a field with values of different types"
        raise SchemaUnknown(msg, remedy="declare the schema") from None
    sample = pa.array(lines, pa.binary())

    def fits(tried: pa.Schema) -> bool:
        # Most types that do not fit fail at once: every bad value takes its time.
        return decodes(sample[:_FEW], tried) and decodes(sample, tried)

    return declarable(rows, fits)


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
