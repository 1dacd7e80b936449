"""Matches columns of data files with those of their table, at every depth.

A format says what identifies a field: its id, its name, or a name that only files have.
Elements of lists, keys and values of maps are matched by their place.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, final

import pyarrow as pa

from streamfactory.conversion.leaves import leaf_cast, leaf_refusal
from streamfactory.spi import FormatRefused, SchemaMismatch, Unsupported
from streamfactory.spi.causes import first_line
from streamfactory.spi.computing import pc
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    Key = Callable[[pa.Field], Hashable | None]
    Step = Callable[[pa.Array], pa.Array]
    """Converts an array."""

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
    elif _is_list(have) and _is_list(want):
        _check_field(have.value_type, want.value_type, f"{at}.element", path)


class Match(NamedTuple):
    """What identifies fields of data files and of the table."""

    of_file: Key = by_name
    of_table: Key = by_name
    defaults: Mapping[Any, pa.Scalar] = {}
    """By key of the table: values of fields that a file does not have; else null."""


def bare(schema: pa.Schema) -> pa.Schema:
    """A schema without metadata, at every depth."""
    return pa.schema([_bare(field) for field in schema])


def _bare(field: pa.Field) -> pa.Field:
    kind = field.type
    if _types.is_struct(kind):
        kind = pa.struct([_bare(child) for child in kind])
    elif _types.is_map(kind):
        kind = pa.map_(_bare(kind.key_field), _bare(kind.item_field))
    elif _types.is_list(kind):
        kind = pa.list_(_bare(kind.value_field))
    return pa.field(field.name, kind, field.nullable)


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


@final
class FileColumns:
    """Converts rows of one data file to columns of its table.

    Values are converted by the rules of all who read (rule D4), but text is parsed.
    What the file does not have is null, or its default.

    Args:
        file: Schema of the file.
        table: Columns wanted.
        match: What identifies fields of both.
        constants: By key of the table: values of columns that the file may lack
            (partition columns).
        path: Of the file, for messages.

    Raises:
        SchemaMismatch: permanent; a column of the file cannot become the table's.
    """

    def __init__(
        self,
        file: pa.Schema,
        table: pa.Schema,
        match: Match,
        constants: Mapping[Hashable, pa.Scalar],
        path: str,
    ) -> None:
        self._match, self._path, self._file = match, path, file
        self._schema = bare(table)
        given = self._keys(list(file))
        self._columns: list[tuple[str | None, Step | None]] = []
        self.names: list[str] = []
        """Columns of the file that are read."""
        for field, wanted in zip(self._schema, table, strict=True):
            key = match.of_table(wanted)
            found, name, step = given.get(key), None, None
            if key in constants:
                step = _repeating(constants[key].cast(field.type))
            elif found is None:
                step = self._missing(wanted, given)
            else:
                name = file.field(found).name
                if file.get_field_index(name) < 0:
                    self._refuse_twice(name)
                self.names.append(name)
                step = self._plan(file.field(found), wanted, field.name)
            self._columns.append((name, step))

    def constants(self) -> dict[str, pa.Scalar]:
        """Values of the columns that the file does not have, by their names here.

        Raises:
            Unsupported: misuse; a program that reads the file by the names and types
                of the table would get other values.
        """
        found = {}
        for field, (name, step) in zip(self._schema, self._columns, strict=True):
            if name is None:
                assert step is not None
                found[field.name] = step(pa.nulls(1))[0]
            elif name != field.name or not self._alike(name, field):
                what = f"column {field.name!r} is stored otherwise in {self._path!r}"
                raise Unsupported(what)
        return found

    def _alike(self, name: str, field: pa.Field) -> bool:
        have, want = self._file.field(name).type, field.type
        return _is_alike(have, want)

    def convert(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns of the table.

        Args:
            rows: With the columns `names`, and maybe others.

        Raises:
            SchemaMismatch: permanent; a value does not fit.
        """
        # Of a column that is made, any array states the number of rows.
        count = pa.nulls(rows.num_rows)
        columns = []
        for field, (name, step) in zip(self._schema, self._columns, strict=True):
            column = count if name is None else rows.column(name)
            try:
                columns.append(column if step is None else step(column))
            except pa.ArrowException as error:
                self._refuse(field.name, column.type, field.type, error)
        # Files need not repeat what the table states of nulls: the framework checks.
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _keys(self, fields: Sequence[pa.Field]) -> dict[Hashable, int]:
        found: dict[Hashable, int] = {}
        for index, field in enumerate(fields):
            key = self._match.of_file(field)
            if key in found:
                self._refuse_twice(field.name)
            if key is not None:
                found[key] = index
        return found

    def _plan(self, have: pa.Field, want: pa.Field, at: str) -> Step | None:
        """How a field is converted; None if its arrays are as wanted."""
        kind, to = have.type, _bare(want).type
        if isinstance(kind, pa.BaseExtensionType):
            step = self._plan(have.with_type(kind.storage_type), want, at)
            return lambda array: _apply(step, array.storage)
        if _types.is_struct(kind) and _types.is_struct(to):
            return self._struct(have, want, to, at)
        if _types.is_map(kind) and _types.is_map(to):
            return self._map(have, want, to, at)
        if _types.is_list(to) and (_is_list(kind) or _types.is_fixed_size_list(kind)):
            return self._list(have, want, to, at)
        if kind == to:
            return None
        if _types.is_nested(kind) or _types.is_nested(to):
            self._refuse(at, kind, to)
        if _types.is_timestamp(kind) and _types.is_timestamp(to):
            return lambda array: array.cast(to)  # times of files are in UTC
        if _types.is_string(kind):
            # A file that a commit removes may be older than the type of its column.
            return lambda array: array.cast(to)
        if leaf_refusal(kind, to) is not None:
            self._refuse(at, kind, to)
        return leaf_cast(kind, to)

    def _struct(
        self, have: pa.Field, want: pa.Field, to: pa.DataType, at: str
    ) -> Step | None:
        given, table = list(have.type), list(want.type)
        keys = self._keys(given)
        found = [keys.get(self._match.of_table(field)) for field in table]
        steps = [
            self._missing(field, keys)
            if index is None
            else self._plan(given[index], field, f"{at}.{field.name}")
            for index, field in zip(found, table, strict=True)
        ]
        if have.type == to and found == [*range(len(given))] and not any(steps):
            return None

        def convert(array: pa.Array) -> pa.Array:
            mask = array.is_null() if array.null_count else None
            parts = array.flatten()  # what is stored below a null is no value
            children = [
                _apply(step, array if index is None else parts[index])
                for index, step in zip(found, steps, strict=True)
            ]
            if not children:
                bitmap = None if mask is None else array.is_valid().buffers()[1]
                return pa.StructArray.from_buffers(to, len(array), [bitmap])
            return pa.StructArray.from_arrays(children, fields=list(to), mask=mask)

        return convert

    def _list(
        self, have: pa.Field, want: pa.Field, to: pa.DataType, at: str
    ) -> Step | None:
        kind = have.type
        step = self._plan(kind.value_field, want.type.value_field, f"{at}.element")
        if kind == to and step is None:
            return None

        def convert(array: pa.Array) -> pa.Array:
            mask = array.is_null() if array.null_count else None
            if not _types.is_list(kind):  # its offsets are others, or none
                array = array.cast(pa.list_(kind.value_field))
            offsets, values = _used(array, array.values)
            values = _apply(step, values)
            return pa.ListArray.from_arrays(offsets, values, type=to, mask=mask)

        return convert

    def _map(
        self, have: pa.Field, want: pa.Field, to: pa.DataType, at: str
    ) -> Step | None:
        kind = have.type
        key = self._plan(kind.key_field, want.type.key_field, f"{at}.key")
        item = self._plan(kind.item_field, want.type.item_field, f"{at}.value")
        if kind == to and key is None and item is None:
            return None

        def convert(array: pa.Array) -> pa.Array:
            mask = array.is_null() if array.null_count else None
            offsets, keys, items = _used(array, array.keys, array.items)
            keys, items = _apply(key, keys), _apply(item, items)
            return pa.MapArray.from_arrays(offsets, keys, items, type=to, mask=mask)

        return convert

    def _missing(self, field: pa.Field, given: Mapping[Hashable, int]) -> Step:
        kind, key = _bare(field).type, self._match.of_table(field)
        if isinstance(key, str):
            self._check_case(key, given)
        default = self._match.defaults.get(key)
        return _repeating(
            pa.scalar(None, kind) if default is None else default.cast(kind)
        )

    def _check_case(self, name: str, given: Mapping[Hashable, int]) -> None:
        """Refuse a field that seems to be missing, because its name has other case."""
        for other in given:
            if isinstance(other, str) and other.lower() == name.lower():
                what = f"column {name!r} of the table is {other!r} in {self._path!r}"
                remedy = "rewrite the file: other readers ignore the case of names"
                raise SchemaMismatch(what, remedy=remedy)

    def _refuse_twice(self, name: str) -> NoReturn:
        what = f"{self._path!r} has several columns {name!r}"
        raise SchemaMismatch(what, remedy="rewrite the file")

    def _refuse(
        self,
        at: str,
        have: pa.DataType,
        want: pa.DataType,
        cause: Exception | None = None,
    ) -> NoReturn:
        kinds = f"{type_text(have)}, and {type_text(want)} in the table"
        what = f"column {at!r} of {self._path!r} is {kinds}"
        if cause is not None:
            what += f": {first_line(cause)}"
        raise SchemaMismatch(what) from cause


def _is_alike(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a type is another one, whatever elements of lists are called."""
    if _types.is_struct(have) and _types.is_struct(want):
        return [one.name for one in have] == [one.name for one in want] and all(
            _is_alike(one.type, other.type)
            for one, other in zip(have, want, strict=True)
        )
    if _types.is_map(have) and _types.is_map(want):
        return _is_alike(have.key_type, want.key_type) and _is_alike(
            have.item_type, want.item_type
        )
    if _types.is_list(have) and _types.is_list(want):
        return _is_alike(have.value_type, want.value_type)
    return bool(have == want)


def _apply(step: Step | None, array: pa.Array) -> pa.Array:
    return array if step is None else step(array)


def _repeating(value: pa.Scalar) -> Step:
    if not value.is_valid:
        return lambda array: pa.nulls(len(array), value.type)
    return lambda array: pa.repeat(value, len(array))


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind))


def _used(array: pa.Array, *values: pa.Array) -> list[pa.Array]:
    """Offsets and used values of lists, which may be a slice."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    offsets = pc.subtract(offsets, offsets[0])
    return [offsets, *(part.slice(first, last - first) for part in values)]
