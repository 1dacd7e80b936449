"""``hudi``: Apache Hudi tables as streams.

A stream is a snapshot of the table, then the changes of each commit, of copy-on-write
and merge-on-read tables. Read-only. The timeline is read by this package, data files by
Arrow, and ``hudi`` (hudi-rs) merges log files into their base file. See
`streamfactory.tables` for offsets.
"""

from __future__ import annotations

from streamfactory.backends.hudi.options import OPTIONS
from streamfactory.spi import Backend, hookimpl
from streamfactory.spi.hooks import import_later, require_installed
from streamfactory.tables import check_options, table_folder

__all__ = ["streamfactory_backend"]

require_installed("hudi", "fastavro")


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="hudi",
        doc="Apache Hudi tables: a snapshot, then the changes of each commit.",
        spi_level=1,
        consumer_factory=import_later(f"{__name__}.reading", "HudiConsumerFactory"),
        options=OPTIONS,
        translate=import_later(f"{__name__}.errors", "TRANSLATION"),
        check_options=check_options,
        bare_hints={
            "hoodie.datasource.query.type": "a snapshot and then changes are read; "
            "set start.commit to leave out the snapshot",
            "hoodie.datasource.read.begin.instanttime": "set start.commit, which is "
            "inclusive",
            "hoodie.datasource.read.end.instanttime": "set endingOffsets or the end "
            "of a run",
        },
        markers=(table_folder("hudi"),),
    )
