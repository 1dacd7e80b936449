"""Streams in DataFusion: tables whose partitions are those of the stream.

DataFusion executes one task for each partition that the query can match, which reads a
batch at a time. Needs ``pip install 'streamfactory[datafusion]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from streamfactory.engines.arrow import dataset, view_name
from streamfactory.engines.installing import load
from streamfactory.spi.arguments import TEXT, having, takes

if TYPE_CHECKING:
    from datafusion import DataFrame, SessionContext

    from streamfactory.engines.scans import ScanArguments
    from streamfactory.wiring.config.loading import StreamLike


CONTEXT: Final = having("register_dataset", taken="pass a datafusion.SessionContext")


@takes(name=TEXT)
def register(
    context: SessionContext,
    stream: StreamLike,
    *,
    name: str | None = None,
    **how: Unpack[ScanArguments],
) -> DataFrame:
    """Register a stream as a table of a session; reads only its schema.

    Each query reads the stream as it is then. ``collect`` collects the result;
    ``execute_stream`` returns it batch by batch.

    Args:
        context: The session.
        stream: The name of a stream in the catalogue, or its properties.
        name: In SQL; by default the stream's. A table of that name is replaced. SQL has
            to quote a name that is not in lower case.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Returns:
        The table of that name.

    Raises:
        MisuseError: misuse; properties without a name are registered without one.
        NotInstalled: plugin; names the command that installs DataFusion.
        ConfigError: config; every problem at once.
        StreamError: The source's, when it is asked for its schema.
    """
    load("datafusion")
    CONTEXT.checked("context", context)
    found = dataset(stream, **how)
    # Quoted, or DataFusion splits it at dots and lowers its letters.
    quoted = '"{}"'.format(view_name(name, found.name).replace('"', '""'))
    if context.table_exist(quoted):
        context.deregister_table(quoted)
    context.register_dataset(quoted, found)
    return context.table(quoted)
