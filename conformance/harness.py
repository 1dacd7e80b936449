"""The interface that an author implements: access to the medium of a backend.

A harness reaches the medium **without the code under test**: it writes a file with
plain Python, a topic with the server's own client. A message is a number to the kit;
the harness turns numbers into messages, and rows back into numbers.

Optional methods are abilities: a case is skipped if the harness lacks one that it
needs, and the report names it.

``grow(partitions)``
    Increase the number of partitions to this number.
``truncate(partition, messages)``
    Delete this number of messages, the oldest first.
``tombstone(partition)``
    Append a message without a value.
``recreate()``
    Delete the stream and create it again, empty, with as many partitions.
``recreation_timeout: float``
    Seconds in which a reader of the old stream has to report that it was recreated;
    0.05 by default. For servers whose readers poll for it.
``gap(partition, offsets)``
    Skip this number of offsets after the last message, as compaction or markers do.
``finish(partition)``
    End a partition: no message will ever be added.
``unreachable(partition)``
    Make the source unavailable for one partition; the other partitions stay available.
``write_messages(partition, messages)``
    Append messages with key, headers and time: each is a
    `streamfactory.conformance.Message`. For a backend of envelopes. The next two
    attributes state what the medium cannot store.
``sample_headers: Sequence[Sequence[tuple[str, bytes | None]]]``
    Headers that it can store, for one message each; an empty sequence where it has no
    headers. By default `SAMPLE_HEADERS`: repeated names, bytes that are not text, and a
    null value.
``sets_timestamps: bool``
    False where the medium sets the time of each message itself: `Message.timestamp_ms`
    is ignored, and the cases of exact times are skipped. True by default.
``group_properties() -> Mapping[str, str]``
    Configuration of a member of a group, with ``prove``: a session timeout, where the
    source notices by it that a member was killed. A member waits 45 s for messages.
``raw_read(partition)``
    Read all messages of a partition with a client loop of the author's own: what
    ``--benchmark`` compares with.
``stop()``, ``start()``
    Stop the server, so that connections break and none can be made; start it again with
    its data, at the same address. A server that is started as a new child of this
    process counts as a leak: start it from a supervisor.
``refused_login() -> Mapping[str, str]``
    Properties with which the server refuses the login.
``refused_certificate() -> Mapping[str, str]``
    Properties with which the server's certificate is not trusted.
``nowhere() -> Mapping[str, str]``
    The configuration of a stream that does not exist.
``rows(numbers) -> RecordBatch``
    Rows for a writer, one for each number; required to prove the writing half.
``visible() -> Mapping[int, Sequence[int]]``
    The numbers that are visible in the medium, by partition, in order.
``prepare()``
    A class method, called before each case: starts shared resources, such as a server,
    once. They end with the process, and do not count as leaks of a case.
``acknowledged() -> Mapping[int, int]``
    By partition, the offset before which the medium has released messages because they
    were acknowledged: for a backend that overrides `ConsumerFactory.acknowledge`.
``sink_properties() -> Mapping[str, str]``
    The configuration that writes, if it differs from `Harness.properties`.

A harness is found through the entry-point group ``streamfactory.conformance``, under
the name of its type::

    [project.entry-points."streamfactory.conformance"]
    tiny = "tiny_stream.harness:TinyHarness"

or by ``--harness module:Class``. A backend that no entry point names comes with its
harness: a static method ``plugin()`` of the class returns the module, or the object,
that has the hook; it is registered for this run only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa


SAMPLE_HEADERS: Final = ((("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("c", None)),)
"""Headers of one message: what Kafka can store."""


@dataclass(frozen=True, slots=True)
class Message:
    """What ``write_messages`` of a harness is asked to append."""

    number: int
    key: bytes | None = None
    timestamp_ms: int | None = None
    """Milliseconds since the epoch, UTC; None where the message has no time, as far as
    the medium allows that."""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@runtime_checkable
class Harness(Protocol):
    """The methods that every harness has.

    Created with an empty folder for one case; closed after it. One thread
    at a time calls it, one for each case. What its methods raise is reported as a
    failure of the harness.
    """

    def __init__(self, folder: Path) -> None: ...

    def create(self, partitions: int) -> None:
        """Create an empty stream with this number of partitions in place of the last.

        A type whose streams have one partition each, such as a file, makes that one:
        its harness has the attribute ``single_partition = True``.
        """

    def properties(self) -> Mapping[str, str]:
        """The configuration that reads and writes that stream."""

    def partitions(self) -> Sequence[int]:
        """The ids of its partitions."""

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        """Append a message for each number; all can be read when this returns."""

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The numbers of rows that the backend returned."""

    def close(self) -> None:
        """Close everything that is open."""
