"""The actions of the service: one function for each, on the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog import Retention, Staged
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.rows import decode_rows
from streamfactory.backends.flight.protocol.schemas import decode_schema, encode_schema
from streamfactory.backends.flight.server.access import Right
from streamfactory.backends.flight.server.checkpoints import CheckpointKeeper
from streamfactory.spi import (
    IncarnationChanged,
    LastCommit,
    Position,
    Summary,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streamfactory.arrowlog import Log, LogStore


@dataclass(frozen=True, slots=True)
class Action:
    """One action."""

    request: type
    doc: str
    """One line, for ``ListActions``."""
    right: Right
    function: Callable[[LogStore, Any], Any]

    def topics_of(self, request: Any) -> Iterable[str]:
        """The topics that a request is about; none for `topics` itself."""
        if isinstance(request, m.Topics):
            return request.topics
        if isinstance(request, m.OffsetsAt):
            return request.partitions
        return [request.topic] if hasattr(request, "topic") else []


@dataclass(frozen=True, slots=True)
class GroupAction:
    """One action on the checkpoints of a group of readers."""

    request: type
    doc: str
    """One line, for ``ListActions``."""
    right: Right
    function: Callable[[CheckpointKeeper, Any], Any]


def request_of(name: str, body: Any) -> tuple[Action | GroupAction, Any]:
    """The action of a name, and its request.

    Raises:
        Unsupported: misuse; there is no such action.
        FormatRefused: permanent; the request is malformed.
    """
    action = ACTIONS.get(name)
    if action is None:
        msg = f"there is no action {name[:64]!r}"
        raise Unsupported(msg, remedy=f"use one of {', '.join(ACTIONS)}")
    data = b"" if body is None else memoryview(body)
    return action, decode(data, action.request)


def perform(store: LogStore, action: Action, request: Any) -> bytes:
    """Do what a request asks, and answer it.

    Raises:
        StreamError: As it fits.
    """
    return encode(action.function(store, request))


def open_topic(store: LogStore, topic: str, incarnation: str | None = None) -> Log:
    """The log of a topic, if it is still the one that the client knows.

    Raises:
        TopicNotFound: permanent.
        IncarnationChanged: data_loss.
    """
    log = store.open(topic)
    if incarnation is not None and log.incarnation != incarnation:
        msg = (
            f"topic {topic!r} was recreated: expected incarnation {incarnation!r}, "
            f"found {log.incarnation!r}"
        )
        raise IncarnationChanged(msg, expected=incarnation, found=log.incarnation)
    return log


def _describe(store: LogStore, request: m.Topic) -> m.TopicDescription:
    log = store.open(request.topic)
    return _description(log, encode_schema(log.schema))


def _description(log: Log, schema: str | None = None) -> m.TopicDescription:
    bounds = tuple(
        m.PartitionBounds(lane.id, lane.earliest, lane.latest) for lane in log.bounds()
    )
    return m.TopicDescription(log.name, log.incarnation, bounds, schema)


def _topics(store: LogStore, _: m.Done) -> m.Names:
    return m.Names(tuple(store.names()))


def _partitions(store: LogStore, request: m.Topics) -> m.Descriptions:
    return m.Descriptions(
        tuple(_description(store.open(topic)) for topic in request.topics)
    )


def _offsets_at(store: LogStore, request: m.OffsetsAt) -> m.Offsets:
    return m.Offsets(
        {
            topic: dict(store.open(topic).offsets_at(request.timestamp_ms, ids))
            for topic, ids in request.partitions.items()
        }
    )


def _create(store: LogStore, request: m.Create) -> m.Done:
    store.create(request.topic, decode_schema(request.schema), request.partitions)
    return m.Done()


def _grow(store: LogStore, request: m.Grow) -> m.Done:
    store.open(request.topic).grow(request.partitions)
    return m.Done()


def _truncate(store: LogStore, request: m.Truncate) -> m.Done:
    store.open(request.topic).truncate(request.before)
    return m.Done()


def _retain(store: LogStore, request: m.Retain) -> m.Done:
    store.open(request.topic).retain(_retention(request.retention), request.hold)
    return m.Done()


def _delete(store: LogStore, request: m.Topic) -> m.Done:
    store.delete(request.topic)
    return m.Done()


def _compact(store: LogStore, request: m.Topic) -> m.Done:
    store.open(request.topic).compact()
    return m.Done()


def _verify(store: LogStore, request: m.Topic) -> m.Verified:
    found = store.open(request.topic).verify()
    return m.Verified(found.rows, tuple(found.problems))


def _facts(store: LogStore, request: m.Topic) -> m.Facts:
    return m.Facts(dict(store.open(request.topic).facts()))


def _commit(store: LogStore, request: m.Commit) -> m.Committed:
    log = open_topic(store, request.topic, request.incarnation)
    position = request.position
    placed: dict[int, range] = {}
    held = log.commit(
        request.writer,
        request.epoch,
        [_staged(log, one) for one in request.staged],
        instance=request.instance,
        summary=Summary(request.rows, request.sums or {}),
        source_position=None if position is None else Position.from_json(position),
        replace=request.replace,
        placed=placed,
    )
    if request.writer_memory_ms is not None:
        log.forget(request.writer_memory_ms / 1000, keep=request.writer)
    if request.retention is not None:
        log.retain(_retention(request.retention), {})
    return m.Committed(_held(held), m.placed(placed))


def _staged(log: Log, sealed: m.Sealed) -> Staged:
    """What an attempt sealed; rows that came with the commit are staged now."""
    if not (len(sealed.files) == 1 and "inline" in sealed.files[0]):
        return Staged(sealed.attempt, sealed.files)
    stage = log.stage(sealed.attempt)
    try:
        for partition, rows in decode_rows(sealed.files[0]["inline"], log.schema):
            stage.append(partition, rows)
        return stage.seal()
    except BaseException:
        stage.discard()
        raise


def _claim(store: LogStore, request: m.Claim) -> m.Committed:
    log = store.open(request.topic)
    return m.Committed(_held(log.claim(request.writer, request.instance)))


def _last(store: LogStore, request: m.Last) -> m.Committed:
    return m.Committed(_held(store.open(request.topic).last(request.writer)))


def _discard(store: LogStore, request: m.Discard) -> m.Done:
    if any("inline" in file for file in request.staged.files):
        return m.Done()
    staged = Staged(request.staged.attempt, request.staged.files)
    store.open(request.topic).discard(staged)
    return m.Done()


def _held(last: LastCommit | None) -> m.LastCommit | None:
    if last is None:
        return None
    position, summary = last.source_position, last.summary
    return m.LastCommit(
        last.epoch,
        None if summary is None else summary.rows,
        None if summary is None else m.digests(summary.sums),
        None if position is None else position.to_json(),
    )


def _retention(wanted: m.Retention) -> Retention:
    age = wanted.age_ms
    return Retention(None if age is None else age / 1000, wanted.rows, wanted.bytes)


ACTIONS: Final[Mapping[str, Action | GroupAction]] = {
    "topics": Action(m.Done, "Names of all topics.", Right.READ, _topics),
    "describe": Action(
        m.Topic, "Schema, incarnation and bounds of a topic.", Right.READ, _describe
    ),
    "partitions": Action(
        m.Topics, "Bounds of all partitions of some topics.", Right.READ, _partitions
    ),
    "offsets-at": Action(
        m.OffsetsAt, "First offsets at or after a time.", Right.READ, _offsets_at
    ),
    "create": Action(m.Create, "Create a topic.", Right.WRITE, _create),
    "grow": Action(m.Grow, "Add partitions to a topic.", Right.ADMIN, _grow),
    "truncate": Action(
        m.Truncate, "Remove rows before some offsets.", Right.ADMIN, _truncate
    ),
    "retain": Action(
        m.Retain, "Remove rows that a retention does not keep.", Right.ADMIN, _retain
    ),
    "delete": Action(m.Topic, "Delete a topic and all its rows.", Right.ADMIN, _delete),
    "compact": Action(
        m.Topic, "Merge small segments of a topic.", Right.ADMIN, _compact
    ),
    "verify": Action(m.Topic, "Read a whole topic and check it.", Right.ADMIN, _verify),
    "facts": Action(m.Topic, "Counts of segments, bytes, writers.", Right.READ, _facts),
    "commit": Action(
        m.Commit, "Append sealed attempts in one step.", Right.WRITE, _commit
    ),
    "claim": Action(
        m.Claim, "Fence earlier instances of a writer.", Right.WRITE, _claim
    ),
    "last": Action(m.Last, "What a writer committed last.", Right.READ, _last),
    "discard": Action(
        m.Discard, "Remove what an attempt sealed.", Right.WRITE, _discard
    ),
    "checkpoints-claim": GroupAction(
        m.ClaimCheckpoint,
        "Fence earlier runs of an instance of a group.",
        Right.WRITE,
        CheckpointKeeper.claim,
    ),
    "checkpoints-load": GroupAction(
        m.LoadCheckpoints,
        "The checkpoints of a group.",
        Right.READ,
        CheckpointKeeper.load,
    ),
    "checkpoints-save": GroupAction(
        m.SaveCheckpoint,
        "Replace a checkpoint of a group.",
        Right.WRITE,
        CheckpointKeeper.save,
    ),
}
"""By name."""
