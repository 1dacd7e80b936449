"""Kafka's part of the compiled core, as types; see native/src/kafka_classes.rs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.compiled.buffers import Bytes

    Binary = tuple[Bytes | None, Bytes, Bytes]
    """Validity, None where all values are valid; offsets; data."""
    Headers = tuple[int, Bytes | None, Bytes, Binary, Binary]
    """Number of pairs; validity and offsets of the lists; names; values."""
    Buffers = tuple[
        Binary, Binary, Bytes, tuple[Bytes | None, Bytes], Bytes, Headers | None
    ]
    """Keys, values, offsets, times, kinds of times, headers."""
    Failure = tuple[int, str]
    """Code and text of librdkafka."""
    Given = tuple[int, Sequence[pa.Buffer | None]] | None
    """Index of the first row, and the buffers; None where all values are null."""


class Queue(Protocol):
    """A queue of librdkafka. It is not closed when it is collected."""

    def purge(self) -> None:
        """Drop what the queue contains."""

    def close(self) -> None:
        """Close the queue; drops what it contains, and what is forwarded later."""


class Rows(Protocol):
    """Messages of one partition that are sent."""

    @property
    def next(self) -> int:
        """Index of the next row to be sent."""

    @property
    def error(self) -> int:
        """The code of librdkafka for refusing that row; 0 without."""


class Client(Protocol):
    """A client of librdkafka. Thread-safe; after its end without effect."""

    def partition_queue(self, topic: str, partition: int, /) -> Queue | None:
        """Return the queue of a partition, and end its forwarding."""

    def new_queue(self) -> Queue | None:
        """Return an empty queue, to which partitions can be forwarded."""

    def forward(self, topic: str, partition: int, queue: Queue, /) -> bool:
        """Have the queue of a partition add to another; false if it has none."""

    def send(
        self,
        topic: str,
        partition: int,
        rows: Rows,
        most: int,
        milliseconds: int,
        /,
    ) -> int:
        """Send rows; returns a status."""

    def reset_reports(self) -> None:
        """Forget reports; no message may be waiting for its own."""

    def delivered(self) -> int:
        """Return how many messages were delivered."""

    def first_failure(self) -> tuple[int, str, int, int] | None:
        """Return code, topic, partition and bytes of the first that was not."""


class Columns(Protocol):
    """Rows of one partition, to which messages are added. For one thread."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""

    @property
    def next_offset(self) -> int:
        """After the last row; that of a message that was refused."""

    def fill(self, queue: Queue, wanted: int, most: int, milliseconds: int, /) -> int:
        """Add messages; returns a status."""

    def filled(self) -> tuple[int, int, int | None, Failure | None]:
        """Return messages and events, rows, end and error of the last call."""

    def take(self) -> Buffers:
        """Return the buffers, once. The numbers stay, and nothing can be added."""


class Parts(Protocol):
    """Rows of several partitions, to which messages are added. For one thread."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""

    @property
    def received(self) -> int:
        """Messages and events of the last call."""

    @property
    def failed(self) -> tuple[str, int, int, Failure | None] | None:
        """Topic, partition (-1 without one), next offset and error of what failed."""

    def fill(self, queue: Queue, wanted: int, most: int, milliseconds: int, /) -> int:
        """Add messages; returns a status."""

    def ends(self) -> Sequence[tuple[str, int, int]]:
        """Return topics, partitions and their ends that the last poll reached."""

    def take(self) -> Sequence[tuple[str, int, Columns]]:
        """Return the columns that have rows; none are left."""


class Kafka(Protocol):
    """The functions and classes. `bind` is called before all others."""

    def bind(self, path: str, /) -> int:
        """Use the librdkafka of a library; returns its version.

        Raises:
            OSError: It cannot be loaded, or has not all functions.
        """

    def try_plugin(self, path: str, /) -> None:
        """Check that librdkafka loads the core as a plug-in.

        Raises:
            OSError: It does not.
        """

    def take_client(self) -> Client | None:
        """Return the client that this thread created last, once."""

    def Columns(self, headers: bool, /) -> Columns:  # noqa: N802 - a class
        """Return columns without rows."""

    def Parts(self, headers: bool, /) -> Parts:  # noqa: N802 - a class
        """Return columns of no partition."""

    def Rows(  # noqa: N802 - a class
        self,
        count: int,
        keys: Given,
        values: Given,
        times: Given,
        headers: Given,
        pairs: int,
        names: Given,
        header_values: Given,
        /,
    ) -> Rows:
        """Return messages; `headers` are lists of pairs of names and values."""
