"""What an author supplies to have a backend proved: a hand on the medium.

A harness reaches the medium **without the code under test**: it writes a file with
plain Python, a topic with the server's own client. A message is a number to the kit;
the harness turns numbers into messages, and rows back into numbers.

Optional methods are abilities: a case that needs one which a harness has not is skipped
by its name.

``grow(partitions)``
    Have so many partitions in all.
``truncate(partition, messages)``
    Let go of so many of the messages that are held, the oldest first.
``tombstone(partition)``
    Append a message without a value.
``recreate()``
    Delete the stream and make it again, empty, with as many partitions.
``told_within: float``
    Seconds in which a reader of the old one has to be told so; 0.05 where the harness
    does not say. For servers whose readers ask now and then.
``gap(partition, offsets)``
    Leave out so many offsets behind the last message: what is compacted, or markers.
``finish(partition)``
    End a partition: no message will ever be added.
``unreachable(partition)``
    Have the source not answer for a partition, and for all others as before.
``write_messages(partition, messages)``
    Append messages with key, headers and time: each is a
    `streamfactory.conformance.Message`. For a backend of envelopes.
``raw_read(partition)``
    Read all messages of a partition with a client loop of the author's own: what
    ``--benchmark`` compares with.
``stop()``, ``start()``
    Take the server away, so that connections break and none can be made, and have it
    back with what it held, at the same address. A server that comes back as a new child
    of this process is taken for a leak: start it from a supervisor.
``refused_login() -> Mapping[str, str]``
    Properties with which the server refuses the login.
``refused_certificate() -> Mapping[str, str]``
    Properties with which the server's certificate is not trusted.
``nowhere() -> Mapping[str, str]``
    The configuration of a stream that is not there.
``rows(numbers) -> RecordBatch``
    Rows that a writer takes, one for each number; with it the writing half is proved.
``visible() -> Mapping[int, Sequence[int]]``
    What a reader of the medium sees, by partition, in order.
``prepare()``
    A class method, called before each case: starts once what cases share, such as a
    server. It ends with the process, and is not taken for a leak of a case.
``acknowledged() -> Mapping[int, int]``
    By partition, the offset before which the medium has released messages because they
    were acknowledged: for a backend that overrides `ConsumerFactory.acknowledge`.
``sink_properties() -> Mapping[str, str]``
    The configuration that writes, where it is another than `Harness.properties`: a
    wire has two ends.

A harness is found through the entry-point group ``streamfactory.conformance``, under
the name of its type::

    [project.entry-points."streamfactory.conformance"]
    tiny = "tiny_stream.harness:TinyHarness"

or by ``--harness module:Class``. A backend that no entry point names comes with its
harness: a static method ``plugin()`` of the class answers the module, or the object,
that has the hook; nobody else sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa


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
    """The least that a harness has.

    Made with a folder of its own, empty, for one case; closed after it. One thread
    at a time calls it, one for each case. What its methods raise is reported as a
    failure of the harness.
    """

    def __init__(self, folder: Path) -> None: ...

    def create(self, partitions: int) -> None:
        """Make an empty stream with so many partitions, in place of the last.

        A type whose streams have one partition each, such as a file, makes that one:
        its harness has the attribute ``single_partition = True``.
        """

    def properties(self) -> Mapping[str, str]:
        """The configuration that reads that stream, and writes it."""

    def partitions(self) -> Sequence[int]:
        """The ids of its partitions."""

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        """Append a message for each number; all can be read when this returns."""

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The numbers of rows that the backend answered."""

    def close(self) -> None:
        """Give everything back."""
