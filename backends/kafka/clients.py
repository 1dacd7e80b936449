"""librdkafka clients: settings, reported network errors, and forks.

The client reports some errors only through a callback, such as rejected credentials or
the loss of all brokers. `Watch` stores them for the thread that waits for a call.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError

from streamfactory.backends.kafka.client_keys import JAVA_ONLY, RENAMED
from streamfactory.backends.kafka.errors import failure
from streamfactory.backends.kafka.security import (
    PREFIXES,
    java_security,
    pinot_security,
)
from streamfactory.backends.kafka.tokens import token_callback
from streamfactory.spi import ConfigError, ConnectionFailed, StreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamConfig

log = logging.getLogger("streamfactory.kafka")

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
"""Properties about connections to brokers. They apply to every client."""

_QUICK: Final[Mapping[str, str]] = {
    "reconnect.backoff.ms": "100",
    "reconnect.backoff.max.ms": "1000",
    "allow.auto.create.topics": "false",
}


def brokers(config: StreamConfig) -> str:
    """The bootstrap brokers."""
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
    """The settings of a librdkafka client.

    Args:
        config: The stream's configuration. Secrets are resolved here.
        kind: ``consumer`` or ``producer``, with the user's pass-through properties; or
            ``admin``. Missing credentials are taken from the other kind.
        client_id: Client id in the brokers' logs.
        watch: Receives the client's reports about the network.

    Raises:
        ConfigError: config; the form of the credentials is not supported.
        NotAuthorized: permanent; no token can be fetched for them.
    """
    own = config.client_properties("consumer" if kind == "admin" else kind)
    other = config.client_properties("consumer" if kind == "producer" else "producer")
    given = {k: v for k, v in other.items() if k.startswith(PREFIXES)} | own
    if kind == "admin":
        given = {k: v for k, v in given.items() if k.startswith(_NETWORK)}
    for key in sorted(JAVA_ONLY & given.keys()):
        log.info("%s has no effect: it is a property of the Java client", key)
    known = {RENAMED.get(k, k): v for k, v in given.items() if k not in JAVA_ONLY}
    secure = {k: v for k, v in known.items() if k.startswith(PREFIXES)}
    plain = {k: v for k, v in known.items() if k not in secure}
    tokens = token_callback(config, secure.get("sasl.oauthbearer.config", ""))
    return {
        **_QUICK,
        **plain,
        **pinot_security(config),
        **java_security(secure),
        **({} if tokens is None else {"oauth_cb": tokens}),
        "bootstrap.servers": brokers(config),
        "client.id": client_id,
        "error_cb": watch or Watch(),
        "logger": CLIENT_LOG,
    }


def refused(error: Exception, config: StreamConfig) -> ConfigError:
    """The error for a client that rejects its settings."""
    inner = error.args[0] if error.args else error
    reason = inner.str() if isinstance(inner, KafkaError) else str(inner)
    msg = f"the Kafka client rejects its settings: {reason}"
    prefix = f"stream.{config.type}."
    remedy = f"check {prefix}consumer.prop.* and {prefix}producer.prop.*"
    return ConfigError(msg, stream=config.name, remedy=remedy)


class _ClientLog:
    """Receives the client's log. Relevant events are also reported as errors."""

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log at debug level: the client repeats messages with every attempt."""
        log.debug(message, *arguments)


CLIENT_LOG: Final = _ClientLog()


OF_TOPICS: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors of a topic. All but that of authorization may pass, for a new topic."""


_ALERT: Final = re.compile(r"SSL alert number (?:4[2-689]|116)\b")
"""What the client reports if the broker refuses the certificate, or requires one. With
TLS 1.3 its handshake is complete by then, and the error that of a lost connection."""
_HINT: Final = "connecting to a"
"""Part of the client's message if it detects a protocol mismatch. Worth keeping."""


class Watch:
    """Errors that a client reported since the last successful response."""

    def __init__(self) -> None:
        self.refused: KafkaError | None = None
        """Credentials or certificates were rejected."""
        self.topic: KafkaError | None = None
        """The topic does not exist, or access is denied."""
        self.last: KafkaError | None = None
        self.down_since: float | None = None
        """Time at which all brokers became unreachable; None otherwise."""
        self.worked = False
        """Whether a broker has ever responded."""

    def __call__(self, error: KafkaError) -> None:
        """Called by the client during its own calls."""
        log.debug("client: %s", error)
        if _ALERT.search(error.str()):
            reason = f"the broker requires another client certificate: {error.str()}"
            error = KafkaError(KafkaError._SSL, reason)
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.refused = error
        if error.code() in OF_TOPICS:
            self.topic = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down_since = self.down_since or time.monotonic()
        elif self.last is None or _HINT not in self.last.str():
            self.last = error

    def clear(self) -> None:
        """Record that a broker responded."""
        self.refused = self.topic = self.last = self.down_since = None
        self.worked = True

    @property
    def troubled(self) -> bool:
        """Whether an error was reported since a broker responded."""
        return self.last is not None or self.down_since is not None

    def refusal(self, doing: str, where: str) -> StreamError | None:
        """The permanent error, if there is one.

        Credentials that worked before are not reported: a broker that has just started
        may not know them yet.
        """
        if self.topic is not None:
            return failure(self.topic, doing, where=where)
        if self.refused is None or self.worked:
            return None
        return failure(self.refused, doing, where=where)

    def unreachable(self, doing: str, where: str, seconds: float) -> StreamError:
        """The error for a timeout."""
        if self.refused is not None:
            return failure(self.refused, doing, where=where)
        reason = f": {self.last.str()}" if self.last is not None else ""
        msg = f"{doing}: no broker of {where} responded within {seconds:g} s{reason}"
        remedy = "check broker.list and security.protocol, and that a broker runs there"
        return ConnectionFailed(msg, remedy=remedy)


_INHERITED: Final[list[object]] = []
"""Clients of the parent process of a fork: neither closed nor garbage-collected."""


def keep_inherited(client: object) -> None:
    """Keep a forked client alive: using it hangs, freeing it aborts the process."""
    _INHERITED.append(client)


def of_this_process(pid: int) -> bool:
    """Whether an object created by the process ``pid`` may be used in this process."""
    return pid == os.getpid()
