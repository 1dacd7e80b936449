"""Writes the rows that came out into files of tests, in place of expected ones."""

from __future__ import annotations

import io
import tomllib
from typing import TYPE_CHECKING, Any

from streamfactory.spark.pipelines.testing.rows import (
    expected_columns,
    file_text,
    toml_text,
)
from streamfactory.spi import MisuseError, StorageFailed
from streamfactory.wiring.config.documents import open_document, read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.spark.pipelines.testing.comparing import Compared, Result

_BY_HAND = "correct them by hand, or expect them in a file"


def update(path: Path, results: Iterable[Result]) -> list[Path]:
    """Write the rows of tests that differ from what they expect.

    All or nothing: what cannot be written is found first.

    Args:
        path: The file of the tests.
        results: Their results. Those that failed otherwise are left out.

    Returns:
        The files that were written.

    Raises:
        MisuseError: misuse; expected rows cannot be replaced: their number of batches
            or their place in the file is another one.
        SchemaMismatch: permanent; a value has no text.
        StorageFailed: permanent; a file cannot be written.
    """
    files: dict[Path, str] = {}
    inline: dict[tuple[int, str], str] = {}
    for result in results:
        if result.failure is not None or result.case.fails is not None:
            continue
        for one in result.compared:
            if one.differences:
                text = _collect(one, files)
                if text is not None:
                    inline[result.case.number, one.expected.name] = text
    if inline:
        files[path] = _edited(path, inline)
    for file, text in files.items():
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            msg = f"{file} cannot be written: {error.strerror}"
            raise StorageFailed(msg, remedy="make it writable, and repeat") from error
    return [*files]


def _collect(one: Compared, files: dict[Path, str]) -> str | None:
    """Add the files of expected rows; returns the TOML of those without files."""
    batches, origin = one.expected.batches, one.expected.origin
    tables = [_kept(one, rows) for rows in one.actual]
    paths = [rows.path for rows in batches if rows.path is not None]
    if not paths:
        parts = [toml_text(rows) for rows in tables]
        if one.expected.whole:
            return parts[0]
        return "[\n" + "".join(f"{part},\n" for part in parts) + "]"
    if len(paths) < len(batches) or len(tables) != len(batches):
        msg = f"{origin}: {len(tables)} batches of rows came out, and "
        msg += f"{len(batches)} are expected, {len(paths)} of them in files"
        raise MisuseError(msg, remedy=_BY_HAND)
    for path, rows in zip(paths, tables, strict=True):
        text = file_text(path, rows)
        if files.setdefault(path, text) != text:
            msg = f"{origin}: {path} is expected twice, and the rows differ"
            raise MisuseError(msg, remedy="expect them in two files")
    return None


def _kept(one: Compared, rows: pa.Table) -> pa.Table:
    """The columns that were compared."""
    columns = expected_columns(one.expected.batches, rows.schema)
    return rows.select([name for name in rows.column_names if name in columns])


def _edited(path: Path, values: dict[tuple[int, str], str]) -> str:
    """The text of a file of tests with other values of ``expect.NAME``."""
    document = open_document(path)
    wanted = read_toml(document)
    lines = [*io.StringIO(document.text)]  # only a line feed ends a line of TOML
    places = {
        document.lines.get(f"/tests/{number}/expect/{name}"): (number, name)
        for number, name in values
    }
    # From the end, so that the numbers of lines before it stay.
    for line, (number, name) in sorted(
        places.items(), key=lambda one: one[0] or 0, reverse=True
    ):
        value = values[number, name]
        wanted["tests"][number]["expect"][name] = tomllib.loads(f"x = {value}")["x"]
        if line is not None:
            _replace(lines, line - 1, value)
    text = "".join(lines)
    if repr(_parsed(text)) != repr(wanted):  # as text: NaN is not equal to itself
        msg = f"{path}: the place of expected rows was not found"
        remedy = "write expect.NAME = [...] on lines of its own, below [[tests]]"
        raise MisuseError(msg, remedy=remedy)
    return text


def _replace(lines: list[str], first: int, value: str) -> None:
    """Replace the value that begins in a line after an equals sign."""
    key, _, rest = lines[first].partition("=")
    for last in range(first, len(lines)):
        text = rest + "".join(lines[first + 1 : last + 1])
        if _parsed(f"x ={text}") is not None:
            lines[first : last + 1] = [f"{key.rstrip()} = {value}\n"]
            return


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None
