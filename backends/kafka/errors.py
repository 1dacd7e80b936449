"""Translation of the client's errors by code: it raises one type for all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    CorruptData,
    ErrorTable,
    MessageTooLarge,
    MisuseError,
    NotAuthorized,
    OffsetOutOfRange,
    PartialMetadata,
    PermanentError,
    SchemaMismatch,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    TransientError,
    Unsupported,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
"""What the client returns."""
_PAUSE: Final = 0.1
_NAMES: Final[Mapping[type[StreamError], tuple[str, ...]]] = {
    ConfigError: (
        "_INVALID_ARG",
        "_NOT_CONFIGURED",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_CONFIG",
        "INVALID_GROUP_ID",
        "INVALID_PARTITIONS",
        "INVALID_REGULAR_EXPRESSION",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REQUIRED_ACKS",
        "INVALID_SESSION_TIMEOUT",
        "INVALID_TRANSACTION_TIMEOUT",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",
        "UNSUPPORTED_ASSIGNOR",
    ),
    ConnectionFailed: (
        "_ALL_BROKERS_DOWN",
        "_DESTROY_BROKER",
        "_NODE_UPDATE",
        "_RESOLVE",
        "_TRANSPORT",
        "_UNKNOWN_BROKER",
        "BROKER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "REBOOTSTRAP_REQUIRED",
    ),
    StreamTimeout: (
        "_MSG_TIMED_OUT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_WAIT_CACHE",
        "_WAIT_COORD",
        "REQUEST_TIMED_OUT",
    ),
    PartialMetadata: (
        "_PARTIAL",
        "LEADER_NOT_AVAILABLE",
        "OFFSET_NOT_AVAILABLE",
    ),
    TopicNotFound: (
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PART",
    ),
    NotAuthorized: (
        "_AUTHENTICATION",
        "_SSL",
        "CLUSTER_AUTHORIZATION_FAILED",
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        "DELEGATION_TOKEN_AUTH_DISABLED",
        "DELEGATION_TOKEN_EXPIRED",
        "DELEGATION_TOKEN_NOT_FOUND",
        "DELEGATION_TOKEN_OWNER_MISMATCH",
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "GROUP_AUTHORIZATION_FAILED",
        "ILLEGAL_SASL_STATE",
        "PRINCIPAL_DESERIALIZATION_FAILURE",
        "SASL_AUTHENTICATION_FAILED",
        "SECURITY_DISABLED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNACCEPTABLE_CREDENTIAL",
        "UNSUPPORTED_SASL_MECHANISM",
    ),
    OffsetOutOfRange: (
        "_AUTO_OFFSET_RESET",
        "_LOG_TRUNCATION",
        "OFFSET_OUT_OF_RANGE",
    ),
    MessageTooLarge: (
        "INVALID_MSG_SIZE",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
    ),
    CorruptData: (
        "_BAD_COMPRESSION",
        "_BAD_MSG",
        "INVALID_MSG",
    ),
    SchemaMismatch: (
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
    ),
    WriterFenced: (
        "_FENCED",
        "FENCED_INSTANCE_ID",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "PRODUCER_FENCED",
        "TRANSACTION_COORDINATOR_FENCED",
    ),
    Unsupported: (
        "_NOT_IMPLEMENTED",
        "_UNSUPPORTED_FEATURE",
        "TOPIC_DELETION_DISABLED",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
    ),
    MisuseError: (
        "_CONFLICT",
        "_DESTROY",
        "_EXISTING_SUBSCRIPTION",
        "_STATE",
        "TOPIC_ALREADY_EXISTS",
    ),
    TransientError: (
        "_ASSIGNMENT_LOST",
        "_FAIL",
        "_IN_PROGRESS",
        "_INTR",
        "_ISR_INSUFF",
        "_MAX_POLL_EXCEEDED",
        "_NOENT",
        "_NO_OFFSET",
        "_OUTDATED",
        "_PREV_IN_PROGRESS",
        "_PURGE_INFLIGHT",
        "_PURGE_QUEUE",
        "_QUEUE_FULL",
        "_RETRY",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "FETCH_SESSION_ID_NOT_FOUND",
        "ILLEGAL_GENERATION",
        "INCONSISTENT_TOPIC_ID",
        "INVALID_FETCH_SESSION_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LISTENER_NOT_FOUND",
        "MEMBER_ID_REQUIRED",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_FOR_PARTITION",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "REASSIGNMENT_IN_PROGRESS",
        "REBALANCE_IN_PROGRESS",
        "REPLICA_NOT_AVAILABLE",
        "STALE_BROKER_EPOCH",
        "STALE_CTRL_EPOCH",
        "STALE_MEMBER_EPOCH",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_MEMBER_ID",
        "UNRELEASED_INSTANCE_ID",
        "UNSTABLE_OFFSET_COMMIT",
    ),
}
"""By name: older clients may lack some codes. Unlisted codes are permanent."""

CODES: Final[Mapping[int, type[StreamError]]] = {
    getattr(KafkaError, name): kind
    for kind, names in _NAMES.items()
    for name in names
    if hasattr(KafkaError, name)
}

_REMEDIES: Final[Mapping[type[StreamError], str]] = {
    ConnectionFailed: "check `broker.list` and `security.protocol`, and that a broker "
    "runs there",
    NotAuthorized: "check the credentials and the ACLs",
    TopicNotFound: "check `topic.name`; create the topic before reading it",
    MessageTooLarge: "increase `max.message.bytes` of the topic",
    SchemaMismatch: "write rows that the topic accepts: of a compacted topic each with "
    "a key, and with a time within `message.timestamp.before.max.ms` and "
    "`message.timestamp.after.max.ms` of the topic",
}


def code_of(error: BaseException) -> int | None:
    """The client's error code in an exception; None if it has none."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return int(inner.code()) if isinstance(inner, KafkaError) else None


translate: Final = ErrorTable(
    {
        KafkaException: PermanentError,
        BufferError: TransientError,
    },
    CODES,
    code_of,
)
"""For `Backend.translate`: errors without a more specific message."""


def failure(
    error: KafkaError | KafkaException, doing: str, *, where: str = ""
) -> StreamError:
    """Translate a client's error.

    Args:
        error: The client's error.
        doing: The failed operation, such as ``"topic 'clicks' cannot be read"``.
        where: The brokers.
    """
    inner = error.args[0] if isinstance(error, KafkaException) else error
    kind = _kind(inner)
    reason = str(inner.str()).strip()
    place = f" at {where}" if where else ""
    return kind(
        f"{doing}{place}: {reason} ({inner.name()})", remedy=_REMEDIES.get(kind)
    )


def is_passing(error: KafkaError | KafkaException) -> bool:
    """Whether a retry can help."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return issubclass(_kind(inner), TransientError)


_OF_THE_ROWS: Final = (
    ConfigError,
    CorruptData,
    MessageTooLarge,
    NotAuthorized,
    SchemaMismatch,
    TopicNotFound,
    Unsupported,
)


def is_final(error: KafkaError) -> bool:
    """Whether neither a retry nor a new producer can send what was refused.

    Errors of a producer's state are not final: a new one looks up the outcome.
    """
    listed = CODES.get(error.code(), PermanentError)
    return issubclass(listed, _OF_THE_ROWS) and not error.retriable()


def retried(call: Callable[[], T], seconds: float) -> T:
    """Call the client, again after errors that pass: a coordinator moves or loads.

    Args:
        call: Calls the client, with a timeout.
        seconds: After which the error is raised.

    Raises:
        KafkaException: The client's error.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as error:
            if not is_passing(error) or time.monotonic() + _PAUSE > until:
                raise
        time.sleep(_PAUSE)


def _kind(error: KafkaError) -> type[StreamError]:
    """The class of an error; the client decides for unlisted ones."""
    unlisted = TransientError if error.retriable() else PermanentError
    return CODES.get(error.code(), unlisted)
