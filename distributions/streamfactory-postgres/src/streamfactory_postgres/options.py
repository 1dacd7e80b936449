"""Options of ``postgres``, and what is wrong with values of them."""

from __future__ import annotations

from typing import Final

from streamfactory import spi

from streamfactory_postgres.layout import topic_problem

_READ: Final = frozenset({"read"})
_WRITE: Final = frozenset({"write"})


def address_problem(text: str) -> str | None:
    """What is wrong with the address of a server; None if nothing."""
    host, _, port = text.rpartition(":")
    if host and port.isascii() and port.isdecimal() and int(port) < 65536:
        return None
    return "is not host:port"


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
        "Whether to use TLS, and what to check of the server's certificate.",
        spi.choice("disable", "prefer", "require", "verify-ca", "verify-full"),
        default="prefer",
    ),
    spi.Option("tls.ca.file", "PEM file of the authority.", spi.PATH),
    spi.Option(
        "state.schema",
        "Schema in which this stream type remembers writers and topics.",
        default="streamfactory",
    ),
)
OPTIONS: Final = (
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
        "timestamp.column",
        "Column of times, for starts and lags by time.",
        applies=_READ,
    ),
    spi.Option(
        "poll.interval.millis",
        "How often to look for rows whose writers notify nobody.",
        spi.PERIOD,
        default="500ms",
        minimum=1,
        applies=_READ,
    ),
    spi.Option(
        "delete.acknowledged",
        "Delete rows from the table once they were stored elsewhere.",
        spi.BOOLEAN,
        default="false",
        applies=_READ,
    ),
    spi.Option(
        "key.columns",
        "Columns of a unique key: rows are updated by it instead of appended.",
        spi.LIST,
        applies=_WRITE,
    ),
    spi.Option(
        "change.column",
        "Column of rows that names their change, such as _change: delete and "
        "update_before remove the row of the key.",
        applies=_WRITE,
    ),
    spi.Option(
        "staged.retention.millis",
        "How long rows of an undecided epoch are kept.",
        spi.PERIOD,
        default="7d",
        minimum=60_000,
        applies=_WRITE,
    ),
)
"""All of them, in the order of the reference."""
