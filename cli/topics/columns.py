"""The columns of a topic or stream, as documents, text, and from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.cli.results import table
from streamfactory.spi import ConfigError, FormatRefused, StorageFailed, envelope_schema
from streamfactory.spi.causes import first_line
from streamfactory.spi.ddl import to_ddl

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = dict[str, Any]


def field_documents(schema: pa.Schema) -> list[Document]:
    """One document per column."""
    return [
        {"name": field.name, "type": str(field.type), "nullable": field.nullable}
        for field in schema
    ]


def field_lines(columns: list[Document]) -> Iterator[str]:
    """The columns as text."""
    rows = [
        (c["name"], c["type"], "" if c["nullable"] else "not null") for c in columns
    ]
    return table(rows, indent="  ")


def schema_document(schema: pa.Schema) -> Document:
    """The schema of a topic."""
    try:
        ddl = to_ddl(schema)
    except ValueError:
        ddl = None
    return {
        "messages": schema.equals(envelope_schema()),
        "ddl": ddl,
        "columns": field_documents(schema),
        "problem": None,
    }


def unknown_schema(problem: str) -> Document:
    """The same, of a topic whose schema is unknown."""
    return {"messages": False, "ddl": None, "columns": [], "problem": problem}


def schema_lines(document: Document) -> Iterator[str]:
    """The schema of a topic as text."""
    if document["problem"] is not None:
        yield f"columns: {document['problem']}"
        return
    messages = document["messages"]
    yield "columns, of undecoded messages:" if messages else "columns:"
    yield from field_lines(document["columns"])
    if document["ddl"] is not None and not messages:
        yield f"as Spark DDL: {document['ddl']}"


def schema_of_file(name: str) -> pa.Schema:
    """The schema of an Arrow file or stream, or of a Parquet file, by its content.

    Raises:
        StorageFailed: permanent; the file cannot be read.
        FormatRefused: permanent; it has none of these formats.
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
        msg = f"{name} is neither Arrow nor Parquet: {first_line(error)}"
        raise FormatRefused(msg, remedy="give a file that is") from error
    except OSError as error:
        msg = f"{name} cannot be read: {error.strerror or error}"
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        kind = ConfigError if missing else StorageFailed
        raise kind(msg, remedy="check the path") from error
    return found.remove_metadata()
