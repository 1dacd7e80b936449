"""What a request for a page asks for, and what its template needs."""

from __future__ import annotations

from typing import Any

from flask import g, request

from streamfactory.ui.catalogue import catalogue


def note(answers: Any) -> None:
    """Have the page load itself again while an answer is pending."""
    if any(answer.pending for answer in answers):
        g.pending = True


def stream_name() -> str:
    """The name of the stream that the request names."""
    name = request.args.get("stream") or request.args.get("name", "")
    return catalogue().get(name).name


def number(key: str, default: int) -> int:
    """A number that the request has, at least the default."""
    text = request.args.get(key, "")
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return max(int(text), default)
    return default


def first(count: int, size: int) -> int:
    """The index of the first row of the page that the request names."""
    return min(number("page", 1) - 1, max(0, count - 1) // size) * size


def paging(count: int, first: int, size: int) -> dict[str, Any]:
    """What templates need for a table of several pages."""
    return {
        "count": count,
        "page": first // size + 1,
        "pages": max(1, -(-count // size)),
    }
