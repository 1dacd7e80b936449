"""Schemas in messages: Arrow IPC, base64."""

from __future__ import annotations

import base64

import pyarrow as pa

from streamfactory.spi import FormatRefused


def encode_schema(schema: pa.Schema) -> str:
    """The text of a schema."""
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    """The schema of a text.

    Raises:
        FormatRefused: permanent; it is none.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, OSError, EOFError, pa.ArrowException) as error:
        msg = f"expected a schema: {error}"
        remedy = "write it as an Arrow IPC schema message in base64"
        raise FormatRefused(msg, remedy=remedy) from error
