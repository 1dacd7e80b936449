"""The catalog of an Iceberg table: it states which metadata is the newest."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from streamfactory.arrowlog.disk.rules import scheme_of
from streamfactory.backends.iceberg.checks import DAMAGE, refusal_of
from streamfactory.backends.iceberg.confined import confine, confining
from streamfactory.backends.iceberg.rules import is_embedded
from streamfactory.spi import ConfigError, FormatRefused, StreamError, TopicNotFound
from streamfactory.tables.places import path_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.sorting import SortOrder

    from streamfactory.spi import StreamConfig

_DATABASE: Final = "catalog.db"
_WAITS: Final = "60"
"""Seconds for which a commit waits for others in the same SQLite database."""
_RACES: Final = 5
"""Processes that create one database at the same time try so often."""
_STORE: Final = {
    "storage.endpoint": "s3.endpoint",
    "storage.region": "s3.region",
    "storage.access.key": "s3.access-key-id",
    "storage.secret.key": "s3.secret-access-key",
    "storage.token": "s3.session-token",
}
"""Our options of S3, as pyiceberg names them."""
_CREATED: Final = {
    "format-version": "2",
    # Each commit writes the metadata again: else all versions stay.
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of a new table."""


@final
class TableCatalog:
    """Finds and creates one table. Thread-safe; a forked child opens it again.

    Args:
        config: Names the table and the catalog.
    """

    def __init__(self, config: StreamConfig) -> None:
        self._config = config
        self.name: str = config["table"]
        self._lock = threading.Lock()
        self._opened: tuple[int, Catalog] | None = None
        """With the process that has opened it."""

    def load(self) -> Table:
        """The table as of its newest commit, looked up now.

        Raises:
            TopicNotFound: permanent; there is none.
            FormatRefused: permanent; its metadata is damaged, too long, names code, or
                is outside of the embedded catalog's folder.
        """
        catalog = self._catalog(create=False)
        if catalog is not None:
            with suppress(NoSuchTableError, NoSuchNamespaceError):
                return self._checked(catalog)
        what = f"the catalog {self._config['catalog']!r} has no table {self.name!r}"
        if is_embedded(self._config):
            what = f"the warehouse {self._config['warehouse']!r} has no table "
            what += repr(self.name)
        raise TopicNotFound(what)

    def _checked(self, catalog: Catalog) -> Table:
        try:
            table = catalog.load_table(self.name)
        except StreamError:
            raise
        except DAMAGE as error:
            what = f"the metadata of the table {self.name!r} {refusal_of(error)}"
            raise FormatRefused(what) from error
        if is_embedded(self._config):
            path_below(str(_folder(self._config)), table.location())
        return table

    def create(
        self,
        schema: Schema,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
    ) -> None:
        """Create the table; no error if another process was first."""
        catalog = self._catalog(create=True)
        assert catalog is not None
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace_if_not_exists(catalog.namespace_from(self.name))
        with suppress(TableAlreadyExistsError):
            catalog.create_table(
                self.name,
                schema,
                partition_spec=spec,
                sort_order=order,
                properties={**_CREATED, **properties},
            )

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def _catalog(self, *, create: bool) -> Catalog | None:
        """The catalog; None where the embedded one does not exist."""
        with self._lock:
            process = os.getpid()
            if self._opened is None or self._opened[0] != process:
                made = self._embedded if is_embedded(self._config) else self._named
                catalog = made(create=create)
                if catalog is None:
                    return None
                self._opened = process, catalog
            return self._opened[1]

    def _embedded(self, *, create: bool) -> Catalog | None:
        # Imported here: other catalogs need no SQL.
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy import URL
        from sqlalchemy.exc import OperationalError

        folder = _folder(self._config)
        database = folder / _DATABASE
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        elif not database.exists():
            return None
        url = URL.create("sqlite", database=str(database), query={"timeout": _WAITS})
        ours = confining(self._config["log.max.bytes"], str(folder))
        properties = self._config.client_properties("catalog") | {
            "uri": url.render_as_string(hide_password=False),
            "warehouse": f"file://{folder}",
        }
        name = self._config["catalog"]
        for left in reversed(range(_RACES)):
            try:
                return confine(SqlCatalog(name, **properties, **ours), ours)
            except OperationalError:  # another process creates the same tables
                if not left:
                    raise
        return None

    def _named(self, *, create: bool) -> Catalog:
        config = self._config
        given = {_STORE[key]: config[key] for key in _STORE if key in config}
        if "warehouse" in config:
            place = config["warehouse"]
            local = f"file://{Path(place).absolute()}"
            given["warehouse"] = place if scheme_of(place) else local
        given |= config.client_properties("catalog")
        ours = confining(config["log.max.bytes"], None)
        try:
            return confine(load_catalog(config["catalog"], **given, **ours), ours)
        except (ValueError, ImportError) as error:
            what = f"the catalog {config['catalog']!r} cannot be opened: {error}"
            remedy = f"check stream.{config.type}.catalog.prop.*"
            raise ConfigError(what, stream=config.name, remedy=remedy) from error


def _folder(config: StreamConfig) -> Path:
    """The warehouse of the embedded catalog."""
    return Path(config["warehouse"]).absolute()
