"""Delta tables that map their columns, written as Delta's protocol has them.

No writer for Python maps columns.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = dict[str, Any]
TYPES: Final = {
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_ids = count(1)


@dataclass(frozen=True)
class Column:
    """A column, as the schema of a table has it."""

    name: str
    kind: Any
    id: int = field(default_factory=lambda: next(_ids))
    physical: str = field(default_factory=lambda: f"col-{uuid.uuid4()}")

    def stated(self) -> Row:
        metadata = {
            "delta.columnMapping.id": self.id,
            "delta.columnMapping.physicalName": self.physical,
        }
        kind = stated(self.kind)
        return {
            "name": self.name,
            "type": kind,
            "nullable": True,
            "metadata": metadata,
        }

    def stored(self, mode: str) -> pa.Field:
        # In the mode of ids, the names of files mean nothing.
        name = self.physical if mode == "name" else f"x{self.id}"
        metadata = {"PARQUET:field_id": str(self.id)} if mode == "id" else None
        return pa.field(name, stored(self.kind, mode), metadata=metadata)


@dataclass(frozen=True)
class Nested:
    """A struct, a list of structs, or a map of them."""

    form: str
    columns: tuple[Column, ...]


def stated(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    struct = {"type": "struct", "fields": [one.stated() for one in kind.columns]}
    if kind.form == "struct":
        return struct
    if kind.form == "list":
        return {"type": "array", "elementType": struct, "containsNull": True}
    return {
        "type": "map",
        "keyType": "string",
        "valueType": struct,
        "valueContainsNull": True,
    }


def stored(kind: Any, mode: str) -> pa.DataType:
    if isinstance(kind, str):
        return TYPES[kind]
    struct = pa.struct([one.stored(mode) for one in kind.columns])
    if kind.form == "struct":
        return struct
    return pa.list_(struct) if kind.form == "list" else pa.map_(pa.string(), struct)


def physical(value: Any, kind: Any, mode: str) -> Any:
    """A value with the names of files."""
    if value is None or isinstance(kind, str):
        return value
    if kind.form == "list":
        inner = Nested("struct", kind.columns)
        return [physical(one, inner, mode) for one in value]
    if kind.form == "map":
        inner = Nested("struct", kind.columns)
        return [(key, physical(one, inner, mode)) for key, one in value]
    return {
        one.stored(mode).name: physical(value.get(one.name), one.kind, mode)
        for one in kind.columns
    }


class Table:
    """A table that maps its columns."""

    def __init__(self, path: Path, mode: str) -> None:
        self.path, self.mode, self.version = path, mode, -1
        (path / "_delta_log").mkdir(parents=True)
        leaves = (("a", "integer"), ("b", "integer"), ("f", "float"))

        def inner() -> tuple[Column, ...]:
            return tuple(Column(name, kind) for name, kind in leaves)

        forms = {"s": "struct", "l": "list", "m": "map"}
        nested = [Column(name, Nested(form, inner())) for name, form in forms.items()]
        self.columns = Nested("struct", (*inner(), *nested, Column("p", "string")))
        features = ["columnMapping"]
        protocol: Row = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": features, "writerFeatures": features}
        self.commit({"protocol": protocol}, self.metadata())

    def change(self, changed: Callable[[list[Column]], None], depth: str) -> None:
        """Change the columns at a depth."""
        columns = list(self.columns.columns)
        if depth:
            at = next(i for i, one in enumerate(columns) if one.name == depth)
            inner = list(columns[at].kind.columns)
            changed(inner)
            kind = Nested(columns[at].kind.form, tuple(inner))
            columns[at] = replace(columns[at], kind=kind)
        else:
            changed(columns)
        self.columns = Nested("struct", tuple(columns))
        self.commit(self.metadata())

    def append(self, *rows: Row) -> None:
        fields = [
            one.stored(self.mode) for one in self.columns.columns if one.name != "p"
        ]
        table = pa.Table.from_pylist(
            [physical(row, self.columns, self.mode) for row in rows], pa.schema(fields)
        )
        name = f"{uuid.uuid4()}.parquet"
        pq.write_table(table, self.path / name)
        partition = self.columns.columns[-1].physical
        add = {
            "path": name,
            "size": 1,
            "modificationTime": self.version,
            "partitionValues": {partition: "x"},
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}),
        }
        self.commit({"add": add})

    def metadata(self) -> Row:
        body = {
            "id": "t",
            "schemaString": json.dumps(stated(self.columns)),
            "partitionColumns": ["p"],
            "configuration": {"delta.columnMapping.mode": self.mode},
            "format": {"provider": "parquet", "options": {}},
        }
        return {"metaData": body}

    def commit(self, *actions: Row) -> None:
        self.version += 1
        log = self.path / "_delta_log" / f"{self.version:020}.json"
        part = log.with_suffix(".part")
        part.write_text("".join(json.dumps(one) + "\n" for one in actions))
        part.rename(log)


def rename(columns: list[Column], **names: str) -> None:
    columns[:] = [replace(one, name=names.get(one.name, one.name)) for one in columns]
