"""Opens inputs by format."""

from __future__ import annotations

import stat
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    ConfigError,
    FormatRefused,
    MisuseError,
    StorageFailed,
    Unsupported,
)
from streamfactory.transfer.inputs.base import Input, InputOptions
from streamfactory.transfer.inputs.columnar import ArrowInput, ParquetInput
from streamfactory.transfer.inputs.delimited import CsvInput
from streamfactory.transfer.inputs.jsonlines import JsonInput
from streamfactory.transfer.inputs.raw import COMPRESSED, Bytes, FileBytes, PipeBytes
from streamfactory.wiring.core.places import is_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def open_inputs(
    names: Sequence[str],
    *,
    format: str | None = None,
    delimiter: str | None = None,
    options: InputOptions | None = None,
) -> list[Input]:
    """Open several inputs; all or none. The caller closes them.

    Args:
        names: Paths, or ``-`` once for standard input.
        format: Of all of them; by default what each path ends in.
        delimiter: Of CSV; by default a tab for ``.tsv``, else a comma.
        options: How to read; its delimiter is replaced.

    Raises:
        MisuseError: misuse; there is no input, or standard input is named twice.
        StreamError: As `open_input`.
    """
    if not names or list(names).count(STANDARD_INPUT) > 1:
        msg = "standard input is given twice" if names else "there is no input"
        raise MisuseError(msg, remedy="give files, or - once for standard input")
    opened: list[Input] = []
    with ExitStack() as on_failure:
        for name in names:
            own = delimiter or ("\t" if ".tsv" in name.lower() else ",")
            how = replace(options or InputOptions(), delimiter=own)
            opened.append(open_input(name, format=format, options=how))
            on_failure.callback(opened[-1].close)
        on_failure.pop_all()
    return opened


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
        format: One of `FORMATS`; by default that of the path's suffix.
        options: How to read.
        descriptor: Of standard input.

    Raises:
        ConfigError: config; the file does not exist.
        MisuseError: misuse; the format is unknown.
        StorageFailed: permanent; the file cannot be opened.
        FormatRefused: permanent; the file is not of the format.
    """
    options = options or InputOptions()
    found = format or _format_of(name)
    if name == STANDARD_INPUT:
        if found == "parquet":
            msg = (
                "Parquet cannot be read from standard input: reading begins at its end"
            )
            raise Unsupported(msg, remedy="pass a file")
        ends = replace(options, continued=False)  # its writers close it at the end
        return _input("standard input", PipeBytes(descriptor), None, found, ends)
    path = Path(name)
    size = _size(path)
    if found != "parquet":
        return _input(name, FileBytes(path), size, found, options)
    if path.suffix.lower() in COMPRESSED:
        msg = (
            f"{name}: Parquet compresses its own pages: the file must not be compressed"
        )
        raise FormatRefused(msg, remedy="decompress it first")
    return ParquetInput(name, path, options.batch_rows)


def _input(
    name: str, source: Bytes, size: int | None, format: str, options: InputOptions
) -> Input:
    if format == "arrow":
        return ArrowInput(name, source, size, options)
    kind = CsvInput if format == "csv" else JsonInput
    return kind(name, source, size, options)


def format_of(name: str) -> str | None:
    """The format of a file, by the end of its name; None if that is unknown."""
    path = Path(name)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower())


def _format_of(name: str) -> str:
    path = Path(name)
    if is_folder(path):
        msg = f"{name} is a folder"
        raise ConfigError(msg, remedy=f"pass its files: {path}/*")
    found = format_of(name)
    if name == STANDARD_INPUT or found is None:
        shown = "standard input" if name == STANDARD_INPUT else name
        msg = f"the format of {shown} is unknown"
        raise MisuseError(msg, remedy=f"set `format=` to one of {', '.join(FORMATS)}")
    return found


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        kind = ConfigError if missing else StorageFailed
        raise kind(msg, remedy="check the path") from error
    if not stat.S_ISREG(status.st_mode):
        msg = f"{path} is not a file"
        raise ConfigError(msg, remedy="pass a file, or - for standard input")
    return status.st_size
