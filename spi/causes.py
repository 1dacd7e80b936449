"""Errors that other libraries raise: which ones are errors, and their texts."""

from __future__ import annotations


def is_failure(error: BaseException) -> bool:
    """Whether an exception reports an error, rather than an exit or an interrupt.

    PyO3 raises the panic of a library in Rust as a `BaseException`, of a class that
    each library has for itself.
    """
    return isinstance(error, Exception) or is_panic(error)


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust panicked."""
    return type(error).__name__ == "PanicException"


def first_line(error: BaseException, most: int = 500) -> str:
    """Return the first line of an error's text; the name of its type if it has none.

    Args:
        error: Of another library, whose text may be long, or hostile.
        most: Maximum number of characters.
    """
    lines = str(error).strip().splitlines()
    return lines[0][:most] if lines else type(error).__name__
