"""Which input a file is."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from streamfactory.spi import (
    ConfigError,
    FormatRefused,
    MisuseError,
    StorageFailed,
    Unsupported,
)
from streamfactory.transfer.inputs.base import Input, InputOptions
from streamfactory.transfer.inputs.columnar import ArrowInput, ParquetInput
from streamfactory.transfer.inputs.raw import COMPRESSED, Bytes, FileBytes, PipeBytes
from streamfactory.transfer.inputs.text import CsvInput, JsonInput

FORMATS: Final = ("csv", "json", "parquet", "arrow")

STANDARD_INPUT: Final = "-"

_SUFFIXES: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def open_input(
    name: str,
    *,
    format: str | None = None,
    options: InputOptions | None = None,
    descriptor: int = 0,
) -> Input:
    """Open an input. The caller closes it.

    Args:
        name: A path, or ``-`` for standard input.
        format: One of `FORMATS`; by default what the path ends in says.
        options: How to read.
        descriptor: Of standard input.

    Raises:
        ConfigError: config; there is no such file.
        MisuseError: misuse; nothing says what the format is.
        StorageFailed: permanent; the file cannot be opened.
        FormatRefused: permanent; the file is not of the format.
    """
    options = options or InputOptions()
    found = format or _format_of(name)
    if name == STANDARD_INPUT:
        if found == "parquet":
            msg = "Parquet is read from its end: standard input has none to begin with"
            raise Unsupported(msg, remedy="give a file")
        return _input("standard input", PipeBytes(descriptor), None, found, options)
    path = Path(name)
    size = _size(path)
    if found != "parquet":
        return _input(name, FileBytes(path), size, found, options)
    if path.suffix.lower() in COMPRESSED:
        msg = (
            f"{name}: Parquet compresses its own pages: the file must not be compressed"
        )
        raise FormatRefused(msg, remedy="unpack it first")
    return ParquetInput(name, path, options.batch_rows)


def _input(
    name: str, source: Bytes, size: int | None, format: str, options: InputOptions
) -> Input:
    if format == "arrow":
        return ArrowInput(name, source, size, options)
    kind = CsvInput if format == "csv" else JsonInput
    return kind(name, source, size, options)


def _format_of(name: str) -> str:
    path = Path(name)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    found = _SUFFIXES.get(path.suffix.lower())
    if name == STANDARD_INPUT or found is None:
        shown = "standard input" if name == STANDARD_INPUT else name
        msg = f"the format of {shown} is unknown"
        raise MisuseError(msg, remedy=f"give --format: {', '.join(FORMATS)}")
    return found


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        kind = ConfigError if missing else StorageFailed
        raise kind(msg, remedy="look at the path") from error
    if not stat.S_ISREG(status.st_mode):
        msg = f"{path} is no file"
        raise ConfigError(msg, remedy="give a file, or - for standard input")
    return status.st_size
