"""``nats``: streams of NATS JetStream. What the entry point leads to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

import nats.errors
from streamfactory import spi

from streamfactory_nats.admin import NatsTopicAdmin
from streamfactory_nats.connection import ApiError
from streamfactory_nats.layout import topic_problem
from streamfactory_nats.reading import NatsConsumerFactory
from streamfactory_nats.writing import NatsProducerFactory

_TLS_FILES = ("tls.ca.file", "tls.certificate.file", "tls.key.file")


def check_options(
    config: spi.StreamConfig, role: spi.Role | None
) -> Iterator[spi.Problem]:
    """Rules over several options."""
    for key, other in (("user", "password"), ("password", "user")):
        if config.given(key) and not config.given(other):
            yield config.problem(key, f"needs {other}")
    if config.given("tls.key.file") and not config.given("tls.certificate.file"):
        yield config.problem("tls.key.file", "needs tls.certificate.file")
    for key in _TLS_FILES:
        if config.given(key) and not config["tls"]:
            yield config.problem(key, "has no effect without tls=true", level="warning")


def _code(error: BaseException) -> str | None:
    """The kind of an error that `nats-py` raises as its base class."""
    text = str(error).lower()
    for word in ("authorization violation", "permissions violation", "authentication"):
        if isinstance(error, nats.errors.Error) and word in text:
            return "denied"
    return None


@spi.hookimpl
def streamfactory_backend() -> spi.Backend:
    """The stream type, its options and its factories."""
    return spi.Backend(
        name="nats",
        doc="Streams of NATS JetStream: undecoded messages.",
        spi_level=1,
        options=(
            spi.Option(
                "topic.name",
                "Name of the topic, or of a JetStream stream.",
                required=True,
                validator=topic_problem,
            ),
            spi.Option(
                "servers",
                "Addresses of servers, tried in this order.",
                spi.LIST,
                default="nats://127.0.0.1:4222",
            ),
            spi.Option("user", "Name of the user."),
            spi.Option("password", "Password of the user.", secret=True),
            spi.Option("token", "Token of the server.", secret=True),
            spi.Option(
                "credentials.file", "File with a JWT and its NKey seed.", spi.PATH
            ),
            spi.Option("tls", "Whether to use TLS.", spi.BOOLEAN, default="false"),
            spi.Option("tls.ca.file", "PEM file of the authority.", spi.PATH),
            spi.Option(
                "tls.certificate.file",
                "PEM file of the client's certificate.",
                spi.PATH,
            ),
            spi.Option("tls.key.file", "PEM file of its key.", spi.PATH),
            spi.Option(
                "delete.acknowledged",
                "Delete messages from the stream once they were stored elsewhere.",
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
                "replicas",
                "Replicas of the streams of a topic that is created.",
                spi.INTEGER,
                default="1",
                minimum=1,
                maximum=5,
            ),
            spi.Option(
                "staged.retention.millis",
                "In a topic that is created: keep undecided rows for so long.",
                spi.PERIOD,
                default="7d",
                minimum=60_000,
            ),
        ),
        consumer_factory=NatsConsumerFactory,
        producer_factory=NatsProducerFactory,
        topic_admin=NatsTopicAdmin,
        yields=spi.Yields.ENVELOPE,
        check_options=check_options,
        translate=spi.ErrorTable(
            {
                nats.errors.AuthorizationError: spi.NotAuthorized,
                nats.errors.InvalidUserCredentialsError: spi.NotAuthorized,
                nats.errors.MaxPayloadError: spi.MessageTooLarge,
                nats.errors.TimeoutError: spi.StreamTimeout,
                ssl.SSLCertVerificationError: spi.NotAuthorized,
                asyncio.TimeoutError: spi.StreamTimeout,
                nats.errors.Error: spi.ConnectionFailed,
                ApiError: spi.TransientError,
            },
            codes={"denied": spi.NotAuthorized},
            code_of=_code,
        ),
    )
