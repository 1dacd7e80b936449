"""How many bad messages a planned range may have before it fails (rule D3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import ErrorBudgetExceeded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RATIO_AFTER: Final = 1000
"""Messages before a ratio means anything."""
_SHOWN: Final = 10


@final
class Budget:
    """The errors of one partition's range. One thread at a time.

    Args:
        most: How many; None for any number.
        ratio: Which share of the messages; None for any.
    """

    def __init__(self, most: int | None, ratio: float | None) -> None:
        self._most = most
        self._ratio = ratio
        self._seen = self._bad = 0
        self._first: list[str] = []

    def begin(self) -> None:
        """Begin a range: what came before counts no more."""
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
            errors: The offset of each, and what is wrong with it.
            where: What an error is to say of the place.

        Raises:
            ErrorBudgetExceeded: decode; tells the first ten.
        """
        self._bad += len(errors)
        free = _SHOWN - len(self._first)
        self._first += [f"offset {offset}: {what}" for offset, what in errors[:free]]
        over = self._most is not None and self._bad > self._most
        if self._ratio is not None and self._seen >= _RATIO_AFTER:
            over = over or self._bad > self._ratio * self._seen
        if over:
            told = f"{self._bad} of {self._seen} messages are bad"
            msg = f"{told}: {'; '.join(self._first)}"
            raise ErrorBudgetExceeded(msg, **where)
