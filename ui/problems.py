"""Problem details of RFC 9457, and the rules for answers to programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from flask import Response, abort, request

if TYPE_CHECKING:
    from collections.abc import Mapping

ARROW: Final = "application/vnd.apache.arrow.stream"
PROBLEM: Final = "application/problem+json"
_AGAIN: Final = 1
"""Seconds after which a client may ask again for what was not there in time."""
_BY_CODE: Final = {
    "internal": 500,
    "offset_out_of_range": 409,
    "position_refused": 409,
    "schema_mismatch": 409,
    "topic_not_found": 404,
    "unknown_stream": 404,
    "unsupported": 409,
}
_BY_CLASS: Final = {
    "config": 409,  # a definition has to be changed first
    "data_loss": 409,
    "decode": 409,
    "misuse": 400,
    "permanent": 502,
    "plugin": 501,
    "transient": 503,
}
STATUSES: Final = tuple(sorted({*_BY_CODE.values(), *_BY_CLASS.values()}))
"""Of errors with a code; those of HTTP are in the description, too."""


class Failed(Exception):
    """A look-up failed.

    Args:
        error: As `StreamError.to_dict`.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["what"])
        self.error = error


def is_for_programs() -> bool:
    """Whether the request is one of the interface for programs."""
    return request.path.startswith("/api/")


def is_change() -> bool:
    """Whether the method of the request is one that changes something."""
    return request.method not in ("GET", "HEAD", "OPTIONS")


def problem(error: Mapping[str, Any]) -> Response:
    """The answer for an error of our tree.

    Args:
        error: As `StreamError.to_dict`, without secrets.
    """
    code = str(error["error"])
    status = _BY_CODE.get(code) or _BY_CLASS[str(error["class"])]
    more = {key: value for key, value in error.items() if key not in ("error", "what")}
    response = _answer(status, code, str(error["what"]), {"code": code, **more})
    if status == 503:
        response.headers["Retry-After"] = str(_AGAIN)
    return response


def http_problem(
    status: int, title: str, detail: str | None, right: str | None = None
) -> Response:
    """The answer for an error of HTTP, as an unknown path, or a missing right."""
    more = {} if right is None else {"right": right}
    response = _answer(status, title, detail or title, more)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _answer(status: int, title: str, detail: str, more: Mapping[str, Any]) -> Response:
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        **more,
    }
    content = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(
        content.encode("utf-8", "backslashreplace"), status, mimetype=PROBLEM
    )


def refuse_other_sites() -> None:
    """Refuse what pages of other sites embed; browsers name the site of a request."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if site not in ("same-origin", "none"):
        abort(403, "The request was sent by another site.")
