"""Work that makes many objects at a lower cost: imports, and lag of many partitions."""

from __future__ import annotations

import gc
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


_exempting = False


def exempt_imports() -> None:
    """Exempt what `importing` imports from the collections of this process.

    For a process that runs one command: where others run as well, it would keep their
    garbage.
    """
    global _exempting  # noqa: PLW0603 - of the process, as the collector is
    _exempting = True


@contextmanager
def importing() -> Iterator[None]:
    """Import without garbage collections: a fifth of the time, and no garbage."""
    with uncollected():
        yield
        if _exempting:
            gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects that are kept, without garbage collections in between.

    With 10,000 partitions of Kafka, whose client makes a future for each, collections
    take more than half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
