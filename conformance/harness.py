"""The interfaces that an author implements: access to the medium of a backend.

A harness reaches the medium **without the code under test**: it writes a file with
plain Python, a topic with the server's own client. A message is a number to the kit;
the harness turns numbers into messages, and rows back into numbers. A decoder has a
`DecoderHarness` instead.

`Harness` has the methods that every harness has. The other protocols are abilities: a
case is skipped if the harness lacks one that it needs, and the report names it. A
harness may name the protocols as its bases, so that an editor completes them and a type
checker compares them; methods of the right names are enough. A public method that none
of them has is an error if its name is nearly one of theirs, and a `FutureWarning`
otherwise: helpers begin with an underscore.
`Traits` lists the attributes that a harness may have.

A harness is found through the entry-point group ``streamfactory.conformance``, under
the name of its type::

    [project.entry-points."streamfactory.conformance"]
    tiny = "tiny_stream.harness:TinyHarness"

or by ``--harness module:Class``; one of a decoder through the group
``streamfactory.conformance.decoders``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Message:
    """What `WritesMessages.write_messages` is asked to append."""

    number: int
    key: bytes | None = None
    timestamp_ms: int | None = None
    """Milliseconds since the epoch, UTC; None where the message has no time, as far as
    the medium allows that."""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@runtime_checkable
class Harness(Protocol):
    """The methods that every harness of a backend has.

    Created with an empty folder for one case; closed after it. One thread
    at a time calls it, one for each case. What its methods raise is reported as a
    failure of the harness.
    """

    def __init__(self, folder: Path) -> None: ...

    def create(self, partitions: int) -> None:
        """Create an empty stream with this number of partitions in place of the last.

        A type whose streams have one partition each, such as a file, makes that one:
        see `Traits.single_partition`.
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


@runtime_checkable
class DecoderHarness(Protocol):
    """The methods that every harness of a decoder has. Created without arguments."""

    def options(self) -> Mapping[str, str]:
        """Options under ``decoder.prop.``, as text; may be empty."""

    def message(self, numbers: Sequence[int]) -> bytes:
        """One good message with a row for each number.

        Of a format with one row a message, only one number is asked for: see
        `Traits.several`.
        """

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The number of each row."""


class SchemeHarness(Protocol):
    """The methods that every harness of a scheme of references has.

    Created without arguments, for each case.
    """

    def store(self, value: str) -> str:
        """Store a value under a new name, without the code under test.

        Returns:
            What follows the colon in references to it.
        """

    def replace(self, what: str, value: str) -> None:
        """Replace a stored value; ``what`` as `store` returned it."""

    def missing(self) -> Sequence[str]:
        """What follows the colon in references that are sound and have no value.

        At least one; one for each way in which it can be missing.
        """

    def close(self) -> None:
        """Remove what was stored."""


SAMPLE_HEADERS: Final = ((("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("c", None)),)
"""Headers of one message: what Kafka can store."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Attributes of a harness, all optional: what its medium cannot do, and why."""

    single_partition: bool = False
    """True where each stream of the type has one partition."""
    recreation_timeout: float = 0.05
    """Seconds in which a reader of the old stream has to report that it was recreated.
    For servers whose readers poll for it."""
    sample_headers: Sequence[Sequence[tuple[str, bytes | None]]] = SAMPLE_HEADERS
    """Headers that it can store, for one message each; an empty sequence where it has
    no headers. By default repeated names, bytes that are not text, and a null value."""
    largest_key: int = 65_536
    """The length of the longest key that it can store, in bytes, of those that are
    tried: up to 64 KiB."""
    largest_value: int | None = None
    """The length of the longest value of a message, without a key, that its type
    accepts, in bytes; None where it states none, or one too large to be tried."""
    mistakes: Sequence[Mapping[str, str | None]] = ()
    """Properties with which, over those of the harness, a configuration is refused:
    what validators and rules over several options are for. None leaves one out."""
    sets_timestamps: bool = True
    """False where the medium sets the time of each message itself:
    `Message.timestamp_ms` is ignored, and the cases of exact times are skipped."""
    several: bool = True
    """Of a decoder: False where each message has one row."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why the medium lacks something, by the name of the method or attribute: it is
    shown with what was skipped or narrowed."""

    @classmethod
    def of(cls, harness: object) -> Traits:
        """Those that a harness has; defaults for the others."""
        names = [attribute.name for attribute in fields(cls)]
        return cls(**{n: getattr(harness, n) for n in names if hasattr(harness, n)})


# --- abilities --------------------------------------------------------------------


class WritesRows(Protocol):
    """Required to prove the writing half of a backend."""

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        """Rows for a writer, one for each number."""

    def visible(self) -> Mapping[int, Sequence[int]]:
        """The numbers that are visible in the medium, by partition, in order."""


class ShowsStaged(Protocol):
    """A medium that holds rows of epochs which are not decided yet."""

    def staged(self) -> Mapping[str, bool]:
        """What it holds for them, by any names, and whether it removes it in time.

        Of rows that the medium removes after a time, if nothing is decided, the value
        is True.
        """


class HasSinkProperties(Protocol):
    """A stream that is written by another configuration than it is read."""

    def sink_properties(self) -> Mapping[str, str]:
        """The configuration that writes."""


class Grows(Protocol):
    """A stream to which partitions are added."""

    def grow(self, partitions: int) -> None:
        """Increase the number of partitions to this number."""


class Truncates(Protocol):
    """A medium with retention."""

    def truncate(self, partition: int, messages: int) -> None:
        """Delete this number of messages, the oldest first."""


class Recreates(Protocol):
    """A stream that is deleted and created under the same name."""

    def recreate(self) -> None:
        """Delete the stream and create it again, empty, with as many partitions."""


class LeavesGaps(Protocol):
    """Offsets without a message."""

    def gap(self, partition: int, offsets: int) -> None:
        """Skip this number of offsets after the last message, as compaction does."""


class SetsOffsets(Protocol):
    """A medium in which the offset of the next message can be chosen."""

    def advance(self, partition: int, offset: int) -> None:
        """Let the next message of an empty partition have this offset.

        It is near the greatest one, 2**63 - 2: the offset after a message is a signed
        64-bit number, too.
        """


class ExceedsOffsets(Protocol):
    """A medium with messages that no offset has."""

    def exceed(self, partition: int) -> None:
        """Append one: the first beyond all offsets, or one between two of them."""


class WritesTombstones(Protocol):
    """Messages without a value."""

    def tombstone(self, partition: int) -> None:
        """Append a message without a value."""


class Finishes(Protocol):
    """Partitions that end."""

    def finish(self, partition: int) -> None:
        """End a partition: no message will ever be added."""


class HidesPartitions(Protocol):
    """A source of which a part can be unavailable."""

    def unreachable(self, partition: int) -> None:
        """Make one partition unavailable; the other partitions stay available."""


class WritesMessages(Protocol):
    """For a backend of envelopes; `Traits` state what the medium cannot store."""

    def write_messages(self, partition: int, messages: Sequence[Message]) -> None:
        """Append messages with key, headers and time."""


class WritesValues(Protocol):
    """For a backend of envelopes; `Traits.largest_value` states the longest value."""

    def write_values(self, partition: int, values: Sequence[bytes]) -> None:
        """Append a message for each value, as it is, with nothing else."""


class Stops(Protocol):
    """A server that can be stopped.

    One that is started as a new child of this process counts as a leak: start it from
    a supervisor.
    """

    def stop(self) -> None:
        """Stop the server: connections break, and none can be made."""

    def start(self) -> None:
        """Start it again with its data, at the same address."""


class Freezes(Protocol):
    """A server that can stop answering, as one on a machine that hangs.

    `LocalServer.freeze` and `LocalServer.thaw` do so for a server that it has started.
    """

    def freeze(self) -> None:
        """Stop answering: connections stay open, are accepted, and hear nothing."""

    def thaw(self) -> None:
        """Answer again, also what was asked meanwhile."""


class RefusesLogins(Protocol):
    """A server with logins."""

    def refused_login(self) -> Mapping[str, str]:
        """Properties with which the server refuses the login."""


class RefusesUsers(Protocol):
    """A server whose users have different rights."""

    def login_without_rights(self) -> Mapping[str, str]:
        """Properties of a user who may log in, and neither read nor write the stream.

        Called after `Harness.create`, for each stream.
        """


class RefusesWriting(Protocol):
    """A server whose users have different rights."""

    def login_that_reads(self) -> Mapping[str, str]:
        """Properties of a user who may read the stream, and do nothing else.

        The user may not write, administer topics, or see settings of the server. Called
        after `Harness.create`, for each stream.
        """


class RefusesAdministration(Protocol):
    """A server whose users have different rights."""

    def login_that_writes(self) -> Mapping[str, str]:
        """Properties of a user who may read and write the stream, and do nothing else.

        The user may not administer topics, or see settings of the server. Called after
        `Harness.create`, for each stream.
        """


class RefusesCertificates(Protocol):
    """A server with TLS."""

    def refused_certificate(self) -> Mapping[str, str]:
        """Properties with which the server's certificate is not trusted."""


class HasNowhere(Protocol):
    """Where another name of the topic is not enough for a stream that is missing."""

    def nowhere(self) -> Mapping[str, str]:
        """The configuration of a stream that does not exist."""


class ShowsAcknowledged(Protocol):
    """For a backend that overrides `ConsumerFactory.acknowledge`."""

    def acknowledged(self) -> Mapping[int, int]:
        """By partition, the offset before which the medium has released messages."""


class HasGroupProperties(Protocol):
    """For ``prove``."""

    def group_properties(self) -> Mapping[str, str]:
        """Configuration of a member of a group.

        A session timeout, where the source notices by it that a member was killed. A
        member waits 45 s for messages.
        """


class ReadsRaw(Protocol):
    """For ``--benchmark``."""

    def raw_read(self, partition: int) -> object:
        """Read all messages of a partition with a client loop of the author's own."""


class Prepares(Protocol):
    """A harness whose cases share a resource, such as a server."""

    @classmethod
    def prepare(cls) -> None:
        """Called before each case: starts what is shared, once.

        It ends with the process, and does not count as a leak of a case.
        """


class SuppliesPlugin(Protocol):
    """A harness of a plug-in that no entry point names."""

    @staticmethod
    def plugin() -> object:
        """The module, or object, that has the hook.

        Registered for this run only; a scheme of references for this process.
        """


class HasBadMessages(Protocol):
    """For decoders."""

    def bad(self) -> Mapping[str, bytes]:
        """Payloads by name that this format has to refuse."""


class WritesUndeclared(Protocol):
    """For decoders whose format names its fields."""

    def undeclared(self, number: int) -> bytes:
        """A good message but for a field that the schema lacks."""


class WritesMisfits(Protocol):
    """For decoders whose values may not fit their column."""

    def misfit(self, number: int) -> bytes:
        """A good message but for a value, not the number, that does not fit."""


# --- checks -----------------------------------------------------------------------

Ability = Callable[..., Any]
"""One of the protocols. As a callable: type checkers allow no protocol for ``type``."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a harness is for."""

    group: str
    """The entry points that name harnesses, each by what it is for."""
    required: Ability
    abilities: tuple[Ability, ...]

    def problems(self, harness: type) -> Iterator[str]:
        """What is wrong with the names of a harness, each with a remedy."""
        if missing := lacking(harness, self.required):
            yield f"has no {', '.join(missing)}"
        known = self._known()
        traits = {attribute.name for attribute in fields(Traits)}
        for name in sorted(n for n in dir(harness) if not n.startswith("_")):
            is_method = _is_method(harness, name)
            near = nearest(name, known if is_method else traits, likeness=0.8)
            if near and name not in known | (set() if is_method else traits):
                kind = "public method" if is_method else "attribute"
                yield f"has an unknown {kind} {name} (did you mean {near}?)"

    def helpers(self, harness: type) -> list[str]:
        """Public methods that no ability has; one that is added may have the name."""
        known = self._known()
        public = (name for name in dir(harness) if not name.startswith("_"))
        return [n for n in public if _is_method(harness, n) and n not in known]

    def _known(self) -> set[str]:
        return {n for a in (self.required, *self.abilities) for n in members(a)}


def _is_method(harness: type, name: str) -> bool:
    return isinstance(getattr(harness, name), FunctionType | MethodType)


def members(ability: Ability) -> list[str]:
    """The methods of a protocol."""
    return [name for name in vars(ability) if not name.startswith("_")]


def lacking(harness: object, ability: Ability) -> list[str]:
    """The methods of a protocol that a harness does not have."""
    return [n for n in members(ability) if not callable(getattr(harness, n, None))]


class StallsLookups(Protocol):
    """Suspends the service in which a scheme looks values up."""

    def stalled(self) -> AbstractContextManager[None]:
        """Have the service accept requests, and answer none until the block ends."""


BACKEND: Final = Kind(
    "streamfactory.conformance",
    Harness,
    (
        WritesRows,
        ShowsStaged,
        HasSinkProperties,
        Grows,
        Truncates,
        Recreates,
        LeavesGaps,
        SetsOffsets,
        ExceedsOffsets,
        WritesTombstones,
        Finishes,
        HidesPartitions,
        WritesMessages,
        WritesValues,
        Stops,
        Freezes,
        RefusesLogins,
        RefusesUsers,
        RefusesWriting,
        RefusesAdministration,
        RefusesCertificates,
        HasNowhere,
        ShowsAcknowledged,
        HasGroupProperties,
        ReadsRaw,
        Prepares,
        SuppliesPlugin,
    ),
)
DECODER: Final = Kind(
    "streamfactory.conformance.decoders",
    DecoderHarness,
    (HasBadMessages, WritesUndeclared, WritesMisfits, SuppliesPlugin),
)
SCHEME: Final = Kind(
    "streamfactory.conformance.references",
    SchemeHarness,
    (StallsLookups, Prepares, SuppliesPlugin),
)
