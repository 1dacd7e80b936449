"""What an operator does with topics, where a stream type can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from streamfactory.spi.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from streamfactory.spi.config import StreamConfig


LONGEST_NAME: Final = 249
"""Characters of a topic's name: Kafka's bound, for every stream type."""


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, in words that follow it; None if nothing.

    The validator of ``topic.name``. A stream type may allow less.
    """
    if not name.strip():
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    # A line break in a name would make two lines of a log or a table.
    return None if name.isprintable() else "holds a control character"


@dataclass(frozen=True, slots=True)
class Verification:
    """What reading a whole topic found."""

    rows: int
    """Rows read, of all partitions."""
    problems: tuple[str, ...] = ()
    """Each names the file, and says what is wrong."""


class TopicAdmin:
    """Topics of one configuration. Thread-safe. Named by ``Backend.topic_admin``.

    An ability is shown by overriding; the defaults raise `Unsupported`. Names, bounds
    and schemas are the `MetadataProvider`'s to answer.

    Args:
        config: The stream's configuration, validated.
    """

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        """Create a topic.

        Args:
            topic: Its name.
            schema: Of its rows; None for undecoded messages.
            partitions: How many; None for what the configuration says.

        Raises:
            MisuseError: misuse; there is one of that name.
        """
        self._refuse("create")

    def grow(self, topic: str, partitions: int) -> None:
        """Have so many partitions; fewer than there are is a `MisuseError`."""
        self._refuse("grow")

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        """Let go of everything before these offsets, by partition; exclusive."""
        self._refuse("truncate")

    def retain(self, topic: str, hold: Mapping[int, int]) -> None:
        """Apply the configured retention, now.

        Args:
            topic: Its name.
            hold: By partition, an offset that a reader still wants: nothing from there
                on is let go.
        """
        self._refuse("apply retention to")

    def delete(self, topic: str) -> None:
        """Delete a topic and all that it holds.

        Raises:
            TopicNotFound: permanent.
        """
        self._refuse("delete")

    def compact(self, topic: str) -> None:
        """Merge small files and sweep what nobody needs; offsets stay."""
        self._refuse("compact")

    def verify(self, topic: str) -> Verification:
        """Read everything, and check it against what was committed."""
        self._refuse("verify")

    def facts(self, topic: str) -> Mapping[str, str | int]:
        """What is worth showing beside partitions: files, bytes, writers, ..."""
        return {}

    def settings(self, topic: str) -> Mapping[str, str]:
        """What its owner has set of a topic that decides what readers find.

        How long it is retained, whether it is compacted. ``check`` shows it; `facts`
        may have it too.

        Raises:
            NotAuthorized: permanent; who may read need not be allowed to see it.
        """
        return {}

    def close(self) -> None:
        """Give back all that was opened."""

    def _refuse(self, verb: str) -> NoReturn:
        msg = f"{self.config.type} cannot {verb} topics"
        raise Unsupported(msg)
