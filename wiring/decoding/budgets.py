"""The error budget: how many bad messages a range may have (rule D3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import ErrorBudgetExceeded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RATIO_AFTER: Final = 1000
"""Minimum messages before the ratio is checked."""
_SHOWN: Final = 10


@final
class Budget:
    """The error budget of one partition's range. Not thread-safe.

    Args:
        most: Maximum number of bad messages; None for no limit.
        ratio: Maximum share of the messages; None for no limit.
    """

    def __init__(self, most: int | None, ratio: float | None) -> None:
        self._most = most
        self._ratio = ratio
        self._seen = self._bad = 0
        self._first: list[str] = []

    def begin(self) -> None:
        """Begin a range: reset all counts."""
        self._seen = self._bad = 0
        self._first = []

    def saw(self, messages: int) -> None:
        """Count messages, bad ones among them."""
        self._seen += messages

    def spend(
        self, errors: Sequence[tuple[int, str]], where: Mapping[str, Any]
    ) -> None:
        """Count bad messages.

        Args:
            errors: The offset of each, and the cause.
            where: Stream and partition, for the error.

        Raises:
            ErrorBudgetExceeded: decode; has the first ten.
        """
        self._bad += len(errors)
        free = _SHOWN - len(self._first)
        self._first += [f"offset {offset}: {what}" for offset, what in errors[:free]]
        over = self._most is not None and self._bad > self._most
        if self._ratio is not None and self._seen >= _RATIO_AFTER:
            over = over or self._bad > self._ratio * self._seen
        if over:
            message = f"{self._bad} of {self._seen} messages are bad"
            msg = f"{message}: {'; '.join(self._first)}"
            raise ErrorBudgetExceeded(msg, **where)
