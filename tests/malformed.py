"""One malformed array of each kind that Arrow's IPC reader accepts, and a sound one."""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

ROWS: Final = 3


def _buffer(form: str, *numbers: int) -> pa.Buffer:
    return pa.py_buffer(struct.pack("<" + form, *numbers))


def _made(
    kind: pa.DataType,
    buffers: list[pa.Buffer | None],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    return pa.Array.from_buffers(kind, ROWS, buffers, children=children)


def _union(mode: str, codes: list[int], offsets: list[int] | None = None) -> pa.Array:
    fields = [pa.field("a", pa.int32()), pa.field("b", pa.string())]
    kind = pa.union(fields, mode=mode)
    children = [pa.array([1, 2, 3], pa.int32()), pa.array(["x", "y", "z"])]
    buffers = [None, _buffer("3b", *codes)]
    if offsets is not None:
        buffers.append(_buffer("3i", *offsets))
    return _made(kind, buffers, children)


def _words(*indices: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32()), pa.array(["a", "b"]), safe=False
    )


def _view(*views: tuple[int, bytes, int, int]) -> pa.Array:
    packed = b"".join(struct.pack("<i4sii", *view) for view in views)
    octets = pa.py_buffer(b"abcd" * 10)
    return _made(pa.string_view(), [None, pa.py_buffer(packed), octets])


def _run_ends(*ends: int) -> pa.Array:
    kind = pa.run_end_encoded(pa.int32(), pa.int64())
    return _made(kind, [None], [pa.array(ends, pa.int32()), pa.array([1, 2])])


def _text(offsets: list[int], octets: bytes, kind: pa.DataType | None = None) -> Any:
    buffers = [None, _buffer("4i", *offsets), pa.py_buffer(octets)]
    return _made(kind or pa.string(), buffers)


def _list_view(*starts: int) -> pa.Array:
    sizes = _buffer("3i", 1, 1, 1)
    children = [pa.array([1, 2, 3])]
    return _made(
        pa.list_view(pa.int64()), [None, _buffer("3i", *starts), sizes], children
    )


def _struct(child: pa.Array) -> pa.Array:
    kind = pa.struct([pa.field("child", child.type)])
    return _made(kind, [None], [child])


def _list(child: pa.Array, *offsets: int) -> pa.Array:
    buffers = [None, _buffer("4i", *(offsets or (0, 1, 2, 3)))]
    return _made(pa.list_(child.type), buffers, [child])


def _map(child: pa.Array) -> pa.Array:
    kind = pa.map_(pa.string(), child.type)
    pairs = pa.StructArray.from_arrays(
        [pa.array(["k", "l", "m"]), child], fields=[kind.key_field, kind.item_field]
    )
    return _made(kind, [None, _buffer("4i", 0, 1, 2, 3)], [pairs])


def _extension(storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.opaque(storage.type, "t", "v"), storage)


_NO_UTF8: Final = _text([0, 1, 2, 3], b"\xff\xfe\xfd")
_GOOD_TEXT: Final = pa.array(["a", "b", "c"])

MALFORMED: Final[dict[str, tuple[pa.Array, pa.Array]]] = {
    "code of a dense union": (
        _union("dense", [0, 1, 0], [0, 1, 2]),
        _union("dense", [127, 1, 0], [0, 1, 2]),
    ),
    "negative code of a dense union": (
        _union("dense", [0, 1, 0], [0, 1, 2]),
        _union("dense", [-1, 1, 0], [0, 1, 2]),
    ),
    "offset of a dense union": (
        _union("dense", [0, 1, 0], [0, 1, 2]),
        _union("dense", [0, 1, 0], [0, 1, 1 << 30]),
    ),
    "code of a sparse union": (
        _union("sparse", [0, 1, 0]),
        _union("sparse", [127, 1, 0]),
    ),
    "union in a struct": (
        _struct(_union("dense", [0, 1, 0], [0, 1, 2])),
        _struct(_union("dense", [127, 1, 0], [0, 1, 2])),
    ),
    "union in a list": (
        _list(_union("dense", [0, 1, 0], [0, 1, 2])),
        _list(_union("dense", [0, 127, 0], [0, 1, 2])),
    ),
    "index of a dictionary": (_words(0, 1, 0), _words(0, 10**6, 1)),
    "negative index of a dictionary": (_words(0, 1, 0), _words(0, -1, 1)),
    "dictionary in a struct": (_struct(_words(0, 1, 0)), _struct(_words(0, 7, 0))),
    "dictionary in a list": (_list(_words(0, 1, 0)), _list(_words(0, 7, 0))),
    "dictionary in a map": (_map(_words(0, 1, 0)), _map(_words(0, 7, 0))),
    "words of a dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), _GOOD_TEXT),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), _NO_UTF8),
    ),
    "negative run end": (_run_ends(2, 3), _run_ends(-7, 3)),
    "run ends that fall": (_run_ends(2, 3), _run_ends(3, 3)),
    "offset of text": (_GOOD_TEXT, _text([0, 1000, 2, 3], b"abc")),
    "UTF-8": (_GOOD_TEXT, _NO_UTF8),
    "UTF-8 in a struct": (_struct(_GOOD_TEXT), _struct(_NO_UTF8)),
    "UTF-8 in a map": (_map(_GOOD_TEXT), _map(_NO_UTF8)),
    "offset of bytes": (
        pa.array([b"a", b"b", b"c"]),
        _text([0, 2, 1, 3], b"abc", pa.binary()),
    ),
    "buffer of a view": (
        _view((20, b"abcd", 0, 0), (20, b"abcd", 0, 4), (1, b"a\0\0\0", 0, 0)),
        _view((20, b"abcd", 5, 0), (20, b"abcd", 0, 4), (1, b"a\0\0\0", 0, 0)),
    ),
    "offset of a view": (
        _view((20, b"abcd", 0, 0), (20, b"abcd", 0, 4), (1, b"a\0\0\0", 0, 0)),
        _view((20, b"abcd", 0, 1 << 30), (20, b"abcd", 0, 4), (1, b"a\0\0\0", 0, 0)),
    ),
    "offset of a list": (
        _list(pa.array([1, 2, 3])),
        _list(pa.array([1, 2, 3]), 0, 1, 1 << 30, 3),
    ),
    "offset of a list view": (_list_view(0, 1, 2), _list_view(0, 1, 1 << 30)),
    "negative offset of a list view": (_list_view(0, 1, 2), _list_view(0, -1, 2)),
    "storage of an extension type": (_extension(_GOOD_TEXT), _extension(_NO_UTF8)),
    "dictionary of an extension type": (
        _extension(_words(0, 1, 0)),
        _extension(_words(0, 9, 0)),
    ),
    "time of a day": (
        pa.array([0, 1, 2], pa.time64("us")),
        pa.array([0, 1, 86_400_000_000], pa.int64()).view(pa.time64("us")),
    ),
    "digits of a decimal": (
        pa.array([1, 2, 3], pa.int64())
        .cast(pa.decimal128(20, 0))
        .cast(pa.decimal128(3, 0)),
        _made(pa.decimal128(3, 0), [None, _buffer("6q", 1, 0, 2, 0, 123456, 0)]),
    ),
}
"""By kind: sound and malformed, of one type and of `ROWS` rows."""


def rows_of(column: pa.Array) -> pa.RecordBatch:
    """A batch with one column."""
    schema = pa.schema([pa.field("c", column.type)])
    return pa.RecordBatch.from_arrays([column], schema=schema)
