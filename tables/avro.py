"""Limits of what an Avro file of a table's log makes its decoders hold.

Decoders inflate each block as a whole, and make values that take no bytes: a file of a
few hundred bytes can state any number of them. Files are checked before decoders have
them.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_PIECE: Final = 1 << 20
"""Bytes that are inflated at a time."""
_PRIMITIVES: Final = frozenset(
    ("boolean", "int", "long", "float", "double", "bytes", "string")
)
_NAMED: Final = ("record", "error", "enum", "fixed")
_MOST_EMPTY: Final = 16
"""Values of a record that take no bytes, such as its nulls."""


def check_avro_file(path: str, content: bytes, most: int) -> None:
    """Refuse an Avro file that has too much for its decoders.

    Args:
        path: Of the file, for messages.
        content: The whole file.
        most: Bytes that its blocks may have, inflated.

    Raises:
        FormatRefused: permanent; it has more, or another codec.
        ValueError: It is damaged, or `check_avro_schema` refuses its schema.
        KeyError: It has no schema.
        zlib.error: It is damaged.
    """
    source = _Source(content)
    if source.take(len(_MAGIC)) != _MAGIC:
        what = "it is no Avro file"
        raise ValueError(what)
    header = dict(_header(source))
    check_avro_schema(json.loads(header[b"avro.schema"]))
    codec = header.get(b"avro.codec", b"null")
    if codec not in _INFLATED:
        what = f"{path!r} of the table has the codec {codec[:40]!r}"
        known = ", ".join(name.decode() for name in _INFLATED)
        raise FormatRefused(what, remedy=f"{known} are supported")
    sync, left = source.take(_SYNC), most
    while not source.at_end():
        count, block = source.integer(), source.sized()
        if source.take(_SYNC) != sync:
            what = "a block does not end with the mark of the file"
            raise ValueError(what)
        size = 0
        for length in _INFLATED[codec](block):
            size += length
            if size > left:
                what = f"{path!r} of the table has more than {most} bytes, inflated"
                raise FormatRefused(what, remedy="raise log.max.bytes to read it")
        left -= size
        if count > size:
            what = f"a block of {size} bytes states {count} records"
            raise ValueError(what)


def check_avro_schema(schema: Any) -> None:
    """Refuse a schema by which few bytes can have any number of values.

    Such are arrays and maps of values that take no bytes, records with many of those,
    and records within themselves. The metadata of no table needs them.

    Args:
        schema: As parsed JSON.

    Raises:
        ValueError: It has such a type, or one that Avro does not define.
        KeyError: It lacks something, or names a type that it does not define.
        TypeError: It is no schema.
        RecursionError: It is nested too deeply.
    """
    _Schema(schema).empties(schema)


@final
class _Schema:
    def __init__(self, schema: Any) -> None:
        self._named: dict[str, list[Mapping[str, Any]]] = {}
        self._open: set[int] = set()
        self._known: dict[int, int] = {}
        found = [schema]
        while found:
            one = found.pop()
            if isinstance(one, dict):
                found += one.values()
                if one.get("type") in _NAMED:
                    self._named.setdefault(_simple(one["name"]), []).append(one)
            elif isinstance(one, list):
                found += one

    def empties(self, schema: Any) -> int:
        """How many values one of a schema has without any byte; 0 if it has bytes."""
        if isinstance(schema, list):
            for option in schema:
                self.empties(option)
            return 0
        if isinstance(schema, str):
            if schema == "null":
                return 1
            if schema in _PRIMITIVES:
                return 0
            # Namespaces are left out: of types of one name, the worst counts.
            return max(self.empties(one) for one in self._named[_simple(schema)])
        kind = schema["type"]
        if kind in ("array", "map"):
            if self.empties(schema["items" if kind == "array" else "values"]):
                what = f"its schema has the type {kind} of values that take no bytes"
                raise ValueError(what)
            return 0
        if kind == "fixed":
            return int(int(schema["size"]) <= 0)
        if kind in ("record", "error"):
            return self._record(schema)
        return 0 if kind == "enum" else self.empties(kind)

    def _record(self, schema: Mapping[str, Any]) -> int:
        key = id(schema)
        if key in self._open:
            what = f"its schema has a record {schema['name']!r} within itself"
            raise ValueError(what)
        if key not in self._known:
            self._open.add(key)
            found = [self.empties(field["type"]) for field in schema["fields"]]
            self._open.remove(key)
            if sum(found) > _MOST_EMPTY:
                what = f"its schema has a record {schema['name']!r} of more than "
                what += f"{_MOST_EMPTY} values that take no bytes"
                raise ValueError(what)
            self._known[key] = 1 + sum(found) if all(found) else 0
        return self._known[key]


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


@final
class _Source:
    """Reads Avro's integers and bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def at_end(self) -> bool:
        return self._at == len(self._content)

    def take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._content):
            what = f"it ends within {length} bytes"
            raise ValueError(what)
        found = self._content[self._at : end]
        self._at = end
        return found

    def unsigned(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        what = "it has an integer of more than 10 bytes"
        raise ValueError(what)

    def integer(self) -> int:
        found = self.unsigned()
        return (found >> 1) ^ -(found & 1)

    def sized(self) -> bytes:
        return self.take(self.integer())


def _header(source: _Source) -> Iterator[tuple[bytes, bytes]]:
    while count := source.integer():
        if count < 0:
            source.integer()  # bytes of these entries
        for _ in range(abs(count)):
            yield source.sized(), source.sized()


def _deflated(block: bytes) -> Iterator[int]:
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    while found := engine.decompress(block, _PIECE):
        yield len(found)
        block = engine.unconsumed_tail


def _snappy(block: bytes) -> Iterator[int]:
    """What the block states: decoders make no more of it."""
    yield _Source(block).unsigned()


def _zstandard(block: bytes) -> Iterator[int]:
    try:
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as source:
            while found := source.read(_PIECE):
                yield len(found)
    except OSError as error:
        raise ValueError(str(error)) from error


def _plain(block: bytes) -> Iterator[int]:
    yield len(block)


_INFLATED: Final[Mapping[bytes, Callable[[bytes], Iterator[int]]]] = {
    b"null": _plain,
    b"deflate": _deflated,
    b"snappy": _snappy,
    b"zstandard": _zstandard,
}
"""The lengths of what each codec makes of a block, piece by piece."""
