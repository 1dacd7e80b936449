"""``mqtt``: topics of an MQTT 5 broker. What the entry point leads to."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from streamfactory import spi

from streamfactory_mqtt.options import OPTIONS
from streamfactory_mqtt.reading import MqttConsumerFactory
from streamfactory_mqtt.writing import MqttProducerFactory


def check_options(
    config: spi.StreamConfig, role: spi.Role | None
) -> Iterator[spi.Problem]:
    """Rules over several options."""
    if config.given("user") and not config.given("password"):
        yield config.problem("user", "needs password")
    if config.given("password") and not config.given("user"):
        yield config.problem("password", "needs user")
    if config.given("tls.ca.file") and not config["tls"]:
        what = "has no effect without tls=true"
        yield config.problem("tls.ca.file", what, level="warning")
    if role is spi.Role.READ:
        for key in ("filters", "client.id"):
            if not config.given(key):
                yield config.problem(key, "is required to read")
        if config.given("acknowledge") and config["acknowledge"] == "stored":
            if config["qos"] != "1":
                yield config.problem("acknowledge", "=stored requires qos=1")
            if config.given("shared.group"):
                what = "=stored excludes shared.group: the broker may deliver again "
                yield config.problem("acknowledge", what + "to another member")
    if role is spi.Role.WRITE:
        if not config.given("publish.topic"):
            yield config.problem("publish.topic", "is required to write")
        elif (
            config.given("partitions") and "{partition}" not in config["publish.topic"]
        ):
            what = "has no effect without {partition} in publish.topic"
            yield config.problem("partitions", what, level="warning")


@spi.hookimpl
def streamfactory_backend() -> spi.Backend:
    """The stream type, its options and its factories."""
    return spi.Backend(
        name="mqtt",
        doc="Topics of an MQTT 5 broker: undecoded messages.",
        spi_level=1,
        options=OPTIONS,
        consumer_factory=MqttConsumerFactory,
        producer_factory=MqttProducerFactory,
        yields=spi.Yields.ENVELOPE,
        check_options=check_options,
        translate=spi.ErrorTable(
            {
                ssl.SSLCertVerificationError: spi.NotAuthorized,
                OSError: spi.ConnectionFailed,
            }
        ),
    )
