"""``redis``: Redis Streams. What the entry point leads to."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from redis import exceptions
from streamfactory import spi

from streamfactory_redis.admin import RedisTopicAdmin
from streamfactory_redis.layout import topic_problem
from streamfactory_redis.reading import RedisConsumerFactory
from streamfactory_redis.writing import RedisProducerFactory


def address_problem(text: str) -> str | None:
    """What is wrong with the address of a server; None if nothing."""
    host, _, port = text.rpartition(":")
    if host and port.isascii() and port.isdecimal() and int(port) < 65536:
        return None
    return "is not host:port"


def check_options(
    config: spi.StreamConfig, role: spi.Role | None
) -> Iterator[spi.Problem]:
    """Rules over several options."""
    if config.given("user") and not config.given("password"):
        yield config.problem("user", "needs password")
    if config.given("tls.ca.file") and not config["tls"]:
        what = "has no effect without tls=true"
        yield config.problem("tls.ca.file", what, level="warning")


@spi.hookimpl
def streamfactory_backend() -> spi.Backend:
    """The stream type, its options and its factories."""
    return spi.Backend(
        name="redis",
        doc="Redis Streams: undecoded messages.",
        spi_level=1,
        options=(
            spi.Option(
                "topic.name",
                "Name of the topic, or the key of a stream.",
                required=True,
                validator=topic_problem,
            ),
            spi.Option(
                "address",
                "Address of the server.",
                default="127.0.0.1:6379",
                validator=address_problem,
            ),
            spi.Option(
                "database",
                "Number of the database.",
                spi.INTEGER,
                default="0",
                minimum=0,
            ),
            spi.Option("user", "Name of the user."),
            spi.Option("password", "Password of the user.", secret=True),
            spi.Option("tls", "Whether to use TLS.", spi.BOOLEAN, default="false"),
            spi.Option("tls.ca.file", "PEM file of the authority.", spi.PATH),
            spi.Option(
                "delete.acknowledged",
                "Delete entries from the stream once they were stored elsewhere.",
                spi.BOOLEAN,
                default="false",
            ),
            spi.Option(
                "partitions",
                "Partitions of a topic that is created.",
                spi.INTEGER,
                default="1",
                minimum=1,
                maximum=10_000,
            ),
            spi.Option(
                "staged.retention.millis",
                "How long rows of an undecided epoch are kept.",
                spi.PERIOD,
                default="7d",
                minimum=60_000,
            ),
        ),
        consumer_factory=RedisConsumerFactory,
        producer_factory=RedisProducerFactory,
        topic_admin=RedisTopicAdmin,
        yields=spi.Yields.ENVELOPE,
        check_options=check_options,
        translate=spi.ErrorTable(
            {
                exceptions.AuthenticationError: spi.NotAuthorized,
                exceptions.AuthorizationError: spi.NotAuthorized,
                exceptions.NoPermissionError: spi.NotAuthorized,
                ssl.SSLCertVerificationError: spi.NotAuthorized,
                exceptions.TimeoutError: spi.StreamTimeout,
                exceptions.BusyLoadingError: spi.ConnectionFailed,
                exceptions.ReadOnlyError: spi.ConnectionFailed,
                exceptions.ConnectionError: spi.ConnectionFailed,
                exceptions.OutOfMemoryError: spi.StorageFailed,
                exceptions.ResponseError: spi.PermanentError,
                exceptions.RedisError: spi.TransientError,
            }
        ),
    )
