"""The base class of objects with ``close`` that are context managers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that calls its ``close`` at the end of the block."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
