"""Topic administration, for stream types that support it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from streamfactory.spi.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from streamfactory.spi.config import StreamConfig


LONGEST_NAME: Final = 249
"""Maximum characters of a topic name: Kafka's limit, for every stream type."""

LEFT_OVER: Final = "left over"
"""Fact of a topic: how many files or folders killed processes left in it."""

TO_COMPACT: Final = "files to compact"
"""Fact of a topic: how many of its files `TopicAdmin.compact` replaces by fewer."""


def topic_name_problem(name: str) -> str | None:
    """Return why a topic name is invalid; None if it is valid.

    The validator of ``topic.name``. A stream type may restrict names further.
    """
    if not name.strip():
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    # A line break in a name would make two lines of a log or a table.
    return None if name.isprintable() else "contains a control character"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a topic.

    Args:
        rows: Rows read, of all partitions.
        problems: Each has the file and the cause.
    """

    rows: int
    problems: tuple[str, ...] = ()


class TopicAdmin:
    """Topics of one configuration. Thread-safe. Named by ``Backend.topic_admin``.

    Created and called by the framework: `Admin`, the command ``topics`` and ``check``,
    never while rows are read or written. ``create`` and ``delete`` are called once, in
    the caller's thread; the other methods are repeated after transient errors, and
    called in a thread of their own if the caller is in the main thread.

    Override the supported methods; the defaults raise `Unsupported`. Names, bounds and
    schemas are returned by the `MetadataProvider`.

    Args:
        config: The stream's configuration, validated.
    """

    ONE_PARTITION: ClassVar[bool] = False
    """True: every topic has one partition, whatever the source of its rows has."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        """Create a topic.

        Args:
            topic: Its name.
            schema: Of its rows; None for undecoded messages.
            partitions: Their number; None for that of the configuration.

        Raises:
            MisuseError: misuse; the topic exists.
        """
        self._refuse("create")

    def grow(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions; a smaller number is a `MisuseError`."""
        self._refuse("grow")

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the messages before these offsets, by partition; exclusive.

        Where a write is kept as a whole, as in a snapshot of a table, all of the one
        that has the offset stays.
        """
        self._refuse("truncate")

    def retain(self, topic: str, hold: Mapping[int, int]) -> None:
        """Apply the configured retention immediately.

        Args:
            topic: Its name.
            hold: By partition, an offset that a reader still needs: messages from there
                on are kept.
        """
        self._refuse("apply retention to")

    def delete(self, topic: str) -> None:
        """Delete a topic and all its messages.

        Raises:
            TopicNotFound: permanent.
        """
        self._refuse("delete")

    def compact(self, topic: str) -> None:
        """Merge small files and remove unused ones; offsets are unchanged."""
        self._refuse("compact")

    def verify(self, topic: str) -> Verification:
        """Read all messages, and check them against the commits."""
        self._refuse("verify")

    def facts(self, topic: str) -> Mapping[str, str | int]:
        """Return properties to show with the partitions: files, bytes, writers, ...

        `LEFT_OVER` counts what killed processes left, and `compact` removes;
        `TO_COMPACT` files that it replaces. ``doctor`` shows both.
        """
        return {}

    def settings(self, topic: str) -> Mapping[str, str]:
        """Return topic settings that affect readers.

        Retention and compaction, for example. ``check`` shows them; `facts` may contain
        them too.

        Raises:
            NotAuthorized: permanent; the reader's credentials may not see them.
        """
        return {}

    def close(self) -> None:
        """Release all resources. Called once."""

    def _refuse(self, verb: str) -> NoReturn:
        msg = f"stream type {self.config.type!r} cannot {verb} topics"
        raise Unsupported(msg)
