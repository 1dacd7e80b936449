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
from sqlalchemy.exc import OperationalError

from streamfactory.spi import (
    ConnectionFailed,
    FormatRefused,
    NotAuthorized,
    TopicNotFound,
)
from streamfactory.tables import error_table

TRANSLATION: Final = error_table(
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
                OperationalError,
                RequestFailed,
                ServerError,
                ServiceUnavailableError,
                TooManyRequestsError,
            ),
            ConnectionFailed,
        ),
    }
)
