"""What a request for a page asks for, and what its template needs."""

from __future__ import annotations

from typing import Any

from flask import abort, g, request

from streamfactory.spi import MisuseError
from streamfactory.ui.catalogue import catalogue


def note(answers: Any) -> None:
    """Have the page load itself again while an answer is pending."""
    if any(answer.pending for answer in answers):
        g.pending = True


def stream_name() -> str:
    """The name of the stream that the request names."""
    name, other = request.args.get("stream", ""), request.args.get("name", "")
    if name and other and name != other:
        msg = "stream and name are two streams"
        raise MisuseError(msg, remedy="give one of them")
    name = name or other
    return catalogue().get(name).name


def number(key: str, default: int) -> int:
    """A number that the request has, which its route declares."""
    return int(request.args.get(key) or default)


def first(count: int, size: int, *, known: bool = True) -> int:
    """The index of the first row of the page that the request names.

    Args:
        count: Rows of all pages.
        size: Rows of one.
        known: Whether the number of rows is known.

    Raises:
        NotFound: There is no such page.
    """
    page, last = number("page", 1), max(0, count - 1) // size + 1
    if known and page > last:
        abort(404, f"There is no page {page}: the last one is {last}.")
    return (min(page, last) - 1) * size


def paging(count: int, first: int, size: int) -> dict[str, Any]:
    """What templates need for a table of several pages."""
    return {
        "count": count,
        "page": first // size + 1,
        "pages": max(1, -(-count // size)),
    }
