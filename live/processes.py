"""Objects that each process has of its own, so that a fork shares no connection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerProcess(Generic[T]):
    """One object in each process, made at its first use.

    After a fork the child makes another one. It keeps the inherited object, so that its
    connections are not closed, but does not use it.

    Args:
        make: Makes the object. It opens nothing yet.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def get(self) -> T:
        """The object of this process."""
        process = os.getpid()
        if process not in self._made:
            # If two threads race, one object is dropped, which has opened nothing.
            self._made.setdefault(process, self._make())
        return self._made[process]

    def existing(self) -> T | None:
        """The object of this process, if it was made."""
        return self._made.get(os.getpid())
