"""Streams in query engines: Polars, DuckDB, DataFusion, pandas and Arrow datasets.

One module for each engine, loaded when it is first used::

    import streamfactory

    streamfactory.engines.polars.scan("clicks")
    streamfactory.engines.duckdb.register(connection, "clicks")

Each function takes the name of a stream, or its properties, and reads no rows before
the engine runs a query. Projections, and filters on partition, offset and time, limit
what is read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory.engines import arrow, datafusion, duckdb, pandas, polars

_ENGINES: Final = ("arrow", "datafusion", "duckdb", "pandas", "polars")

__all__ = ["arrow", "datafusion", "duckdb", "pandas", "polars"]


def __getattr__(name: str) -> Any:
    if name not in _ENGINES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
