"""Translation of the exceptions of ``pyiceberg`` and Arrow's file systems."""

from __future__ import annotations

from typing import Final

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
)
from requests import ConnectionError as RequestFailed
from sqlalchemy.exc import DatabaseError, OperationalError

from streamfactory.spi import (
    ConnectionFailed,
    FormatRefused,
    NotAuthorized,
    StorageFailed,
    StreamError,
    TopicNotFound,
)
from streamfactory.tables import error_table

_DATABASE: Final = (
    "check the database of the catalog, catalog.db in stream.iceberg.warehouse or what "
    "stream.iceberg.catalog.prop.uri names, and that this user can write it"
)
_TABLE: Final = error_table(
    {
        ValidationError: FormatRefused,
        NoSuchTableError: TopicNotFound,
        **dict.fromkeys(
            (
                AuthorizationExpiredError,
                ForbiddenError,
                OAuthError,
                UnauthorizedError,
            ),
            NotAuthorized,
        ),
        # Of a commit whose result is not known, too: it is looked up before the next.
        **dict.fromkeys(
            (
                CommitStateUnknownException,
                RequestFailed,
                ServerError,
                ServiceUnavailableError,
                TooManyRequestsError,
            ),
            ConnectionFailed,
        ),
    }
)


def translate(error: BaseException) -> StreamError | None:
    """The error for an exception of the catalog or of its database; None if unknown."""
    if not isinstance(error, DatabaseError):
        return _TABLE(error)
    # Its own text has the statement and a link to the library's documentation.
    msg = f"the database of the catalog cannot be used: {error.orig}"
    kind = ConnectionFailed if isinstance(error, OperationalError) else StorageFailed
    return kind(msg, remedy=_DATABASE)
