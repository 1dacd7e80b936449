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

from streamfactory.engines.search.columns import has_items, octets_text
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
                _check_path(one, rest, schema.field(column).type, config.name)
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
            values = [self._within(one, rest, mask, column.type) for one in values]
        return pa.array([_text(value) for value in values], pa.string())

    def _within(
        self, value: Any, path: list[str], mask: Mask, kind: pa.DataType | None
    ) -> Any:
        """A value with a mask on a part of it; hidden where there cannot be one.

        Args:
            value: The value, as `plain_values` has it.
            path: The members that lead to the part.
            mask: The mask.
            kind: The type of the value; None for a part of JSON.
        """
        if value is None:
            return HIDDEN if mask.action == HIDE else None
        if not path:
            return self._replaced(value, mask)
        if kind is not None and pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind is None or _is_text(kind):
            return self._within_json(value, path, mask)
        if pa.types.is_map(kind) and isinstance(value, list):
            return [
                [key, self._within(inner, path[1:], mask, kind.item_type)]
                if str(key).casefold() == path[0].casefold()
                else [key, inner]
                for key, inner in value
            ]
        if pa.types.is_struct(kind) and isinstance(value, dict):
            return {
                name: self._within(inner, path[1:], mask, kind.field(name).type)
                if name.casefold() == path[0].casefold()
                else inner
                for name, inner in value.items()
            }
        if has_items(kind) and isinstance(value, list):
            return [self._within(one, path, mask, kind.value_type) for one in value]
        return HIDDEN

    def _within_json(self, value: Any, path: list[str], mask: Mask) -> Any:
        """As `_within`, for a text, or what is in one."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
                if isinstance(value, dict | list):
                    return _text(self._within_json(value, path, mask))
            except (ValueError, RecursionError):
                pass
            return HIDDEN
        if isinstance(value, list):
            return [self._within(one, path, mask, None) for one in value]
        if not isinstance(value, dict):
            return HIDDEN
        return {
            key: self._within(inner, path[1:], mask, None)
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
    raise _misfit(mask, "and the rows have no such column", stream)


def _check_path(mask: Mask, path: list[str], kind: pa.DataType, stream: str) -> None:
    """Refuse a path to a member that a struct cannot have.

    Raises:
        ConfigError: config; a misspelt mask must not show what it was meant for.
    """
    if path and mask.action == SHOW:
        raise _misfit(mask, "and only whole columns can be shown", stream)
    while path:
        if pa.types.is_map(kind):
            kind, path = kind.item_type, path[1:]
        elif pa.types.is_dictionary(kind) or has_items(kind):
            kind = kind.value_type
        elif pa.types.is_struct(kind):
            members = {field.name.casefold(): field.type for field in kind}
            if path[0].casefold() not in members:
                raise _misfit(mask, f"and no member is {path[0]!r}", stream)
            kind, path = members[path[0].casefold()], path[1:]
        else:
            return  # JSON in a text; of other types the whole value is hidden


def _misfit(mask: Mask, why: str, stream: str) -> ConfigError:
    msg = f"mask.columns names {mask.path!r}, {why}"
    return ConfigError(
        msg,
        stream=stream,
        remedy="name a column, or a member that there is, in mask.columns",
    )


def _is_text(kind: pa.DataType) -> bool:
    """Whether a value may be a text with JSON in it."""
    types = pa.types
    return any(
        check(kind)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_fixed_size_binary,
        )
    )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    # Halves of surrogate pairs, which JSON may have, are written as JSON escapes them.
    return text.encode("utf-8", "backslashreplace").decode()


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
            remedy="a user with the right `values` sees the reason",
        ) from None
