"""Errors across the wire: our tree as `Failure` messages in the Flight status."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Failure
from streamfactory.spi import (
    ConnectionFailed,
    CorruptData,
    FormatRefused,
    IncarnationChanged,
    NotAuthorized,
    OffsetOutOfRange,
    Partition,
    PermanentError,
    PluginError,
    PositionRefused,
    StorageFailed,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    TransientError,
    errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST: Final = 2000
"""Maximum characters of a text: gRPC refuses trailers above 8 KiB."""


def _leaves(kind: type[StreamError]) -> Iterator[type[StreamError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _leaves(child)


_BY_CODE: Final = {kind.code: kind for kind in _leaves(StreamError)}
_REMEDIES: Final[dict[type[StreamError], str]] = {
    OffsetOutOfRange: "read from an offset between earliest and latest",
    IncarnationChanged: "describe the topic again: offsets of the one before are void",
    PositionRefused: "send a position as the Flight protocol describes it",
}
"""On the wire, for any client, in place of default remedies that concern our own."""
_STATUS: Final[tuple[tuple[type[StreamError], type[fl.FlightError]], ...]] = (
    (NotAuthorized, fl.FlightUnauthorizedError),
    (StreamTimeout, fl.FlightTimedOutError),
    (TransientError, fl.FlightUnavailableError),
    (CorruptData, fl.FlightInternalError),
    (StorageFailed, fl.FlightInternalError),
    (PluginError, fl.FlightInternalError),
)
"""Others are `FlightServerError`, gRPC's UNKNOWN: Arrow's server sends no details
beside the codes that would match a refused request."""
_FOREIGN: Final[tuple[tuple[type[BaseException], type[StreamError]], ...]] = (
    (fl.FlightUnauthenticatedError, NotAuthorized),
    (fl.FlightUnauthorizedError, NotAuthorized),
    (fl.FlightTimedOutError, StreamTimeout),
    (fl.FlightUnavailableError, ConnectionFailed),
    (fl.FlightCancelledError, ConnectionFailed),
    (fl.FlightInternalError, ConnectionFailed),
    (KeyError, TopicNotFound),
    (NotImplementedError, FormatRefused),
    (OSError, ConnectionFailed),
    (ValueError, FormatRefused),  # pyarrow.ArrowInvalid
)
"""Of servers that send no `Failure`, in this order."""
_PREFIX: Final = re.compile(r"^Flight returned [\w ]+ error, with message: ")
_DETAIL: Final = re.compile(r"\.? Detail: \w+$")
_NOT_CONNECTED: Final = re.compile(
    r"failed to connect to all addresses; last error: (?:\w+: )?(?:ipv[46]:\S+: )?"
    r"(?:Failed to connect to remote host: )?(?P<cause>.+)"
)
_UNKNOWN_CLIENT: Final = (
    "set or correct stream.flight.token, or ask the operator of the server"
)


def to_status(
    error: StreamError, status: type[fl.FlightError] | None = None
) -> fl.FlightError:
    """What a handler raises so that the client sees ``error``.

    Args:
        error: For one answer; a default remedy is replaced by one for any client.
        status: The Flight status; None for that of the error's type.
    """
    if error.remedy == error.default_remedy:
        error.remedy = _REMEDIES.get(type(error), error.remedy)
    partition = error.partition
    failure = Failure(
        error.code,
        error.what[:_LONGEST],
        None if error.remedy is None else error.remedy[:_LONGEST],
        None if partition is None else partition.topic,
        None if partition is None else partition.id,
        error.offset,
        getattr(error, "earliest", None),
        getattr(error, "latest", None),
        getattr(error, "retry_after_ms", None),
    )
    if status is None:
        status = next(
            (status for kind, status in _STATUS if isinstance(error, kind)),
            fl.FlightServerError,
        )
    return status(str(error)[:_LONGEST], extra_info=encode(failure))


def from_status(error: BaseException) -> StreamError | None:
    """The error that a Flight status stands for; None where it is not Flight's."""
    found = _translated(error)
    if found is not None and isinstance(error, fl.FlightUnauthenticatedError):
        found.remedy = _UNKNOWN_CLIENT  # the server's is for clients of any kind
    return found


def _translated(error: BaseException) -> StreamError | None:
    info = getattr(error, "extra_info", None)
    if isinstance(error, fl.FlightError) and info:
        try:
            return _rebuild(decode(bytes(info), Failure))
        except FormatRefused:
            pass  # an error of another program: its own text is shown
    for kind, ours in _FOREIGN:
        if isinstance(error, kind):
            return ours(_sentence(error))
    if isinstance(error, fl.FlightError):
        return PermanentError(_sentence(error))
    return None


def why_not_connected(error: BaseException) -> str | None:
    """Why no connection was made: nothing was sent then. None for other errors."""
    found = _NOT_CONNECTED.search(_sentence(error))
    return None if found is None else found["cause"]


def _sentence(error: BaseException) -> str:
    """The text without what Arrow and gRPC put around the server's own sentence.

    gRPC's debugging details quote addresses and frames.
    """
    text = str(error).partition(". gRPC client debug context:")[0][:_LONGEST]
    line = _DETAIL.sub("", _PREFIX.sub("", text.partition("\n")[0].rstrip()))
    return line or type(error).__name__


def _rebuild(failure: Failure) -> StreamError:
    kind = _BY_CODE.get(failure.code, PermanentError)
    # Without a remedy the default one of the type is shown: it names our options.
    remedy = None if failure.remedy == _REMEDIES.get(kind) else failure.remedy
    where: dict[str, Any] = {"remedy": remedy, "offset": failure.offset}
    if failure.topic and failure.partition is not None:
        with suppress(ValueError):  # sent by another server
            where["partition"] = Partition(failure.topic, failure.partition)
    if kind is OffsetOutOfRange:
        where |= {"earliest": failure.earliest, "latest": failure.latest}
    try:
        return kind(failure.what, **where)
    except TypeError:  # a leaf that needs more than crosses the wire
        return PermanentError(failure.what, **where)
