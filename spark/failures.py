"""What Spark's users read of a failure: its code, and what to do.

Only text crosses from a Python worker, and Spark shows causes before what matters.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator


_WORDS: Final = re.compile(
    r"StreamFactoryError: (\[[a-z_]+\] .*?)\s*(?:^\s*SQLSTATE|^\s+at |^===|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Ours in a text of Spark: what follows is its state, its code, or a trace of Java."""


class StreamFactoryError(RuntimeError):
    """A failure of ours, with its stable code in brackets."""


@contextmanager
def told() -> Iterator[None]:
    """Failures of our tree as text with their code, without causes."""
    try:
        yield
    except StreamError as error:
        msg = f"[{error.code}] {error}"
        raise StreamFactoryError(msg) from None


def reason(error: BaseException) -> str | None:
    """Our words in what Spark says of a failure; None where it is not one of ours.

    A streaming query's exception goes on with the state of the query after them.
    """
    found = _WORDS.findall(str(error))
    return found[-1] if found else None
