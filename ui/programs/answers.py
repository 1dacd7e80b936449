"""What answers to programs have in common: JSON, ETags, conditions, and waiting."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from flask import Response, abort, request
from werkzeug.exceptions import PreconditionRequired

from streamfactory.spi import StreamTimeout
from streamfactory.ui.parameters import Parameter
from streamfactory.ui.problems import Failed
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PREFIX: Final = "/api/v1"
JSON: Final = "application/json"
WAIT: Final = 10.0
"""Seconds that an answer waits for a stream's server."""
MOST_WAITING: Final = 4
"""Answers that wait at a time, each in one of the server's 8 threads: the pages need
the others."""
waiting = threading.BoundedSemaphore(MOST_WAITING)
DRY_RUN: Final = Parameter(
    "dry_run", "true shows what would be changed, and changes nothing.", words=("true",)
)


def ask(key: Hashable, function: Callable[[], Any], *, large: bool = False) -> Any:
    """The result of a function that may wait for a server.

    Raises:
        StreamTimeout: transient; it takes longer than `WAIT`, or as long as a page
            waits where `MOST_WAITING` answers are waited for.
        Failed: It raised an error.
    """
    with patience() as patient:
        wait = WAIT if patient else None
        answer = site().lookups.ask_all({key: function}, large=large, wait=wait)[key]
    if answer.error is not None:
        raise Failed(answer.error)
    if answer.pending:
        msg = f"no answer within {WAIT:g} s"
        if not patient:
            msg = f"no answer yet, and {MOST_WAITING} other requests are waiting"
        raise StreamTimeout(msg, remedy="ask again: it is being looked up")
    return answer.value


@contextmanager
def patience(
    turns: threading.BoundedSemaphore = waiting,
) -> Iterator[bool]:
    """Whether an answer may wait in the block: by default `MOST_WAITING` may."""
    patient = turns.acquire(blocking=False)
    try:
        yield patient
    finally:
        if patient:
            turns.release()


@contextmanager
def turn() -> Iterator[None]:
    """The turn of a change, which may wait for a server.

    Raises:
        StreamTimeout: transient; `MOST_WAITING` answers are waited for.
    """
    with patience() as patient:
        if not patient:
            msg = f"nothing is changed: {MOST_WAITING} other requests are waiting"
            raise StreamTimeout(msg, remedy="send it again")
        yield


def json_answer(document: Any, *, status: int = 200, tag: str = "") -> Response:
    """A document with an ETag; to a client that has it, 304 without it.

    Args:
        document: Plain values.
        status: Of the answer.
        tag: The ETag, of a state that changes depend on; by default that of the
            document. The document may have more than the state, so it is sent again.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    content = text.encode("utf-8", "backslashreplace")
    response = Response(content, status, mimetype=JSON)
    response.set_etag(tag or _digest(content))
    if not tag:
        response.make_conditional(request)
    return response


def tag_of(state: str) -> str:
    """The ETag of a state that a change depends on."""
    return _digest(state.encode("utf-8", "surrogatepass"))


def is_dry() -> bool:
    """Whether the request only asks what a change would do."""
    return "dry_run" in request.args


def expect(tag: str) -> None:
    """Refuse a change of what is not as the client saw it.

    Args:
        tag: The ETag of the state now; empty if there is nothing.

    Raises:
        PreconditionRequired: 428; the client sent no ``If-Match``.
        PreconditionFailed: 412; it sent another ETag, or one of nothing.
    """
    if "If-Match" not in request.headers:
        text = "Send If-Match with the ETag of what is changed: dry_run=true has it."
        raise PreconditionRequired(text)
    if not tag or not request.if_match.contains(tag):
        abort(412, "It has changed since the ETag of If-Match: ask for it again.")


def expect_nothing(*, exists: bool) -> None:
    """Refuse to create what exists, or without ``If-None-Match: *``.

    Raises:
        PreconditionRequired: 428; the client sent no condition.
        PreconditionFailed: 412; there is something, or it sent ``If-Match``.
    """
    if "If-Match" in request.headers:
        abort(412, "There is nothing that If-Match could match.")
    if not request.if_none_match.star_tag:
        text = "To create something, send If-None-Match: *."
        raise PreconditionRequired(text)
    if exists:
        abort(412, "It exists: change it with If-Match.")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
