"""The actions of the service: one function for each, on the log."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode
from streamfactory.backends.flight.protocol.epochs import last_message, retention_of
from streamfactory.backends.flight.protocol.schemas import decode_schema, encode_schema
from streamfactory.backends.flight.server.access import Right
from streamfactory.backends.flight.server.checkpoints import CheckpointKeeper
from streamfactory.backends.flight.server.logs import open_topic
from streamfactory.backends.flight.server.uploads import Uploads
from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streamfactory.arrowlog import Log
    from streamfactory.backends.flight.server.redaction import ServedStore


@dataclass(frozen=True, slots=True)
class Action:
    """One action on topics."""

    request: type
    doc: str
    """One line, for ``ListActions``."""
    right: Right
    function: Callable[[ServedStore, Any], Any]

    def topics_of(self, request: Any) -> Iterable[str]:
        """The topics that a request is about."""
        if isinstance(request, m.Topics):
            return request.topics
        if isinstance(request, m.OffsetsAt):
            return request.partitions
        return [request.topic]


@dataclass(frozen=True, slots=True)
class GroupAction:
    """One action on the checkpoints of a group of readers."""

    request: type
    doc: str
    """One line, for ``ListActions``."""
    right: Right
    function: Callable[[CheckpointKeeper, Any], Any]


@dataclass(frozen=True, slots=True)
class UploadAction:
    """One action on what writers have uploaded to a topic."""

    request: type
    doc: str
    """One line, for ``ListActions``."""
    right: Right
    function: Callable[[Uploads, Any, str], Any]
    """With the name of the client."""


@dataclass(frozen=True, slots=True)
class ServerAction:
    """One action on the server itself: every client that may connect may do it."""

    request: type
    doc: str
    """One line, for ``ListActions``."""


def request_of(name: str, body: Any) -> tuple[AnyAction, Any]:
    """The action of a name, and its request; without a body, one without members.

    Raises:
        Unsupported: misuse; there is no such action.
        FormatRefused: permanent; the request is malformed.
    """
    action = ACTIONS.get(name)
    if action is None:
        msg = f"the action {name[:64]!r} does not exist"
        raise Unsupported(msg, remedy=f"use one of {', '.join(ACTIONS)}")
    data = b"" if body is None else memoryview(body)
    if not len(data) and not fields(action.request):
        return action, action.request()
    return action, decode(data, action.request)


def _describe(store: ServedStore, request: m.Topic) -> m.TopicDescription:
    log = store.open(request.topic)
    return _description(log, encode_schema(log.schema))


def _description(log: Log, schema: str | None = None) -> m.TopicDescription:
    bounds = tuple(log.bounds())
    return m.TopicDescription(log.name, log.incarnation, bounds, schema)


def _partitions(store: ServedStore, request: m.Topics) -> m.Descriptions:
    return m.Descriptions(
        tuple(_description(store.open(topic)) for topic in request.topics)
    )


def _offsets_at(store: ServedStore, request: m.OffsetsAt) -> m.Offsets:
    return m.Offsets(
        {
            topic: dict(store.open(topic).offsets_at(request.timestamp_ms, ids))
            for topic, ids in request.partitions.items()
        }
    )


def _create(store: ServedStore, request: m.Create) -> m.Done:
    store.create(request.topic, decode_schema(request.schema), request.partitions)
    return m.Done()


def _grow(store: ServedStore, request: m.Grow) -> m.Done:
    store.open(request.topic).grow(request.partitions)
    return m.Done()


def _truncate(store: ServedStore, request: m.Truncate) -> m.Done:
    store.open(request.topic).truncate(request.before)
    return m.Done()


def _retain(store: ServedStore, request: m.Retain) -> m.Done:
    store.open(request.topic).retain(retention_of(request.retention), request.hold)
    return m.Done()


def _delete(store: ServedStore, request: m.Topic) -> m.Done:
    store.delete(request.topic)
    return m.Done()


def _compact(store: ServedStore, request: m.Topic) -> m.Done:
    store.open(request.topic).compact()
    return m.Done()


def _verify(store: ServedStore, request: m.Topic) -> m.Verified:
    found = store.open(request.topic).verify()
    return m.Verified(found.rows, tuple(map(store.redactor.public, found.problems)))


def _facts(store: ServedStore, request: m.Topic) -> m.Facts:
    facts = store.open(request.topic).facts()
    return m.Facts({name: fact for name, fact in facts.items() if name != "location"})


def _claim(store: ServedStore, request: m.Claim) -> m.Committed:
    log = open_topic(store, request.topic, request.incarnation)
    return m.Committed(last_message(log.claim(request.writer, request.instance)))


def _last(store: ServedStore, request: m.Last) -> m.Committed:
    log = open_topic(store, request.topic, request.incarnation)
    return m.Committed(last_message(log.last(request.writer)))


AnyAction = Action | GroupAction | UploadAction | ServerAction

ACTIONS: Final[Mapping[str, AnyAction]] = {
    "topics": ServerAction(m.Done, "Names of all topics that the client may read."),
    "health": ServerAction(m.Done, "Whether the server can serve."),
    "statistics": ServerAction(m.Done, "The metrics of the server."),
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
    "commit": UploadAction(
        m.Commit,
        "Append sealed attempts in one step.",
        Right.WRITE,
        Uploads.commit_sealed,
    ),
    "claim": Action(
        m.Claim, "Fence earlier instances of a writer.", Right.WRITE, _claim
    ),
    "last": Action(m.Last, "What a writer committed last.", Right.READ, _last),
    "discard": UploadAction(
        m.Discard, "Remove what an attempt sealed.", Right.WRITE, Uploads.discard
    ),
    "checkpoints-claim": GroupAction(
        m.ClaimCheckpoint,
        "Fence earlier runs of an instance of a group.",
        Right.WRITE,
        CheckpointKeeper.claim,
    ),
    "checkpoints-groups": ServerAction(
        m.Done, "Names of all groups whose checkpoints the client may read."
    ),
    "checkpoints-delete": GroupAction(
        m.Group,
        "Remove all checkpoints of a group.",
        Right.WRITE,
        CheckpointKeeper.delete,
    ),
    "checkpoints-load": GroupAction(
        m.Group,
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
