"""Streams in DuckDB: relations, and streams usable by name in SQL.

DuckDB reads a stream a batch at a time while it runs the query; columns that the query
does not use, and filters on partition, offset and time, decide what is read. Needs
``pip install 'streamfactory[duckdb]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from streamfactory.engines.arrow import dataset, view_name
from streamfactory.engines.installing import load
from streamfactory.spi.arguments import TEXT, having, takes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from streamfactory.engines.scans import ScanArguments
    from streamfactory.wiring.config.loading import StreamLike


CONNECTION: Final = having("register", taken="pass what duckdb.connect() returns")


@takes(name=TEXT)
def register(
    connection: DuckDBPyConnection,
    stream: StreamLike,
    *,
    name: str | None = None,
    **how: Unpack[ScanArguments],
) -> DuckDBPyRelation:
    """Make a stream usable by name in the SQL of a connection; reads only its schema.

    Each query reads the stream as it is then.

    Args:
        connection: Where SQL will name the stream, until it is closed or
            ``unregister`` is called.
        stream: The name of a stream in the catalogue, or its properties.
        name: In SQL; by default the stream's. A view of that name is replaced.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Returns:
        The relation of that name.

    Raises:
        MisuseError: misuse; properties without a name are registered without one.
        NotInstalled: plugin; names the command that installs DuckDB.
        ConfigError: config; every problem at once.
        StreamError: The source's, when it is asked for its schema.
    """
    load("duckdb")
    CONNECTION.checked("connection", connection)
    found = dataset(stream, **how)
    name = view_name(name, found.name)
    connection.register(name, found)
    return connection.view(name)


def relation(
    stream: StreamLike,
    *,
    connection: DuckDBPyConnection | None = None,
    **how: Unpack[ScanArguments],
) -> DuckDBPyRelation:
    """A stream as a relation; reads nothing but its schema.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        connection: Runs the queries; DuckDB's default connection where None.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Raises:
        NotInstalled: plugin; names the command that installs DuckDB.
        ConfigError: config; every problem at once.
        StreamError: The source's, when it is asked for its schema.
    """
    duckdb = load("duckdb")
    if connection is not None:
        CONNECTION.checked("connection", connection)
    found: DuckDBPyRelation = (connection or duckdb.default_connection()).from_arrow(
        dataset(stream, **how)
    )
    return found
