"""``postgres``: tables of PostgreSQL. What the entry point leads to."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
from psycopg import errors
from streamfactory import spi

from streamfactory_postgres.admin import TableAdmin
from streamfactory_postgres.options import OPTIONS
from streamfactory_postgres.reading import TableConsumerFactory
from streamfactory_postgres.writing import TableProducerFactory


def check_options(
    config: spi.StreamConfig, role: spi.Role | None
) -> Iterator[spi.Problem]:
    """Rules over several options."""
    if config.given("change.column") and not config.given("key.columns"):
        yield config.problem("change.column", "needs key.columns")
    chosen = config.get("columns")
    for key in config.get("key.columns") or ():
        if chosen is not None and key not in chosen:
            yield config.problem("key.columns", f"has {key!r}, which columns lacks")
    if config.given("tls.ca.file") and config["tls"] in {"disable", "prefer"}:
        what = "has no effect without tls=require, verify-ca or verify-full"
        yield config.problem("tls.ca.file", what, level="warning")


TRANSLATE = spi.ErrorTable(
    {
        errors.InvalidAuthorizationSpecification: spi.NotAuthorized,
        errors.InvalidPassword: spi.NotAuthorized,
        errors.InsufficientPrivilege: spi.NotAuthorized,
        errors.InvalidCatalogName: spi.TopicNotFound,
        errors.UndefinedTable: spi.TopicNotFound,
        errors.InvalidSchemaName: spi.TopicNotFound,
        errors.UndefinedColumn: spi.SchemaMismatch,
        errors.IntegrityError: spi.SchemaMismatch,
        errors.DataError: spi.SchemaMismatch,
        errors.InvalidColumnReference: spi.SchemaMismatch,
        errors.UndefinedObject: spi.TopicNotFound,
        errors.ObjectInUse: spi.TransientError,
        errors.ConfigurationLimitExceeded: spi.TransientError,
        errors.QueryCanceled: spi.StreamTimeout,
        errors.LockNotAvailable: spi.StreamTimeout,
        errors.ConnectionTimeout: spi.StreamTimeout,
        errors.DiskFull: spi.StorageFailed,
        errors.SerializationFailure: spi.TransientError,
        errors.DeadlockDetected: spi.TransientError,
        psycopg.OperationalError: spi.ConnectionFailed,
        psycopg.InterfaceError: spi.ConnectionFailed,
        psycopg.Error: spi.PermanentError,
        # A value of the database that Arrow does not have, such as the date infinity.
        pa.ArrowInvalid: spi.CorruptData,
    },
    {
        "28P01": spi.NotAuthorized,
        "28000": spi.NotAuthorized,
        "3D000": spi.TopicNotFound,
    },
    code_of=lambda error: _login_code(error),
)


def _login_code(error: BaseException) -> str | None:
    """The code of a refused login, of which the client keeps the text alone."""
    text = str(error) if isinstance(error, psycopg.OperationalError) else ""
    if "password authentication failed" in text or "no pg_hba.conf entry" in text:
        return "28P01"
    if "certificate verify failed" in text:
        return "28000"
    return "3D000" if 'database "' in text and "does not exist" in text else None


@spi.hookimpl
def streamfactory_backend() -> spi.Backend:
    """The stream type, its options and its factories."""
    return spi.Backend(
        name="postgres",
        doc="Tables of PostgreSQL: typed rows.",
        spi_level=1,
        options=OPTIONS,
        consumer_factory=TableConsumerFactory,
        producer_factory=TableProducerFactory,
        topic_admin=TableAdmin,
        check_options=check_options,
        translate=TRANSLATE,
    )
