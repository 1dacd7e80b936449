"""What Spark's users read of a failure: its code, and what to do.

Only text crosses from a Python worker, and Spark shows causes before what matters.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator


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
