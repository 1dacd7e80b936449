"""What is closed when its ``with`` block ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that closes itself, whatever happened within."""

    @abstractmethod
    def close(self) -> None:
        """Give back all that was opened. Twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
