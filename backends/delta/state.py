"""What the log of a Delta table states of its rows: columns, partitions, the feed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.backends.delta.actions import damaged
from streamfactory.conversion.decimals import decimals_of_texts
from streamfactory.spi import FormatRefused
from streamfactory.spi.computing import pc
from streamfactory.tables import FIELD_ID, Match, by_id, by_name

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from streamfactory.backends.delta.actions import Metadata

FEED: Final = "delta.enableChangeDataFeed"
_MODE: Final = "delta.columnMapping.mode"
_PHYSICAL: Final = b"delta.columnMapping.physicalName"
_NUMBER: Final = "delta.columnMapping.id"
_PRIMITIVES: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
}
_DECIMAL: Final = re.compile(r"decimal\( ?(\d{1,2}) ?, ?(\d{1,2}) ?\)")
_DEEPEST: Final = 100


def by_physical_name(field: pa.Field) -> str:
    """What identifies a column of the table: the name that data files have."""
    found = (field.metadata or {}).get(_PHYSICAL)
    return by_name(field) if found is None else found.decode()


_MATCHES: Final = {
    "none": Match(),
    "name": Match(by_name, by_physical_name),
    "id": Match(by_id, by_id),
}
"""How columns of data files are those of the table, by the mode of its mapping."""


class State:
    """The metadata of a table as of a version.

    Args:
        version: For messages.
        metadata: As the log states it.

    Raises:
        CorruptData: data_loss; it is damaged.
        FormatRefused: permanent; a type, or the mode of mapping, is unsupported.
    """

    def __init__(self, version: int, metadata: Metadata) -> None:
        self.id = metadata.id
        configuration = metadata.configuration
        mode = configuration.get(_MODE, "none")
        if mode not in _MATCHES:
            what = f"the table has {_MODE}={mode[:40]}, which is unsupported"
            raise FormatRefused(what)
        self.match = _MATCHES[mode]
        self.needs_ids = mode == "id"
        """Whether data files have to state field ids."""
        self.drops = mode != "none"
        """Whether fields can be dropped: data files may have former ones."""
        self.feed = configuration.get(FEED, "false").lower() == "true"
        self.schema = _schema(version, metadata.schema, mapped=mode != "none")
        """With what identifies columns."""
        fields = {field.name: field for field in self.schema}
        unknown = [name for name in metadata.partitioned if name not in fields]
        if unknown:
            what = f"partition column {unknown[0]!r} is not in its schema"
            raise damaged(version, what)
        self._partitioned = [fields[name] for name in metadata.partitioned]

    def constants(
        self, version: int, values: Mapping[str, str | None]
    ) -> dict[Hashable, pa.Scalar]:
        """Values of the partition columns of a file, by what identifies them.

        Args:
            version: Of the commit, for messages.
            values: As the log has them.

        Raises:
            CorruptData: data_loss; a value is not of the type of its column.
        """
        found = {}
        for field in self._partitioned:
            value, kind = values.get(by_physical_name(field)), field.type
            try:
                found[self.match.of_table(field)] = _scalar(value, kind)
            except (pa.ArrowException, TypeError, ValueError) as error:
                what = f"partition column {field.name!r} has the value "
                what += f"{str(value)[:100]!r}, which is no {kind}"
                raise damaged(version, what) from error
        return found


def schema_of(text: str) -> pa.Schema:
    """The columns of a schema in JSON, of a table without column mapping."""
    return _schema(0, text, mapped=False)


def _schema(version: int, text: str, *, mapped: bool) -> pa.Schema:
    try:
        found = _type(json.loads(text), 0, mapped=mapped)
        if not pa.types.is_struct(found):
            what = "it is no struct"
            raise TypeError(what)
    except FormatRefused:
        raise
    except (
        pa.ArrowException,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        what = f"its schema cannot be parsed: {str(error)[:200]}"
        raise damaged(version, what) from error
    fields = list(found)
    if len({field.name for field in fields}) < len(fields):
        raise damaged(version, "its schema has two columns of the same name")
    return pa.schema(fields)


def _type(found: Any, depth: int, *, mapped: bool) -> pa.DataType:
    if depth > _DEEPEST:
        what = f"it is nested deeper than {_DEEPEST}"
        raise ValueError(what)
    if isinstance(found, str):
        return _primitive(found)

    def inner(name: str) -> pa.DataType:
        return _type(found[name], depth + 1, mapped=mapped)

    kind = found["type"]
    if kind == "struct":
        return pa.struct(
            [_field(field, depth + 1, mapped=mapped) for field in found["fields"]]
        )
    if kind == "array":
        nullable = found.get("containsNull") is not False
        return pa.list_(pa.field("element", inner("elementType"), nullable))
    if kind == "map":
        nullable = found.get("valueContainsNull") is not False
        value = pa.field("value", inner("valueType"), nullable)
        return pa.map_(pa.field("key", inner("keyType"), nullable=False), value)
    return _unknown(kind)


def _primitive(name: str) -> pa.DataType:
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    matched = _DECIMAL.fullmatch(name)
    if matched is None:
        return _unknown(name)
    return pa.decimal128(int(matched[1]), int(matched[2]))


def _unknown(kind: object) -> pa.DataType:
    what = f"the table has a column of the type {str(kind)[:40]!r}, which is "
    what += "unsupported"
    raise FormatRefused(what)


def _field(found: Any, depth: int, *, mapped: bool) -> pa.Field:
    name, metadata = found["name"], {}
    if not isinstance(name, str):
        what = f"a column is named {str(name)[:40]!r}"
        raise TypeError(what)
    if mapped:
        stated = found["metadata"]
        metadata[_PHYSICAL] = stated[_PHYSICAL.decode()].encode()
        metadata[FIELD_ID] = str(int(stated[_NUMBER])).encode()
    kind = _type(found["type"], depth, mapped=mapped)
    return pa.field(name, kind, found.get("nullable") is not False, metadata or None)


def _scalar(value: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition column; empty text is null, as Delta's protocol has it.

    Times without a zone are UTC.
    """
    if value is None or value == "":
        return pa.scalar(None, kind)
    text = pa.scalar(value, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            return pc.assume_timezone(text.cast(pa.timestamp(kind.unit)), kind.tz)
        except pa.ArrowInvalid:  # it names its zone
            return text.cast(kind)
    if pa.types.is_decimal(kind):
        return decimals_of_texts(pa.array([value]), kind)[0]
    return text.cast(kind)
