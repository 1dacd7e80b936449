"""Finds messages that ptars 0.0.25 reads in another way than protobuf.

Of a `oneof` the last member on the wire counts, of a key of a map the last value, and
the parts of a `Timestamp`, a `Duration` or a wrapper that stands twice are merged.
ptars returns all members and all values, and the last part. Such messages are
concatenated ones, for instance: protobuf reads them one by one instead. So it does
where an entry of a map has no message as its value, as writers that omit empty ones
make them: ptars panics; and where a packed list ends within a number of four or eight
bytes: ptars leaves the rest of it out, and protobuf takes the message for bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FieldDescriptor as Field

from streamfactory.conversion.arrays import list_of_entries
from streamfactory.decoders.columns.buffers import data_of, lengths_of, offsets_of
from streamfactory.decoders.protobuf.types import is_known, is_map

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Check = Callable[[pa.Array], Mask]
"""Whether each value of a column has what is searched for."""

_LENGTH: Final = 2
_LOW: Final = 0x7F
_PACKAGE: Final = "streamfactory.parts"
_PART, _VALUE, _INNER, _LIST = "part", "value", "inner", "list"
_SIZES: Final = {
    **dict.fromkeys((Field.TYPE_FLOAT, Field.TYPE_FIXED32, Field.TYPE_SFIXED32), 4),
    **dict.fromkeys((Field.TYPE_DOUBLE, Field.TYPE_FIXED64, Field.TYPE_SFIXED64), 8),
}
"""Bytes of each number of these types."""


@final
class Merged:
    """Finds the messages of one type.

    Args:
        message: The type.
        handler: Returns the ptars handler of a message type.
    """

    def __init__(
        self, message: Descriptor, handler: Callable[[Descriptor], Any]
    ) -> None:
        self._check = _members(message)
        self._parts: tuple[Any, Check] | None = None
        self._twice: set[bytes] = set()
        """Tags: one of them is twice in a message with merged parts."""
        self._once: set[bytes] = set()
        """Tags of maps with messages, and of lists of numbers of `_SIZES`."""
        parts = _parts_of(message, self._twice, self._once)
        if parts is not None:
            check = _members(parts)
            assert check is not None
            self._parts = handler(parts), check

    def before(self, values: pa.Array) -> Mask:
        """Whether each message is one of which ptars panics or leaves parts out."""
        found = np.zeros(len(values), bool)
        if self._parts is None:
            return found
        handler, check = self._parts
        likely = _with_tag(values, self._twice, 2) | _with_tag(values, self._once, 1)
        likely |= _with_padding(values)
        some = np.flatnonzero(likely)
        if len(some):
            parts = handler.array_to_record_batch(values.take(pa.array(some)))
            found[some[check(parts.to_struct_array())]] = True
        return found

    def after(self, rows: pa.RecordBatch) -> Mask:
        """Whether each message is one by its row, which ptars returned."""
        if self._check is None:
            return np.zeros(rows.num_rows, bool)
        found: Mask = self._check(rows.to_struct_array())
        return found


def _with_tag(values: pa.Array, tags: Iterable[bytes], times: int) -> Mask:
    """Whether the bytes of each message contain one of the tags so many times."""
    data, found = data_of(values), np.zeros(len(values), bool)
    for tag in tags:
        at = np.flatnonzero(data == tag[-1])
        for back, byte in enumerate(reversed(tag[:-1]), 1):
            at = at[(at >= back) & (data[at - back] == byte)]
        found |= np.bincount(_rows(values, at), minlength=len(values)) >= times
    return found


def _with_padding(values: pa.Array) -> Mask:
    """Whether each message may contain a tag of more bytes than it needs."""
    data, found = data_of(values), np.zeros(len(values), bool)
    at = np.flatnonzero(data == 0)
    found[_rows(values, at[(at > 0) & (data[at - 1] > _LOW)])] = True
    return found


def _rows(values: pa.Array, places: np.ndarray) -> np.ndarray:
    """The message of each byte, by its place among the bytes of all messages."""
    edges = offsets_of(values)
    found: np.ndarray = np.searchsorted(edges - edges[0], places, side="right") - 1
    return found


def _members(message: Descriptor) -> Check | None:
    """A check of the rows of a message type; None if no value can be one."""
    names = [field.name for field in message.fields]
    groups = [
        [names.index(field.name) for field in group.fields]
        for group in message.oneofs
        if len(group.fields) > 1
    ]
    children = [
        (number, check)
        for number, field in enumerate(message.fields)
        if (check := _child(field)) is not None
    ]
    if not groups and not children:
        return None

    def run(rows: pa.Array) -> Mask:
        columns, found = rows.flatten(), np.zeros(len(rows), bool)
        for group in groups:
            valid = [np.asarray(columns[number].is_valid()) for number in group]
            found |= np.sum(valid, axis=0) > 1
        for number, check in children:
            found |= check(columns[number])
        return found

    return run


def _child(field: Any) -> Check | None:
    if field.containing_type.file.package == _PACKAGE:
        if field.name.startswith(_VALUE):
            return _values(field)
        if field.name.startswith(_PART):
            return _several
        if field.name.startswith(_LIST):
            return _cut(int(field.name.split("_")[1]))
    if is_map(field):
        return _map(field.message_type.fields_by_name["value"])
    if field.type not in (Field.TYPE_MESSAGE, Field.TYPE_GROUP) or is_known(field):
        return None
    inner = _members(field.message_type)
    if inner is None or not field.is_repeated:
        return inner
    return lambda column: _any(column, column.flatten(), inner)


def _several(column: pa.Array) -> Mask:
    found: Mask = np.asarray(pc.list_value_length(column)) > 1
    return found


def _cut(size: int) -> Check:
    """A check of the packed lists of a field, whose numbers have ``size`` bytes."""

    def run(column: pa.Array) -> Mask:
        lists = column.flatten()
        found = np.zeros(len(column), bool)
        parents = np.asarray(pc.list_parent_indices(column))
        found[parents[lengths_of(lists) % size != 0]] = True
        return found

    return run


def _values(field: Any) -> Check:
    """A check of the occurrences of the value of a map's entry."""
    inner = None if field.message_type is None else _members(field.message_type)

    def run(column: pa.Array) -> Mask:
        found: Mask = np.asarray(pc.list_value_length(column)) != 1
        if inner is not None:
            found |= _any(column, column.flatten(), inner)
        return found

    return run


def _map(value: Any) -> Check:
    inner = _child(value)

    def run(column: pa.Array) -> Mask:
        entries = list_of_entries(column)
        keys, items = entries.flatten().flatten()
        parents = np.asarray(pc.list_parent_indices(entries))
        words = keys.dictionary_encode()
        pairs = np.sort(parents * len(words.dictionary) + np.asarray(words.indices))
        found = np.zeros(len(column), bool)
        twice = pairs[1:][pairs[1:] == pairs[:-1]]
        found[twice // max(1, len(words.dictionary))] = True
        if inner is not None:
            found |= _any(entries, items, inner)
        return found

    return run


def _any(lists: pa.Array, values: pa.Array, check: Check) -> Mask:
    """Whether each list has a value that a check finds."""
    found = np.zeros(len(lists), bool)
    found[np.asarray(pc.list_parent_indices(lists))[check(values)]] = True
    return found


# --- parts that are read twice --------------------------------------------------------


def _parts_of(
    message: Descriptor, twice: set[bytes], once: set[bytes]
) -> Descriptor | None:
    """A message type of the same wire format with what ptars misreads alone.

    Each well-known type, and each message that is the value of a map's entry, is a list
    of its occurrences, so that nothing of them is merged; each packed list of numbers
    of `_SIZES` is its bytes. None if the message has none of these.

    Args:
        message: The type.
        twice: Gets the tags of the former.
        once: Gets the tags of maps with messages, and of packed lists.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3"
    )
    name = _add_parts(message, file, twice, once)
    if name is None:
        return None
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: Descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return found


def _add_parts(
    message: Descriptor, file: Any, twice: set[bytes], once: set[bytes]
) -> str | None:
    made, is_entry = descriptor_pb2.DescriptorProto(), message.GetOptions().map_entry
    for field in message.fields:
        if field.is_repeated and field.type in _SIZES:
            once.add(_tag(field.number))
            made.field.add(
                name=f"{_LIST}_{_SIZES[field.type]}_{field.number}",
                number=field.number,
                type=Field.TYPE_BYTES,
                label=Field.LABEL_REPEATED,
            )
        if field.type != Field.TYPE_MESSAGE:
            continue
        known, many = is_known(field), field.is_repeated
        if known and many:
            continue
        inner = None if known else _add_parts(field.message_type, file, twice, once)
        if not (known or is_entry or inner):
            continue
        if known or is_entry:
            twice.add(_tag(field.number))
        elif is_map(field) and field.message_type.fields_by_name["value"].message_type:
            once.add(_tag(field.number))
        word = _VALUE if is_entry else _PART if known else _INNER
        listed = many or word != _INNER
        made.field.add(
            name=f"{word}_{field.number}",
            number=field.number,
            type=Field.TYPE_BYTES if inner is None else Field.TYPE_MESSAGE,
            type_name=None if inner is None else f".{_PACKAGE}.{inner}",
            label=Field.LABEL_REPEATED if listed else Field.LABEL_OPTIONAL,
        )
    if not made.field:
        return None
    made.name = f"Parts{len(file.message_type)}"
    file.message_type.append(made)
    return str(made.name)


def _tag(number: int) -> bytes:
    """The bytes before a field with a length."""
    value, found = number << 3 | _LENGTH, bytearray()
    while value > _LOW:
        found.append(value & _LOW | _LOW + 1)
        value >>= 7
    return bytes([*found, value])
