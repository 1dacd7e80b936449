"""Defects that a test plants in a child, to see that the fuzz suite notices them."""

from __future__ import annotations

import ctypes
import os
import time
import zlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.fuzz.entries import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.fuzz.entries.base import Entry


def _crash() -> None:
    ctypes.string_at(1)


def _hang() -> None:
    while True:
        time.process_time()


def _untyped() -> None:
    msg = "not an error of the contract"
    raise LookupError(msg)


def _memory() -> None:
    bytearray(os.urandom(1)) * (300 << 20)


def _stderr() -> None:
    os.write(2, b"a panic\n")


def _unsound() -> pa.Array:
    """Text that is no UTF-8."""
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0")
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])


DEFECTS: Final[dict[str, Callable[[], object]]] = {
    "crash": _crash,
    "hang": _hang,
    "untyped": _untyped,
    "memory": _memory,
    "stderr": _stderr,
    "unsound": _unsound,
}
_EACH: Final = 16
"""Of so many inputs, one meets a certain defect: few do in the field."""


def plant() -> None:
    """Put all defects in the place of the entry point ``position``."""

    def feed(_: Entry, data: bytes) -> Generator[pa.RecordBatch]:
        number = zlib.crc32(data) % _EACH
        if number < len(DEFECTS):
            found = list(DEFECTS.values())[number]()
            if isinstance(found, pa.Array):
                yield pa.record_batch([found], names=["text"])

    texts.Positions.feed = feed  # type: ignore[method-assign, assignment]
