"""Matches columns of data files with those of their table, at every depth.

A format says what identifies a field: its id, its name, or a name that only files have.
Elements of lists, keys and values of maps are matched by their place.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import pyarrow as pa

from streamfactory.spi import FormatRefused, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    Key = Callable[[pa.Field], Hashable | None]

FIELD_ID: Final = b"PARQUET:field_id"
"""Key of a field's metadata: its id, as Arrow reads and writes it."""
_TABLE: Final = b"table"
_NEWEST: Final = b"newest"
"""Keys of the metadata of a schema that is dumped."""
_types = pa.types


def by_name(field: pa.Field) -> str:
    """What identifies a field by its name."""
    name: str = field.name
    return name


def by_id(field: pa.Field) -> int | None:
    """What identifies a field by its id; None where it has none."""
    text = (field.metadata or {}).get(FIELD_ID)
    return int(text) if text is not None and text.isdigit() else None


def check_ids(file: pa.Schema, path: str) -> None:
    """Refuse a file whose columns state no ids.

    Raises:
        FormatRefused: permanent.
    """
    for field in file:
        if by_id(field) is None:
            what = f"column {field.name!r} of {path!r} has no field id"
            raise FormatRefused(what, remedy="rewrite the data files of the table")


def check_fields(file: pa.Schema, table: pa.Schema, path: str) -> None:
    """Refuse a file with fields inside of columns that the table does not have there.

    For formats that match by name, and never drop a field: such values are no former
    ones of the table, and would be left out without a word. Columns beside those of the
    table are not looked at: formats keep facts of rows in them.

    Raises:
        SchemaMismatch: permanent.
    """
    names = set(table.names)
    for field in file:
        if field.name in names:
            _check_field(field.type, table.field(field.name).type, field.name, path)


def _check_field(have: pa.DataType, want: pa.DataType, at: str, path: str) -> None:
    if _types.is_struct(have) and _types.is_struct(want):
        for child in have:
            place, index = f"{at}.{child.name}", want.get_field_index(child.name)
            if index < 0:
                what = f"{path!r} has a field {place!r}, which the table does not have"
                remedy = "add it to the table, or rewrite the file without it"
                raise SchemaMismatch(what, remedy=remedy)
            _check_field(child.type, want.field(index).type, place, path)
    elif _types.is_map(have) and _types.is_map(want):
        _check_field(have.key_type, want.key_type, f"{at}.key", path)
        _check_field(have.item_type, want.item_type, f"{at}.value", path)
    elif is_list(have) and is_list(want):
        _check_field(have.value_type, want.value_type, f"{at}.element", path)


class Match(NamedTuple):
    """What identifies fields of data files and of the table."""

    of_file: Key = by_name
    of_table: Key = by_name
    defaults: Mapping[Any, pa.Scalar] = {}
    """By key of the table: values of fields that a file does not have; else null."""


def bare(schema: pa.Schema) -> pa.Schema:
    """A schema without metadata, at every depth."""
    return pa.schema([bare_field(field) for field in schema])


def bare_field(field: pa.Field) -> pa.Field:
    """A field without metadata, at every depth."""
    kind = field.type
    if _types.is_struct(kind):
        kind = pa.struct([bare_field(child) for child in kind])
    elif _types.is_map(kind):
        kind = pa.map_(bare_field(kind.key_field), bare_field(kind.item_field))
    elif _types.is_list(kind):
        kind = pa.list_(bare_field(kind.value_field))
    return pa.field(field.name, kind, field.nullable)


def is_list(kind: pa.DataType) -> bool:
    """Whether a type has elements of any number."""
    return bool(_types.is_list(kind) or _types.is_large_list(kind))


def merged(opened: pa.Schema, commit: pa.Schema, key: Key, *, later: bool) -> pa.Schema:
    """The columns of the rows of a commit, at every depth.

    Fields keep the names and places that they had when the stream was opened. Those
    that a later commit has added follow; where a name is taken by another field, the
    key is appended to it.

    Args:
        opened: Columns of the table as of when the stream was opened.
        commit: Columns as of the commit.
        key: What identifies a field.
        later: Whether the commit was made after the stream was opened. Types are its
            own then. Those of an earlier one are widened where nothing is lost: what
            else becomes of the values is up to the schema contract.
    """
    return pa.schema(_Merging(key, later=later).fields(list(opened), list(commit)))


@final
class _Merging:
    def __init__(self, key: Key, *, later: bool) -> None:
        self._key, self._later = key, later

    def fields(
        self, opened: Sequence[pa.Field], commit: Sequence[pa.Field]
    ) -> list[pa.Field]:
        known = {self._key(field): field for field in commit}
        found = []
        for field in opened:
            other = known.pop(self._key(field), None)
            found.append(field if other is None else self._joined(field, other))
        taken = {field.name for field in opened}
        for key, field in known.items() if self._later else ():
            name = f"{field.name} ({key})" if field.name in taken else field.name
            found.append(field.with_name(name))
        return found

    def _joined(self, field: pa.Field, commit: pa.Field) -> pa.Field:
        """A field with its name when the stream was opened."""
        have, to = commit.type, field.type
        if _types.is_struct(have) and _types.is_struct(to):
            kind = pa.struct(self.fields(list(to), list(have)))
        elif _types.is_map(have) and _types.is_map(to):
            key = self._joined(to.key_field, have.key_field)
            kind = pa.map_(key, self._joined(to.item_field, have.item_field))
        elif _types.is_list(have) and _types.is_list(to):
            kind = pa.list_(self._joined(to.value_field, have.value_field))
        else:
            kind = have if self._later or not _widens(have, to) else to
        nullable = field.nullable or commit.nullable
        return field.with_type(kind).with_nullable(nullable)


def _widens(have: pa.DataType, to: pa.DataType) -> bool:
    """Whether a table format widens a type to another."""
    if _types.is_signed_integer(have):
        digits = len(str(1 << (have.bit_width - 1)))
        if _types.is_decimal(to):
            return bool(to.precision - to.scale >= digits)
        if _types.is_float64(to):
            return bool(have.bit_width <= 32)
        return bool(_types.is_signed_integer(to) and to.bit_width > have.bit_width)
    if _types.is_decimal(have) and _types.is_decimal(to):
        whole = to.precision - to.scale >= have.precision - have.scale
        return bool(whole and to.scale >= have.scale)
    if _types.is_date32(have):
        return bool(_types.is_timestamp(to))
    return bool(_types.is_float32(have) and _types.is_float64(to))


@final
class StreamColumns:
    """The columns of a table's stream: those as of when it was opened. Thread-safe.

    Args:
        key: What identifies a field of the table's schema.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._lock = threading.Lock()
        self._opened: tuple[str, int, pa.Schema] | None = None

    def opened(
        self, identity: str, newest: int, load: Callable[[], pa.Schema]
    ) -> pa.Schema:
        """The columns as of the first call for a table.

        Args:
            identity: Of the table: another one at its place has other columns.
            newest: The ordinal of its last commit.
            load: Returns its columns now, with what identifies them.
        """
        with self._lock:
            if self._opened is None or self._opened[0] != identity:
                self._opened = (identity, newest, load())
            return self._opened[2]

    def dump(self) -> bytes:
        """The columns as of opening, with the table and its last commit."""
        with self._lock:
            assert self._opened is not None  # a stream has its schema first
            identity, newest, schema = self._opened
        stated = {_TABLE: identity.encode(), _NEWEST: str(newest).encode()}
        found: bytes = (
            schema.with_metadata({**(schema.metadata or {}), **stated})
            .serialize()
            .to_pybytes()
        )
        return found

    def load(self, dumped: bytes) -> None:
        """Have the columns that those of another process have dumped."""
        schema = pa.ipc.read_schema(pa.py_buffer(dumped))
        stated = dict(schema.metadata)
        identity, newest = stated.pop(_TABLE).decode(), int(stated.pop(_NEWEST))
        with self._lock:
            self._opened = (identity, newest, schema.with_metadata(stated or None))

    def wanted(
        self, ordinal: int, schema: pa.Schema, fields: Sequence[str] | None
    ) -> pa.Schema:
        """The columns of the rows of a commit.

        Args:
            ordinal: Of the commit. Later ones than the last as of opening may add
                columns, which the schema contract decides on.
            schema: Of the table as of the commit.
            fields: Names of the columns wanted; None means all.
        """
        with self._lock:
            assert self._opened is not None  # a reader compares identities first
            _, newest, opened = self._opened
        later = ordinal > newest
        opened = merged(opened, schema, self._key, later=later)
        if fields is None:
            return opened
        return pa.schema([field for field in opened if field.name in fields])
