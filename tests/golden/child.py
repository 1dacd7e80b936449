"""Reads files that others use as test data: a verdict for each name on standard input.

Started by `tests.golden.proving`, which starts another one where a file ends it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import streamfactory
from streamfactory.backends.file.foreign.types import plain_schema
from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = "256M"
"""Of a message or a row group: files made to take more are refused."""


def main() -> None:
    """Answer one line for each line of a format and a path."""
    for line in sys.stdin:
        form, _, path = line.rstrip("\n").partition(" ")
        sys.stdout.write(f"{verdict(form, Path(path))}\n")
        sys.stdout.flush()


def verdict(form: str, path: Path) -> str:
    """What reading a file comes to, beside what ``pyarrow`` reads."""
    try:
        found = ours(form, path)
    except StreamError as error:
        return f"refused: {error.code}"
    except Exception as error:
        return f"untyped: {type(error).__name__}"
    try:
        wanted = READERS[form](path)
        wanted = wanted.cast(plain_schema(wanted.schema))
    except Exception:
        return "read alone"
    same = wanted.equals(found) or repr(wanted.to_pylist()) == repr(found.to_pylist())
    return "equal" if same else "different"


def ours(form: str, path: Path) -> pa.Table:
    """The rows as a stream has them."""
    properties = {
        "streamType": "file",
        "stream.file.path": str(path),
        "stream.file.format": form,
        "stream.file.message.max.bytes": MOST,
        "retry.max.attempts": "1",
    }
    with streamfactory.open(properties, follow=False) as stream:
        return stream.to_reader().read_all()


def _parquet(path: Path) -> pa.Table:
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()


def _stream(path: Path) -> pa.Table:
    with path.open("rb") as file:
        return pa.ipc.open_stream(file).read_all()


def _file(path: Path) -> pa.Table:
    with path.open("rb") as file:
        return pa.ipc.open_file(file).read_all()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "parquet": _parquet,
    "stream": _stream,
    "file": _file,
}


if __name__ == "__main__":
    main()
