"""The columns of the rows: those of the table, and those that describe the change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self, final

import pyarrow as pa

CHANGE: Final = "_change"
COMMIT_TIME: Final = "_commit_time"
OPERATION: Final = "_op"
TIME: Final = "_ts"
SOURCE: Final = "_source"
_TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
_DEFAULT: Final = (
    pa.field(CHANGE, pa.string(), nullable=False),
    pa.field(COMMIT_TIME, _TIME_TYPE),
)
_SPECIAL: Final = {
    CHANGE: pa.string(),
    COMMIT_TIME: _TIME_TYPE,
    OPERATION: pa.string(),
    TIME: _TIME_TYPE,
}


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """The schema of the rows, and its parts."""

    schema: pa.Schema
    """All columns, in their order. Those of the table may be null: events have
    incomplete rows of deletes and of the state before an update."""
    table: pa.Schema
    """Columns of the table, as declared."""
    source: pa.Schema
    """Fields of ``_source``; none if it is not declared."""

    @classmethod
    def of(cls, declared: pa.Schema) -> Self:
        """Of a declared schema, to which ``_change`` and ``_commit_time`` are added.

        They are added if ``_change`` is not declared.
        """
        fields = list(declared)
        if CHANGE not in declared.names:
            fields += [one for one in _DEFAULT if one.name not in declared.names]
        table = pa.schema([one for one in declared if not _describes(one.name)])
        source: pa.Schema = pa.schema([])
        if SOURCE in declared.names:
            source = pa.schema(list(declared.field(SOURCE).type))
        made = [
            field if field.name == CHANGE else field.with_nullable(True)
            for field in fields
        ]
        return cls(pa.schema(made), table, source)

    @staticmethod
    def problem(declared: pa.Schema) -> str | None:
        """Why a schema cannot be that of changes; None if it can."""
        for field in declared:
            wanted = _SPECIAL.get(field.name)
            if wanted is not None and field.type != wanted:
                return f"column {field.name!r} is not of type {wanted}"
            if field.name == SOURCE and not pa.types.is_struct(field.type):
                return f"column {SOURCE!r} is not a struct of fields of the source"
        if all(_describes(name) for name in declared.names):
            return "the schema has no column of the table"
        return None


def _describes(name: str) -> bool:
    return name in _SPECIAL or name == SOURCE
