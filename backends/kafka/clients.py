"""Clients of librdkafka: their settings, what they say of the network, and forks.

The client tells through a callback what no call tells: that credentials are refused,
that all brokers are gone. `Watch` keeps that for who waits.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError

from streamfactory.backends.kafka.client_keys import LIBRDKAFKA_KEYS
from streamfactory.backends.kafka.errors import failure
from streamfactory.backends.kafka.security import (
    JAVA_KEYS,
    PREFIXES,
    java_security,
    pinot_security,
)
from streamfactory.spi import ConfigError, ConnectionFailed, StreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamConfig

log = logging.getLogger("streamfactory.kafka")

_RENAMED: Final[Mapping[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.in.flight.requests.per.connection": "max.in.flight",
}
"""Java's names to librdkafka's."""

_JAVA_ONLY: Final = frozenset(
    {
        "buffer.memory",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "max.block.ms",
        "max.poll.records",
        "max.request.size.bytes",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Java's names of what librdkafka has not: without effect here."""

CLIENT_KEYS: Final = LIBRDKAFKA_KEYS.union(_RENAMED, _JAVA_ONLY, JAVA_KEYS)
"""Keys that may be passed through."""

_NETWORK: Final = (
    *PREFIXES,
    "api.version.",
    "broker.address.",
    "broker.version.",
    "client.dns.",
    "connections.max.",
    "debug",
    "metadata.max.",
    "metadata.recovery.",
    "reconnect.backoff.",
    "retry.backoff.",
    "socket.",
    "topic.metadata.",
)
"""What concerns reaching brokers, and so every client."""

_QUICK: Final[Mapping[str, str]] = {
    "reconnect.backoff.ms": "100",
    "reconnect.backoff.max.ms": "1000",
    "allow.auto.create.topics": "false",
}


def brokers(config: StreamConfig) -> str:
    """The brokers to begin with."""
    return str(config["broker.list"])


def isolation(config: StreamConfig) -> str:
    """The effective isolation level."""
    ours = config.get("isolation.level")
    theirs = config.client_properties("consumer").get("isolation.level")
    return str(ours or theirs or "read_committed")


def client_settings(
    config: StreamConfig,
    kind: str,
    client_id: str = "streamfactory",
    watch: Watch | None = None,
) -> dict[str, Any]:
    """What a client of librdkafka is made with.

    Args:
        config: The stream's configuration; secrets are resolved here.
        kind: ``consumer`` or ``producer``, with what the user passes through; or
            ``admin``. Whoever connects uses the credentials of the other kind too,
            where its own say nothing.
        client_id: Names the client in the brokers' logs.
        watch: Gets to know what the client says of the network; nobody by default.

    Raises:
        ConfigError: config; credentials in a form that cannot be used here.
    """
    own = config.client_properties("consumer" if kind == "admin" else kind)
    other = config.client_properties("consumer" if kind == "producer" else "producer")
    given = {k: v for k, v in other.items() if k.startswith(PREFIXES)} | own
    if kind == "admin":
        given = {k: v for k, v in given.items() if k.startswith(_NETWORK)}
    for key in sorted(_JAVA_ONLY & given.keys()):
        log.info("%s has no effect: only Java's client has it", key)
    known = {_RENAMED.get(k, k): v for k, v in given.items() if k not in _JAVA_ONLY}
    secure = {k: v for k, v in known.items() if k.startswith(PREFIXES)}
    plain = {k: v for k, v in known.items() if k not in secure}
    return {
        **_QUICK,
        **plain,
        **pinot_security(config),
        **java_security(secure),
        "bootstrap.servers": brokers(config),
        "client.id": client_id,
        "error_cb": watch or Watch(),
        "logger": CLIENT_LOG,
    }


def refused(error: Exception, config: StreamConfig) -> ConfigError:
    """What it says when a client cannot be made: a setting is wrong."""
    inner = error.args[0] if error.args else error
    said = inner.str() if isinstance(inner, KafkaError) else str(inner)
    msg = f"the Kafka client refuses its settings: {said}"
    prefix = f"stream.{config.type}."
    remedy = f"look at {prefix}consumer.prop.* and {prefix}producer.prop.*"
    return ConfigError(msg, stream=config.name, remedy=remedy)


class _ClientLog:
    """Takes the client's own log: what matters of it comes as errors."""

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line as detail: the client repeats itself with every attempt."""
        log.debug(message, *arguments)


CLIENT_LOG: Final = _ClientLog()


_OF_TOPICS: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


_HINT: Final = "connecting to a"
"""What the client says when it guesses that the protocols differ: worth keeping."""


class Watch:
    """What a client said of the network since it was last well."""

    def __init__(self) -> None:
        self.refused: KafkaError | None = None
        """Credentials or certificates were not accepted."""
        self.topic: KafkaError | None = None
        """The topic is gone, or forbidden."""
        self.last: KafkaError | None = None
        self.down_since: float | None = None
        """When all brokers were lost; None while one may be there."""
        self.worked = False
        """Whether anything ever came."""

    def __call__(self, error: KafkaError) -> None:
        """Called by the client, out of its own calls."""
        log.debug("client: %s", error)
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.refused = error
        if error.code() in _OF_TOPICS:
            self.topic = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down_since = self.down_since or time.monotonic()
        elif self.last is None or _HINT not in self.last.str():
            self.last = error

    def well(self) -> None:
        """Note that a broker answered."""
        self.refused = self.topic = self.last = self.down_since = None
        self.worked = True

    @property
    def troubled(self) -> bool:
        """Whether something was said since a broker answered."""
        return self.last is not None or self.down_since is not None

    def refusal(self, doing: str, where: str) -> StreamError | None:
        """The final error, where there is one.

        Credentials that worked once may be unknown to a broker that has just begun.
        """
        if self.topic is not None:
            return failure(self.topic, doing, where=where)
        if self.refused is None or self.worked:
            return None
        return failure(self.refused, doing, where=where)

    def unreachable(self, doing: str, where: str, seconds: float) -> StreamError:
        """The error when time is up."""
        if self.refused is not None:
            return failure(self.refused, doing, where=where)
        said = f": {self.last.str()}" if self.last is not None else ""
        msg = f"{doing}: no broker of {where} answers within {seconds:g} s{said}"
        remedy = "check broker.list and security.protocol, and that a broker runs there"
        return ConnectionFailed(msg, remedy=remedy)


_INHERITED: Final[list[object]] = []
"""Clients of the process that this one was forked from: neither closed nor dropped."""


def inherit(client: object) -> None:
    """Keep a client that a fork copied: touching it hangs, dropping it aborts."""
    _INHERITED.append(client)


def of_this_process(pid: int) -> bool:
    """Whether what was made by the process ``pid`` may be used here."""
    return pid == os.getpid()
