"""Streams in Polars: lazy frames that read when they are collected.

``scan("clicks")`` uses Polars' plug-in interface for IO sources: it receives
projections, row limits and filters, and returns the batches of the stream one at a
time. Needs ``pip install 'streamfactory[polars]'``.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from streamfactory.conversion.conform import empty_rows
from streamfactory.engines.arrow import first_rows
from streamfactory.engines.installing import load
from streamfactory.engines.scans import ScanArguments, StreamScan
from streamfactory.spi import Unsupported
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from streamfactory.wiring.config.loading import StreamLike


def scan(
    stream: StreamLike,
    **how: Unpack[ScanArguments],
) -> pl.LazyFrame:
    """Return a stream as a lazy frame; reads only its schema.

    Each ``collect`` reads the stream as it is then. Polars' streaming engine keeps
    memory flat, ``collect(engine="streaming")`` and the sinks; the default engine
    collects the columns that the query needs. If a query ends before the stream, a
    later call of Polars closes it.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Raises:
        NotInstalled: plugin; names the command that installs Polars.
        Unsupported: misuse; a column has a type that Polars does not have.
        ConfigError: config; every problem at once.
        StreamError: The source's, when it is asked for its schema.
    """
    load("polars")
    from polars.io.plugins import register_io_source

    scan = StreamScan(stream, how)

    def read(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        rows: int | None,
        batch_size: int | None,  # noqa: ARG001 - a hint; batches are not changed
    ) -> Iterator[pl.DataFrame]:
        return _read(scan, columns, predicate, rows)

    return register_io_source(read, schema=_schema(scan))


def _read(
    scan: StreamScan,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    rows: int | None,
) -> Iterator[pl.DataFrame]:
    names = list(scan.schema.names if columns is None else columns)
    needed, bound = names, None
    if predicate is not None:
        from streamfactory.engines.polars_predicates import implied_filter

        roots = predicate.meta.root_names()
        needed = [*names, *sorted(set(roots) - set(names))]
        bound = implied_filter(predicate, scan.places.intersection(scan.schema.names))
    with closing(scan.batches(needed, bound)) as batches:
        limited = batches if rows is None else first_rows(batches, rows)
        for batch in limited:
            frame = _frame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(names)


def _schema(scan: StreamScan) -> pl.Schema:
    fields: dict[str, pl.DataType] = {}
    for field in scan.schema:
        if _has_equal_names(field.type):
            raise _unsupported(scan, field)  # Polars 1 keeps one of the children
        empty = empty_rows(pa.schema([field]))
        try:
            fields |= _frame(empty).schema
        except load("polars").exceptions.PanicException as error:
            raise _unsupported(scan, field) from error
        except Exception as error:
            raise _unsupported(scan, field) from error
    schema: pl.Schema = load("polars").Schema(fields)
    return schema


def _has_equal_names(kind: pa.DataType) -> bool:
    """Whether a struct, at any depth, has two children of one name."""
    children = [kind.field(at) for at in range(kind.num_fields)]
    named = {child.name for child in children} if pa.types.is_struct(kind) else children
    return len(named) < len(children) or any(
        _has_equal_names(child.type) for child in children
    )


def _unsupported(scan: StreamScan, field: pa.Field) -> Unsupported:
    kind = type_text(field.type)
    msg = f"Polars does not have the type of column {field.name!r}, {kind}"
    remedy = "pass columns= without it"
    return Unsupported(msg, stream=scan.name, remedy=remedy)


def _frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    polars = load("polars")
    frame: pl.DataFrame = polars.from_arrow(rows)
    return frame
