"""``postgres-changes``: changes of tables of PostgreSQL."""

from __future__ import annotations

from streamfactory import spi

from streamfactory_postgres.backend import TRANSLATE
from streamfactory_postgres.changes.admin import ChangesAdmin
from streamfactory_postgres.changes.options import OPTIONS
from streamfactory_postgres.changes.reading import ChangesConsumerFactory


@spi.hookimpl
def streamfactory_backend() -> spi.Backend:
    """The stream type, its options and its factory."""
    return spi.Backend(
        name="postgres-changes",
        doc="Inserts, updates and deletes of a table of PostgreSQL, in commit order.",
        spi_level=1,
        options=OPTIONS,
        consumer_factory=ChangesConsumerFactory,
        topic_admin=ChangesAdmin,
        translate=TRANSLATE,
    )
