"""Rows for users who may not see their values: with the masks of the definition.

What a mask does not name is shown, but for what holds whole messages: keys, headers,
undecoded values, errors. Where a mask does not fit, nothing is shown.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.engines.search.columns import octets_text
from streamfactory.spi import (
    ConfigError,
    DecodeError,
    MisuseError,
    StreamError,
    TransientError,
    envelope_schema,
)
from streamfactory.ui.catalogue import catalogue
from streamfactory.wiring.core.values import plain_values
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.options.masks import CUT, HASH, HIDE, SHOW, Mask
from streamfactory.wiring.options.vocabulary import MASK_COLUMNS, MASK_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.engines.search.browsing import Message
    from streamfactory.wiring.reading.source import Source

HIDDEN: Final = "***"
_LEAST_KEY: Final = 16
_DIGITS: Final = 24
"""Of a hash: 96 bits."""
_WHOLE: Final = frozenset({"_key", "_headers", "_raw", "_error"})
"""Columns that have whole messages, or parts of them."""
_OF_MESSAGES: Final = frozenset({"key", "value", "headers"})
_OF_LETTERS: Final = _OF_MESSAGES | {"error_message"}


def has_masks(name: str) -> bool:
    """Whether the definition of a stream has masks; it may be invalid."""
    return any(
        prop.key.lower() == MASK_COLUMNS.key and prop.text.strip()
        for prop in catalogue().get(name).properties
    )


@final
class Masker:
    """Masks the rows of one source.

    Args:
        source: The source.
        raw: Whether its messages are read without the decoder of its definition.

    Raises:
        ConfigError: config; it has no masks, one names no column, or a hash no key.
    """

    def __init__(self, source: Source, *, raw: bool = False) -> None:
        config, schema = source.config, source.schema
        masks: Sequence[Mask] = config.get(MASK_COLUMNS.key) or ()
        if not masks:
            msg = "the stream has no masks, so its rows are not shown"
            raise ConfigError(msg, stream=config.name, remedy="set mask.columns")
        self._key = b""
        if any(one.action == HASH for one in masks):
            self._key = str(config.get(MASK_KEY.key) or "").encode()
            if len(self._key) < _LEAST_KEY:
                msg = f"mask.key has fewer than {_LEAST_KEY} characters"
                raise ConfigError(msg, stream=config.name, remedy="set a longer one")
        self._masks: dict[str, list[tuple[list[str], Mask]]] = {}
        if not raw:
            for one in masks:
                column, rest = _column_of(one, schema, config.name)
                self._masks.setdefault(column, []).append((rest, one))
        whole = set(_WHOLE)
        if schema.equals(envelope_schema()):
            whole |= _OF_MESSAGES
        if set(DEAD_LETTER_SCHEMA.names) <= set(schema.names):
            whole |= _OF_LETTERS
        for name in whole & set(schema.names) - set(self._masks):
            self._masks[name] = [([], Mask(name, HIDE))]
        self._shown = [
            name
            for name in schema.names
            if all(mask.action == SHOW for _, mask in self._masks.get(name, ()))
        ]

    def searched(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that a search may use: those without a mask."""
        return rows.select(self._shown)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns that a search may use, of a schema."""
        return pa.schema([schema.field(name) for name in self._shown])

    def message(self, one: Message) -> Message:
        """A message with masked rows."""
        return replace(one, rows=self.rows(one.rows))

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Masked rows; a column with a mask is text."""
        columns = {
            name: self._masked(name, rows.column(name)) for name in rows.schema.names
        }
        return pa.RecordBatch.from_arrays([*columns.values()], [*columns])

    def _masked(self, name: str, column: pa.Array) -> pa.Array:
        masks = [one for one in self._masks.get(name, ()) if one[1].action != SHOW]
        if not masks:
            return column
        if any(not rest and mask.action == HIDE for rest, mask in masks):
            return pa.array([HIDDEN] * len(column), pa.string())
        values = plain_values(column, octets_text)
        for rest, mask in masks:
            values = [self._within(value, rest, mask) for value in values]
        return pa.array([_text(value) for value in values], pa.string())

    def _within(self, value: Any, path: list[str], mask: Mask) -> Any:
        """A value with a mask on a part of it; hidden where there cannot be one."""
        if value is None:
            return HIDDEN if mask.action == HIDE else None
        if isinstance(value, list) and path:
            return [self._within(one, path, mask) for one in value]
        if not path:
            return self._replaced(value, mask)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return HIDDEN
            if not isinstance(value, dict | list):
                return HIDDEN
            return json.dumps(self._within(value, path, mask), ensure_ascii=False)
        if not isinstance(value, dict):
            return HIDDEN
        return {
            key: self._within(inner, path[1:], mask)
            if key.casefold() == path[0].casefold()
            else inner
            for key, inner in value.items()
        }

    def _replaced(self, value: Any, mask: Mask) -> str:
        text = _text(value) or ""
        if mask.action == HASH:
            content = text.encode("utf-8", "surrogatepass")
            return hmac.new(self._key, content, hashlib.sha256).hexdigest()[:_DIGITS]
        if mask.action == CUT and len(text) > mask.length:
            return f"{text[: mask.length]}…"
        return HIDDEN


def _column_of(mask: Mask, schema: pa.Schema, stream: str) -> tuple[str, list[str]]:
    """The column of a path, whose name may have dots, and the members within it."""
    parts = mask.path.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in schema.names:
            return name, parts[end:]
    msg = f"mask.columns names {mask.path!r}, and the rows have no such column"
    raise ConfigError(msg, stream=stream, remedy="mend mask.columns")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def hidden_errors(*, masked: bool) -> Iterator[None]:
    """Replace the texts of errors that may have values of rows in them."""
    try:
        yield
    except (ConfigError, MisuseError, TransientError):
        raise  # of the definition, the request or the connection: not of a row
    except StreamError as error:
        if not masked:
            raise
        msg = f"rows cannot be shown ({error.code}); the reason may have values in it"
        raise DecodeError(
            msg,
            stream=error.stream,
            partition=error.partition,
            offset=error.offset,
            remedy="ask somebody with the right values",
        ) from None
