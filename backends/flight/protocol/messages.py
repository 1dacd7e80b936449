"""The messages of the protocol, as `docs/flight-protocol.md` describes them.

Offsets are row numbers; starts are inclusive, ends exclusive. Times are milliseconds
since the epoch, UTC. Schemas are Arrow IPC, base64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The codec evaluates annotations.
from streamfactory.arrowlog.values import PartitionBounds  # noqa: TC001
from streamfactory.backends.flight.protocol.codec import (  # noqa: TC001
    Count,
    Digest,
    Id,
)

# --- reading -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a ``DoGet`` reads: the ticket of an endpoint."""

    topic: str
    partition: int
    start: int | None = None
    """First offset; None for the earliest."""
    end: int | None = None
    """Offset behind the last row; None for the latest when the call begins."""
    follow: bool = False
    """Wait for rows that are appended later: up to ``end``, or until cancelled."""
    fields: tuple[str, ...] | None = None
    """Columns; None for all."""
    incarnation: str | None = None
    """Refuse the topic unless it is this one."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The descriptor of a ``DoExchange``: one reader of one partition."""

    topic: str
    partition: int
    fields: tuple[str, ...] | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """From the client of a ``DoExchange``: a request for one batch."""

    id: int
    """Returned with the response."""
    start: int
    max_rows: int
    max_bytes: int
    wait_ms: int = 0
    """How long the server may wait for a first row."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """With each batch of a ``DoGet`` or ``DoExchange``."""

    start: int
    """Offset of the first row."""
    earliest: int
    latest: int
    id: int = 0
    """Of the request, in a ``DoExchange``."""


# --- writing -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """The descriptor of a ``DoPut``: rows of one attempt, invisible until committed."""

    topic: str
    attempt: str
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """With each batch of a ``DoPut``."""

    partition: int
    abort: bool = False
    """Instead of a batch: discard the attempt. An aborted call does the same; a call
    that ends without it seals the attempt."""
    acknowledge: bool = True
    """Whether the server acknowledges this batch with `Received`."""
    ahead: int = 0
    """How many acknowledgements the client does not wait for before it sends more. The
    server reads on when no more than these are due: a refusal is sent at once."""


@dataclass(frozen=True, slots=True)
class Received:
    """From the server of a ``DoPut``: rows staged so far, which are not visible."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Offsets that the committed rows of one partition have."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Appended:
    """From the server of a plain ``DoPut``, last: the rows are committed."""

    placed: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True)
class Sealed:
    """From the server of a ``DoPut``, last: the attempt can be committed."""

    attempt: str
    files: tuple[Any, ...] = ()
    """Of the server's log; the client hands them back as they are."""


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last commit of a writer."""

    epoch: int
    rows: int | None = None
    sums: dict[str, Digest] | None = None
    position: str | None = None
    """The source position that was stored with the commit, as JSON text."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What to keep of each partition; None is all."""

    age_ms: Count | None = None
    rows: Count | None = None
    bytes: Count | None = None


@dataclass(frozen=True, kw_only=True)
class WriterInstance:
    """Who commits: the members that `Commit` and `CommitSession` share."""

    topic: str
    writer: Id | None
    instance: Id
    incarnation: str | None = None
    writer_memory_ms: Count | None = None
    """Afterwards, remove markers of writers that were idle for longer."""
    retention: Retention | None = None
    """Afterwards, remove rows beyond this retention."""


@dataclass(frozen=True, kw_only=True)
class EpochHeader:
    """What is stored of an epoch: the members that `Commit` and `CommitRows` share."""

    epoch: Count
    rows: Count
    sums: dict[str, Digest] | None = None
    position: str | None = None
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class Commit(WriterInstance, EpochHeader):
    """Action ``commit``: append what attempts have sealed, in one step."""

    staged: tuple[Sealed, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The response to `Commit`, `CommitRows`, `Claim` and `Last`."""

    held: LastCommit | None = None
    """`Commit`: None where this call appended, else what was there before. `Claim`,
    `Last`: what the writer committed last."""
    placed: tuple[Placed, ...] = ()
    """`Commit`: where this call appended, the offsets of the rows."""


@dataclass(frozen=True, kw_only=True)
class CommitSession(WriterInstance):
    """The descriptor of a ``DoExchange``: commits of one instance of a writer."""

    writer: Id


@dataclass(frozen=True, slots=True)
class PartRows:
    """So many rows of the batch, behind those of the parts before."""

    partition: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class CommitRows(EpochHeader):
    """From the client of a `CommitSession`, with the rows: one epoch, whole."""

    attempt: str
    parts: tuple[PartRows, ...]
    """Of the batch, in its order; none without a batch."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Action ``discard``: remove what an attempt has sealed."""

    topic: str
    staged: Sealed


@dataclass(frozen=True, slots=True)
class Claim:
    """Action ``claim``: from here on only this instance commits for the writer."""

    topic: str
    writer: Id
    instance: Id
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Last:
    """Action ``last``: what a writer committed last; claims nothing."""

    topic: str
    writer: Id
    incarnation: str | None = None


# --- checkpoints of groups ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimCheckpoint:
    """Action ``checkpoints-claim``: from here on only this owner saves it."""

    group: str
    instance: Id
    owner: Id


@dataclass(frozen=True, slots=True)
class Group:
    """Actions ``checkpoints-load`` and ``checkpoints-delete``."""

    group: str


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """One checkpoint of a group."""

    generation: int
    position: str
    """As JSON text."""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Action ``checkpoints-save``: durable before it answers."""

    group: str
    instance: Id
    owner: Id
    generation: Count
    position: str


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The response to ``checkpoints-load``, by instance."""

    checkpoints: dict[str, SavedCheckpoint]


# --- topics ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Topic:
    """Actions ``describe``, ``delete``, ``compact``, ``verify``, ``facts``."""

    topic: str


@dataclass(frozen=True, slots=True)
class Topics:
    """Action ``partitions``: bounds of all partitions of some topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Action ``create``."""

    topic: str
    schema: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Grow:
    """Action ``grow``: have so many partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Action ``truncate``: remove rows before these offsets, by partition."""

    topic: str
    before: dict[int, int]


@dataclass(frozen=True, slots=True)
class Retain:
    """Action ``retain``: apply a retention."""

    topic: str
    retention: Retention
    hold: dict[int, int]


@dataclass(frozen=True, slots=True)
class OffsetsAt:
    """Action ``offsets-at``: first offsets appended at or after a time."""

    timestamp_ms: int
    partitions: dict[str, tuple[int, ...]]
    """By topic."""


# --- responses ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The response to ``describe``, and an element of that to ``partitions``."""

    topic: str
    incarnation: str
    partitions: tuple[PartitionBounds, ...]
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """The response to ``topics`` and ``checkpoints-groups``."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The response to ``partitions``."""

    topics: tuple[TopicDescription, ...]


@dataclass(frozen=True, slots=True)
class Offsets:
    """The response to ``offsets-at``: by topic and partition."""

    offsets: dict[str, dict[int, int | None]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The response to ``facts``."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verified:
    """The response to ``verify``."""

    rows: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """The response to ``health``."""

    ready: bool
    problems: tuple[str, ...] = ()
    """The reasons, one line each."""


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One value of a metric."""

    name: str
    value: Any
    """A number."""
    labels: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MetricValues:
    """The response to ``statistics``."""

    metrics: tuple[MetricValue, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The response to all other actions."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the server, in the ``extra_info`` of the Flight status."""

    code: str
    what: str
    remedy: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    earliest: int | None = None
    latest: int | None = None
    retry_after_ms: int | None = None
    """Of a server that is busy: when another attempt may succeed."""
