"""Errors as text, and the error of a defect in the framework itself."""

from __future__ import annotations

from streamfactory.spi.errors import StreamError


class InternalError(StreamError):
    """A defect of the framework: no input of a user should cause it."""

    code = "internal"
    default_remedy = "run it again with --verbose, and report what it prints"


def with_code(error: StreamError) -> str:
    """The text of an error for people, with its code, which `docs/errors.md` lists."""
    return f"[{error.code}] {error}"
