"""``delta``: Delta Lake tables as streams.

A stream is a snapshot of the table, then the changes of each commit. Where the change
data feed of the table is on, updates and deletes are read from it; without it, commits
that only add rows are read. Each epoch that is written is a commit: of appended rows,
or of rows inserted, updated and deleted by key. See `streamfactory.tables` for offsets.
"""

from __future__ import annotations

from streamfactory.backends.delta.options import OPTIONS
from streamfactory.spi import Backend, hookimpl
from streamfactory.spi.hooks import import_later
from streamfactory.tables import check_options, table_folder

__all__ = ["streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="delta",
        doc="Delta Lake tables: a snapshot, then changes; appended, or written by key.",
        spi_level=1,
        consumer_factory=import_later(f"{__name__}.reading", "DeltaConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "DeltaProducerFactory"),
        topic_admin=import_later(f"{__name__}.topics", "DeltaTopicAdmin"),
        options=OPTIONS,
        translate=import_later(f"{__name__}.errors", "TRANSLATION"),
        check_options=check_options,
        bare_names={"startingversion": "start.commit"},
        bare_hints={
            "readchangefeed": "changes are read anyway, with their kind in _change",
            "ignorechanges": "set changes=appends to leave out commits that rewrite",
            "skipchangecommits": "set changes=appends",
            "ignoredeletes": "set changes=appends",
        },
        markers=(table_folder("delta"),),
    )
