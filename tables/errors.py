"""Translates failures of the storage of tables, for all formats.

Only the text of an error has its cause: Arrow's file systems raise ``OSError`` with the
code or the status of the store, the Rust clients of ``deltalake`` and ``hudi`` raise
their own types with a description of the status.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.objectclient import not_authorized
from streamfactory.arrowlog.disk.storage import remedy_of
from streamfactory.spi import (
    ConnectionFailed,
    ErrorTable,
    NotAuthorized,
    StorageFailed,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamError

STORE_ERRORS: Final[Mapping[type[BaseException], type[StreamError]]] = {
    PermissionError: NotAuthorized,
    TimeoutError: StreamTimeout,
    ConnectionError: ConnectionFailed,
    OSError: StorageFailed,
}
"""By the type of an error of the operating system, the most specific first."""

_STATUS: Final = re.compile(
    r"HTTP status (\d{3})|status code: (\d{3})|HTTP response code: (\d{3})"
    r"|\bstatus: (\d{3})"
)
_REFUSED: Final = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH"
    r"|INVALID_SIGNATURE|INVALID_CLIENT_TOKEN|MISSING_AUTHENTICATION_TOKEN"
    r"|UNRECOGNIZED_CLIENT|REQUEST_EXPIRED|PERMISSION_DENIED|UNAUTHENTICATED"
    r"|PermissionDenied|Unauthenticated|lacked valid authentication"
    r"|lacked the necessary privileges"
)
_PASSING: Final = re.compile(
    r"NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTL|INTERNAL_FAILURE"
    r"|REQUEST_TIMEOUT|UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED"
    r"|error sending request|HTTP error|[Oo]peration timed out|tcp connect error"
)
_OF_A_STORE: Final = re.compile(
    r"AWS Error|google::cloud|ObjectStore|object store|Generic (S3|GCS) error"
    r'|Error performing (GET|HEAD|POST|PUT)|RetryError|\bstore: "'
)
_MOST: Final = 300


def store_failure(error: BaseException, place: str) -> StreamError | None:
    """The error for a failure of the storage; None for one of the content of a file.

    Args:
        error: Raised by a client, or by a reader of a file that was opened.
        place: Path or URL that was read.

    Returns:
        `ConnectionFailed` or `StreamTimeout` (transient), `NotAuthorized` or
        `StorageFailed` (permanent).
    """
    kind = failure_kind(error)
    if kind is None:
        return None
    reason = re.sub(r"\?\S*", "", " ".join(str(error).split()))
    what = f"{place!r} cannot be read: {reason[:_MOST]}"
    remedy = remedy_of(error)  # of this machine: stores have no number of an error
    if kind is NotAuthorized and remedy is None:
        return not_authorized(what)
    return kind(what, remedy=remedy)


def failure_kind(error: BaseException) -> type[StreamError] | None:
    """Which failure of the storage an error is; None if it is of the content."""
    if isinstance(error, OSError) and error.errno is not None:
        return next(to for kind, to in STORE_ERRORS.items() if isinstance(error, kind))
    text = str(error)
    if not _OF_A_STORE.search(text):
        return None
    matched = _STATUS.search(text)
    status = int(next(filter(None, matched.groups()))) if matched else 0
    if status in (401, 403) or _REFUSED.search(text):
        return NotAuthorized
    if status in (408, 429) or (status >= 500 and status != 501):
        return ConnectionFailed
    return ConnectionFailed if _PASSING.search(text) else StorageFailed


def error_table(types: Mapping[type[BaseException], type[StreamError]]) -> ErrorTable:
    """The `Backend.translate` of a format: failures of the storage, then its own types.

    Args:
        types: Exceptions of the format's client.
    """
    kinds = {kind: kind for kind in STORE_ERRORS.values()}
    return ErrorTable({**types, **STORE_ERRORS}, kinds, failure_kind)
