"""The columns of a topic: shown, said, and taken from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.cli.results import table
from streamfactory.cli.schema import Column
from streamfactory.spi import ConfigError, FormatRefused, StorageFailed, envelope_schema
from streamfactory.spi.ddl import to_ddl

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Columns:
    """A schema as it is shown."""

    messages: bool
    """Whether these are undecoded messages."""
    ddl: str | None
    """Spark's; None where a type has no name there."""
    columns: list[Column]
    problem: str | None = None
    """Why nothing is known of it."""

    def lines(self) -> Iterator[str]:
        """As text."""
        if self.problem is not None:
            yield f"columns: {self.problem}"
            return
        yield "columns, of undecoded messages:" if self.messages else "columns:"
        rows = [
            (column.name, column.type, "" if column.nullable else "not null")
            for column in self.columns
        ]
        yield from table(rows, indent="  ")
        if self.ddl is not None and not self.messages:
            yield f"as Spark DDL: {self.ddl}"


def columns_of(schema: pa.Schema) -> Columns:
    """How a schema is shown."""
    try:
        ddl = to_ddl(schema)
    except ValueError:
        ddl = None
    columns = [Column(field.name, str(field.type), field.nullable) for field in schema]
    return Columns(schema.equals(envelope_schema()), ddl, columns)


def unknown_columns(problem: str) -> Columns:
    """How it is shown that there is none."""
    return Columns(messages=False, ddl=None, columns=[], problem=problem)


def schema_of_file(name: str) -> pa.Schema:
    """The schema of an Arrow file or stream, or of a Parquet file, by what is in it.

    Raises:
        StorageFailed: permanent; the file cannot be read.
        FormatRefused: permanent; it is none of these.
    """
    try:
        with Path(name).open("rb") as file:
            begin = file.read(6)
            file.seek(0)
            if begin[:4] == b"PAR1":
                from pyarrow import parquet

                found = parquet.read_schema(file)
            elif begin == b"ARROW1":
                found = pa.ipc.open_file(file).schema
            else:
                found = pa.ipc.open_stream(file).schema
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        msg = f"{name} is neither Arrow nor Parquet: {reason}"
        raise FormatRefused(msg, remedy="give a file that is") from error
    except OSError as error:
        msg = f"{name} cannot be read: {error.strerror or error}"
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        kind = ConfigError if missing else StorageFailed
        raise kind(msg, remedy="look at the path") from error
    return found.remove_metadata()
