"""How a member of a consumer group joins: its settings, its topics and its start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from streamfactory.backends.kafka.client_pool import consumer_settings
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from streamfactory.backends.kafka.clients import Watch
    from streamfactory.spi import StreamConfig


def member_settings(
    config: StreamConfig, client_id: str, group: str, watch: Watch
) -> dict[str, Any]:
    """The settings of a member's client; secrets are resolved here."""
    settings: dict[str, Any] = consumer_settings(config, client_id, watch)
    settings["group.id"] = group
    if settings.get("group.protocol", "classic") == "classic":
        settings.setdefault("partition.assignment.strategy", "cooperative-sticky")
    return settings


def assigns_alone(config: StreamConfig) -> bool:
    """Whether the coordinator assigns partitions, to each member by its heartbeats."""
    return config.client_properties("consumer").get("group.protocol") == "consumer"


def cooperates(config: StreamConfig) -> bool:
    """Whether members keep the partitions that a rebalance does not move."""
    given = config.client_properties("consumer")
    strategy = given.get("partition.assignment.strategy", "cooperative-sticky")
    return assigns_alone(config) or strategy.startswith("cooperative")


def subscription(config: StreamConfig) -> list[str]:
    """The topics, or one pattern, to which a member subscribes."""
    if "topic.name" in config:
        return [config.topic]
    if "subscribe" in config:
        return list(config["subscribe"])
    # `check_options` refuses `assign`.
    return [f"^(?:{config['subscribePattern']})$".replace("^(?:^", "^(?:")]


def first_start(config: StreamConfig) -> int:
    """Where a group starts that has not committed: one of the client's constants.

    Raises:
        ConfigError: config; the options name a start that groups do not support.
    """
    word = config.get("startingOffsets")
    if word is None:
        word = config.get("consumer.prop.auto.offset.reset", "latest")
    if word not in ("earliest", "latest"):
        msg = f"a consumer group cannot start at {word!r}"
        remedy = "set startingOffsets to earliest or latest, or move the group with "
        remedy += "Kafka's tools"
        raise ConfigError(msg, stream=config.name, remedy=remedy)
    return OFFSET_BEGINNING if word == "earliest" else OFFSET_END
