"""Arrow types of a message descriptor, and values of parsed messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor as Field

from streamfactory.decoders.protobuf.descriptors import DescriptorRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor

    Getter = Callable[[Any], Any]

_SCALARS: Final = {
    Field.TYPE_DOUBLE: pa.float64(),
    Field.TYPE_FLOAT: pa.float32(),
    Field.TYPE_INT64: pa.int64(),
    Field.TYPE_UINT64: pa.uint64(),
    Field.TYPE_INT32: pa.int32(),
    Field.TYPE_FIXED64: pa.uint64(),
    Field.TYPE_FIXED32: pa.uint32(),
    Field.TYPE_BOOL: pa.bool_(),
    Field.TYPE_STRING: pa.string(),
    Field.TYPE_BYTES: pa.binary(),
    Field.TYPE_UINT32: pa.uint32(),
    Field.TYPE_SFIXED32: pa.int32(),
    Field.TYPE_SFIXED64: pa.int64(),
    Field.TYPE_SINT32: pa.int32(),
    Field.TYPE_SINT64: pa.int64(),
}
_MESSAGES: Final = (Field.TYPE_MESSAGE, Field.TYPE_GROUP)
TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{word}Value"
    for word in (
        *("Double", "Float", "Int64", "UInt64", "Int32"),
        *("UInt32", "Bool", "String", "Bytes"),
    )
)
_DEEPEST: Final = 64
_MOST: Final = 10_000
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Range of protobuf's Timestamp, years 1 to 9999, in microseconds."""
_LONGEST: Final = 315_576_000_000_999_999
"""Range of protobuf's Duration, ten thousand years, in microseconds."""
BAD_TIME: Final = "a time is outside of protobuf's range"


class Unreadable(ValueError):
    """A value is outside of the range of its type. The text does not quote it."""


class Types:
    """The columns of one message type.

    Args:
        message: The descriptor.
        text: Map enums to names rather than numbers.

    Raises:
        DescriptorRefused: The type cannot be converted to columns.
    """

    def __init__(self, message: Descriptor, *, text: bool) -> None:
        self._text = text
        self._count = 0
        self.schema = pa.schema(self._fields(message, (message.full_name,)))
        self._message = message

    def row(self) -> Getter:
        """A function from a parsed message to a dictionary of its values."""
        return self._row(self._message)

    def _fields(self, message: Descriptor, above: tuple[str, ...]) -> list[pa.Field]:
        return [self._field(field, above) for field in message.fields]

    def _field(self, field: Any, above: tuple[str, ...]) -> pa.Field:
        self._count += 1
        if self._count > _MOST or len(above) > _DEEPEST:
            msg = f"the message type has more than {_MOST} fields or {_DEEPEST} levels"
            raise DescriptorRefused(msg)
        if is_map(field):
            key, value = field.message_type.fields
            kind = pa.map_(
                self._type(key, above),
                pa.field("value", self._type(value, above), nullable=False),
            )
            return pa.field(field.name, kind, nullable=False)
        kind = self._type(field, above)
        if field.is_repeated:
            item = pa.field("item", kind, nullable=False)
            return pa.field(field.name, pa.list_(item), nullable=False)
        nullable = field.has_presence and not field.is_required
        return pa.field(field.name, kind, nullable=nullable)

    def _type(self, field: Any, above: tuple[str, ...]) -> pa.DataType:
        if field.type == Field.TYPE_ENUM:
            return pa.string() if self._text else pa.int32()
        if field.type not in _MESSAGES:
            return _SCALARS[field.type]
        inner = field.message_type
        name = inner.full_name
        if name == TIMESTAMP:
            return pa.timestamp("us", "UTC")
        if name == DURATION:
            return pa.duration("us")
        if name in _WRAPPERS:
            return self._type(inner.fields[0], above)
        if name in above:
            msg = f"message {name!r} is recursive: Arrow columns have a fixed depth"
            raise DescriptorRefused(msg)
        return pa.struct(self._fields(inner, (*above, name)))

    # --- values of parsed messages --------------------------------------------------

    def _row(self, message: Descriptor) -> Getter:
        getters = [(field.name, self._getter(field)) for field in message.fields]
        return lambda value: {name: get(value) for name, get in getters}

    def _getter(self, field: Any) -> Getter:
        name = field.name
        if is_map(field):
            get_value = self._value(field.message_type.fields_by_name["value"])
            return lambda value: sorted(
                (key, get_value(item)) for key, item in getattr(value, name).items()
            )
        get = self._value(field)
        if field.is_repeated:
            return lambda value: [get(item) for item in getattr(value, name)]
        if field.has_presence:
            return lambda v: get(getattr(v, name)) if v.HasField(name) else None
        return lambda value: get(getattr(value, name))

    def _value(self, field: Any) -> Getter:
        if field.type == Field.TYPE_ENUM:
            if not self._text:
                return int
            names = {n: v.name for n, v in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, str(number))
        if field.type not in _MESSAGES:
            return lambda value: value
        inner = field.message_type
        if inner.full_name == TIMESTAMP:
            return _timestamp
        if inner.full_name == DURATION:
            return _duration
        if inner.full_name in _WRAPPERS:
            return lambda value: value.value
        return self._row(inner)


def is_map(field: Any) -> bool:
    """Whether a field is a map, which is a list of entries on the wire."""
    return bool(
        field.type == Field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry
    )


def is_known(field: Any) -> bool:
    """Whether a field is a time, a duration or a wrapper, which is one value here."""
    return field.type == Field.TYPE_MESSAGE and field.message_type.full_name in (
        TIMESTAMP,
        DURATION,
        *_WRAPPERS,
    )


def _micros(value: Any) -> int:
    nanos = value.nanos
    whole = abs(nanos) // 1000 * (1 if nanos > 0 else -1)
    return int(value.seconds * 1_000_000 + whole)


def _timestamp(value: Any) -> int:
    found = _micros(value)
    if not _FIRST <= found <= _LAST:
        raise Unreadable(BAD_TIME)
    return found


def _duration(value: Any) -> int:
    found = _micros(value)
    if not -_LONGEST <= found <= _LONGEST:
        raise Unreadable(BAD_TIME)
    return found


def holds_time(kind: pa.DataType) -> bool:
    """Whether a type contains timestamps or durations."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return True
    return any(holds_time(kind.field(at).type) for at in range(kind.num_fields))


def times_are_right(values: pa.Array) -> bool:
    """Whether every time is within protobuf's range.

    ptars may replace a later time by the last one that it can represent.
    """
    kind = values.type
    if not holds_time(kind):
        return True
    if pa.types.is_map(kind):
        return times_are_right(values.items)
    if pa.types.is_list(kind):
        return times_are_right(values.flatten())
    if pa.types.is_struct(kind):
        return all(map(times_are_right, values.flatten()))
    low, high = (
        (_FIRST, _LAST) if pa.types.is_timestamp(kind) else (-_LONGEST, _LONGEST)
    )
    found = pc.min_max(values.view(pa.int64())).as_py()
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)
