"""Converts columns of data files to those of their table, at every depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

import pyarrow as pa

from streamfactory.conversion.leaves import leaf_cast, leaf_refusal
from streamfactory.spi import SchemaMismatch, Unsupported
from streamfactory.spi.causes import first_line
from streamfactory.spi.computing import pc
from streamfactory.spi.ddl import type_text
from streamfactory.tables.matching import bare, bare_field, is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from streamfactory.tables.matching import Match

    Step = Callable[[pa.Array], pa.Array]
    """Converts an array."""

_types = pa.types


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
        self._match, self._path, self._file, self._table = match, path, file, table
        self._constants = constants
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
        others = {name.lower() for name in self._file.names}
        for field, (name, step) in zip(self._table, self._columns, strict=True):
            if name is not None:
                fits = self._is_alike(self._file.field(name), field)
            else:
                assert step is not None
                found[field.name] = step(pa.nulls(1))[0]
                # By its name, another column may be taken for it.
                given = self._match.of_table(field) in self._constants
                fits = given or field.name.lower() not in others
            if not fits:
                what = f"column {field.name!r} is stored otherwise in {self._path!r}"
                raise Unsupported(what)
        return found

    def _is_alike(self, have: pa.Field, want: pa.Field) -> bool:
        """Whether a field is another one by its name and its type, at every depth."""
        same = self._match.of_file(have) == self._match.of_table(want)
        if not same or have.name != want.name:
            return False
        return self._is_of_type(have.type, want.type)

    def _is_of_type(self, have: pa.DataType, want: pa.DataType) -> bool:
        """The same of a type, whatever elements of lists are called."""
        if _types.is_struct(have) and _types.is_struct(want):
            return have.num_fields == want.num_fields and all(
                map(self._is_alike, have, want)
            )
        if _types.is_map(have) and _types.is_map(want):
            keys = self._is_of_type(have.key_type, want.key_type)
            return keys and self._is_of_type(have.item_type, want.item_type)
        if is_list(have) and is_list(want):
            return self._is_of_type(have.value_type, want.value_type)
        return bool(have == want)

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
        kind, to = have.type, bare_field(want).type
        if isinstance(kind, pa.BaseExtensionType):
            step = self._plan(have.with_type(kind.storage_type), want, at)
            return lambda array: _apply(step, array.storage)
        if _types.is_struct(kind) and _types.is_struct(to):
            return self._struct(have, want, to, at)
        if _types.is_map(kind) and _types.is_map(to):
            return self._map(have, want, to, at)
        if _types.is_list(to) and (is_list(kind) or _types.is_fixed_size_list(kind)):
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
        kind, key = bare_field(field).type, self._match.of_table(field)
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


def _apply(step: Step | None, array: pa.Array) -> pa.Array:
    return array if step is None else step(array)


def _repeating(value: pa.Scalar) -> Step:
    if not value.is_valid:
        return lambda array: pa.nulls(len(array), value.type)
    return lambda array: pa.repeat(value, len(array))


def _used(array: pa.Array, *values: pa.Array) -> list[pa.Array]:
    """Offsets and used values of lists, which may be a slice."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    offsets = pc.subtract(offsets, offsets[0])
    return [offsets, *(part.slice(first, last - first) for part in values)]
