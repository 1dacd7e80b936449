"""Rows of tests: from CSV, JSON lines and TOML into typed columns, and back."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.conversion.conform import conform
from streamfactory.spi import MisuseError
from streamfactory.transfer.inputs import InputOptions, open_inputs
from streamfactory.transfer.inputs.jsonlines import JsonInput
from streamfactory.transfer.inputs.raw import FileBytes
from streamfactory.wiring.options.texts import toml_key, toml_string
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from streamfactory.spark.pipelines.testing.cases import Rows
    from streamfactory.transfer.inputs import Input

_MOST: Final = 65_536
"""Rows of one read."""
_WAIT: Final = 10.0
"""Seconds. Files never wait."""
_BLOCK: Final = 1 << 20
"""Bytes of one read."""
_WRITTEN: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
"""Formats of files that are updated, by their suffix."""


def given_rows(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Rows of an input. Columns that they lack are null.

    Raises:
        StreamError: The file cannot be read, or a value does not fit its column.
    """
    found, _ = _read(rows, schema)
    for field in schema:
        if field.name not in found.column_names:
            found = found.append_column(field.name, pa.nulls(len(found), field.type))
    return _conformed(found, schema)


def expected_rows(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Expected rows, with the columns that at least one of them has.

    Raises:
        StreamError: As of `given_rows`.
    """
    found, named = _read(rows, schema)
    columns = [field.with_nullable(True) for field in schema if field.name in named]
    kept = [name for name in found.column_names if name in named]
    return _conformed(found.select(kept), pa.schema(columns))


def expected_columns(batches: Iterable[Rows], schema: pa.Schema) -> set[str]:
    """Names of the columns that expected rows of several batches have."""
    found = [expected_rows(rows, schema) for rows in batches]
    return {name for rows in found if len(rows) for name in rows.column_names} or {
        *schema.names
    }


def total(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """The rows of several tables of one schema."""
    return pa.concat_tables([schema.empty_table(), *tables])


def _read(rows: Rows, schema: pa.Schema) -> tuple[pa.Table, set[str]]:
    """The rows, and the names of the columns that are in their text."""
    if rows.path is None:
        text = "".join(f"{_json(record)}\n" for record in rows.records)
        source: Input = JsonInput(
            rows.origin, _Text(text.encode()), None, InputOptions()
        )
    else:
        [source] = open_inputs([str(rows.path)])
    try:
        source.expect(schema)
        found = [*_batches(source)]
    finally:
        source.close()
    named = set[str]()
    if rows.path is None:
        named = {name for record in rows.records for name in record}
    elif source.format == "json":
        named = _names(rows.path)
    if not found:
        return schema.empty_table(), named or {*schema.names}
    table = pa.Table.from_batches(found)
    return table, named or {*table.column_names}


def _batches(source: Input) -> Iterator[pa.RecordBatch]:
    while not source.finished:
        batch = source.read(_WAIT, _MOST)
        if batch is not None:
            yield batch


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    batches = rows.combine_chunks().to_batches()
    return pa.Table.from_batches([conform(one, schema) for one in batches], schema)


def _names(path: Path) -> set[str]:
    """Names of the columns of JSON lines that were read without an error."""
    source, text = FileBytes(path), bytearray()
    try:
        while block := source.read(_BLOCK, _WAIT):
            text += block
    finally:
        source.close()
    # Text of JSON contains no line feed, but other characters that end lines.
    lines = text.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return {name for line in lines if line.strip() for name in json.loads(line)}


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(_with_text(record))


def _with_text(value: Any) -> Any:
    """A value of TOML, in which what JSON lacks is the text that its decoder takes."""
    match value:
        case dict():
            return {key: _with_text(one) for key, one in value.items()}
        case list():
            return [*map(_with_text, value)]
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case date() | datetime() | time():
            return value.isoformat()
    return value


@final
class _Text:
    """Text in memory, as a source of bytes."""

    def __init__(self, text: bytes) -> None:
        self._rest = text

    def read(self, most: int, timeout: float) -> bytes | None:  # noqa: ARG002 - nothing is waited for
        """Some bytes; none at the end."""
        found, self._rest = self._rest[:most], self._rest[most:]
        return found

    def position(self) -> int | None:
        """None: as many as were consumed."""
        return None

    def is_written(self) -> bool:
        """False: it does not grow."""
        return False

    def close(self) -> None:
        """Nothing is open."""


# --- writing --------------------------------------------------------------------


def file_text(path: Path, rows: pa.Table) -> str:
    """The text of a file with these rows, by its suffix.

    Raises:
        MisuseError: misuse; files of this kind are not written.
        SchemaMismatch: permanent; the format has no text for a type or a value.
    """
    form = _WRITTEN.get(path.suffix.lower())
    if form is None:
        known = ", ".join(_WRITTEN)
        msg = f"{path} is not updated: only files with the suffixes {known} are"
        raise MisuseError(msg, remedy="give expected rows in such a file")
    lines = _encoded(form, rows)
    if form == "csv":
        header = io.StringIO()
        csv.writer(header, lineterminator="").writerow(rows.column_names)
        lines = [header.getvalue(), *lines]
    return "".join(f"{line}\n" for line in lines)


def toml_text(rows: pa.Table) -> str:
    """Rows as an array of inline tables, one a line. Nulls are omitted.

    Raises:
        MisuseError: misuse; TOML cannot have a null in a list.
        SchemaMismatch: permanent; as of `file_text`.
    """
    lines = _encoded("json", rows)
    records = [json.loads(line, parse_float=Decimal) for line in lines]
    if not records:
        return "[]"
    return "[\n" + "".join(f"  {_toml(record)},\n" for record in records) + "]"


def _encoded(form: str, rows: pa.Table) -> list[str]:
    plugin = default_manager().decoder(form)
    assert plugin.encoder is not None
    options = {
        option.key: option.parse(option.default)
        for option in plugin.options
        if option.default is not None
    }
    encoder = plugin.encoder(options, "test")
    try:
        return [
            value.decode()
            for batch in rows.to_batches()
            for value in encoder.encode(batch).to_pylist()
        ]
    finally:
        encoder.close()


def _toml(value: Any) -> str:
    match value:
        case dict():
            parts = ((key, one) for key, one in value.items() if one is not None)
            inner = ", ".join(f"{toml_key(key)} = {_toml(one)}" for key, one in parts)
            return f"{{ {inner} }}" if inner else "{}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            return toml_string(value)
        case Decimal():
            # Numbers of TOML are read as double precision: others are text.
            return str(value) if Decimal(repr(float(value))) == value else f'"{value}"'
        case None:
            msg = "TOML has no null, which a list of these rows contains"
            raise MisuseError(msg, remedy="expect rows in a file of JSON lines")
    return json.dumps(value)
