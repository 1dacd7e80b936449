"""An entry point: where bytes of others enter, and how the fuzz suite feeds it."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, final
from unittest.mock import patch

from streamfactory.arrowlog import clocks
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    import random
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from tests.fuzz.corpus import Seed

    from streamfactory.wiring.config.settled import Configured

VARIED: float = 0.4
"""How many inputs are sound, and differ: what is behind the first check is reached."""
_AMPLIFIED: float = 0.02
"""How many inputs are made of what grows: these are slow."""


class Entry(ABC):
    """One entry point. Used by one thread of one process.

    Args:
        folder: Its own; empty.
        seeds: Streams and files of Arrow.
    """

    NAME: ClassVar[str]
    SHARE: ClassVar[int] = 1
    """How many inputs it gets, in relation to others."""
    TOLERANT: ClassVar[bool] = False
    """Whether damage is no reason to refuse: nearly all inputs are accepted."""
    MESSAGES: ClassVar[int] = 1
    """How many inputs go in at once, each damaged by itself."""

    def __init__(self, folder: Path, seeds: Sequence[Seed]) -> None:
        self.folder = folder
        self._plain = [seed for seed in seeds if not seed.amplifies]
        self._growing = [seed for seed in seeds if seed.amplifies]
        self.prepare()

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Make what all inputs share."""

    @abstractmethod
    def make(self, chance: random.Random) -> bytes:
        """An input. The same chance makes the same."""

    @abstractmethod
    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        """Hand an input in; yields every batch that is handed out.

        Raises:
            StreamError: The input was refused, as it should be.
        """

    def check(self) -> str | None:
        """What an input did that it may not; None where all is well."""
        return None

    def accepted(self) -> int:
        """Accepted messages of the last input, which was not refused as a whole."""
        return self.MESSAGES

    def close(self) -> None:  # noqa: B027 - most have nothing
        """Close what `prepare` opened."""

    @final
    def seed(self, chance: random.Random) -> Seed:
        """A seed; now and then one that grows."""
        grows = bool(self._growing) and chance.random() < _AMPLIFIED
        return chance.choice(self._growing if grows else self._plain)


def configured(properties: Mapping[str, str]) -> Configured:
    """A stream to be read, by its properties."""
    return configure(from_mapping(properties), default_manager(), use="read")


@contextmanager
def numbered() -> Iterator[None]:
    """Names and times that are the same whenever a topic is made."""
    numbers = iter(range(1, 1_000_000))
    with (
        patch.object(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers), version=4)),
        patch.object(clocks, "_machine", lambda: 1_790_000_000_000.0),
    ):
        yield
