"""``postgres``: tables of PostgreSQL. What the entry point leads to."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
from psycopg import errors
from streamfactory import spi

from streamfactory_postgres.admin import TableAdmin
from streamfactory_postgres.layout import topic_problem
from streamfactory_postgres.reading import TableConsumerFactory
from streamfactory_postgres.writing import TableProducerFactory


def address_problem(text: str) -> str | None:
    """What is wrong with the address of a server; None if nothing."""
    host, _, port = text.rpartition(":")
    if host and port.isascii() and port.isdecimal() and int(port) < 65536:
        return None
    return "is not host:port"


def tls_problem(text: str) -> str | None:
    """What is wrong with a mode of TLS; None if nothing."""
    modes = ("disable", "prefer", "require", "verify-ca", "verify-full")
    return None if text in modes else f"is none of {', '.join(modes)}"


def check_options(
    config: spi.StreamConfig, role: spi.Role | None
) -> Iterator[spi.Problem]:
    """Rules over several options."""
    if config.given("change.column") and not config.given("key.columns"):
        yield config.problem("change.column", "needs key.columns")
    if config.given("tls.ca.file") and config["tls"] in {"disable", "prefer"}:
        what = "has no effect without tls=require, verify-ca or verify-full"
        yield config.problem("tls.ca.file", what, level="warning")


CONNECTION: tuple[spi.Option, ...] = (
    spi.Option(
        "address",
        "Host and port of the server; a folder instead of a host for its socket.",
        default="127.0.0.1:5432",
        validator=address_problem,
    ),
    spi.Option("database", "Name of the database.", default="postgres"),
    spi.Option("user", "Name of the user; by default that of the process."),
    spi.Option("password", "Password of the user.", secret=True),
    spi.Option(
        "tls",
        "Whether to use TLS: disable, prefer, require, verify-ca or verify-full.",
        default="prefer",
        validator=tls_problem,
    ),
    spi.Option("tls.ca.file", "PEM file of the authority.", spi.PATH),
    spi.Option(
        "state.schema",
        "Schema in which this stream type remembers writers and topics.",
        default="streamfactory",
    ),
)
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
        options=(
            spi.Option(
                "topic.name",
                "Name of the table, with its schema where that is not public.",
                required=True,
                validator=topic_problem,
            ),
            *CONNECTION,
            spi.Option(
                "columns",
                "Columns that are read and written; by default all. Others get their "
                "default value where rows are written.",
                spi.LIST,
            ),
            spi.Option(
                "offset.column",
                "Column that numbers the rows in the order of decided transactions.",
                default="_offset",
            ),
            spi.Option(
                "timestamp.column", "Column of times, for starts and lags by time."
            ),
            spi.Option(
                "poll.interval.millis",
                "How often to look for rows whose writers notify nobody.",
                spi.PERIOD,
                default="500ms",
                minimum=1,
            ),
            spi.Option(
                "delete.acknowledged",
                "Delete rows from the table once they were stored elsewhere.",
                spi.BOOLEAN,
                default="false",
            ),
            spi.Option(
                "key.columns",
                "Columns of a unique key: rows are updated by it instead of appended.",
                spi.LIST,
            ),
            spi.Option(
                "change.column",
                "Column of rows that names their change, such as _change: delete and "
                "update_before remove the row of the key.",
            ),
            spi.Option(
                "staged.retention.millis",
                "How long rows of an undecided epoch are kept.",
                spi.PERIOD,
                default="7d",
                minimum=60_000,
            ),
        ),
        consumer_factory=TableConsumerFactory,
        producer_factory=TableProducerFactory,
        topic_admin=TableAdmin,
        check_options=check_options,
        translate=TRANSLATE,
    )
