"""Options that all live transports have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import BOOLEAN, SIZE, Option, OptionType
from streamfactory.spi.options import whole_number
from streamfactory.spi.topics import topic_name_problem

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

READ: Final = frozenset({"read"})
WRITE: Final = frozenset({"write"})


def _number_or_any(text: str) -> int | None:
    if text.strip().lower() == "any":
        return None
    number = whole_number(text)
    if not 1 <= number <= 1000:
        msg = "is neither any nor a number from 1 to 1000"
        raise ValueError(msg)
    return number


NUMBER_OR_ANY: Final = OptionType(
    "integer or any", _number_or_any, {"type": ["string", "integer"]}
)
"""Number of peers; None for any number."""


def topic_option(default: str) -> Option:
    """The option ``topic.name``."""
    return Option(
        "topic.name",
        "Topic name in positions and error messages.",
        default=default,
        validator=topic_name_problem,
    )


def plaintext_option(protection: str) -> Option:
    """The option ``allow.plaintext``.

    Args:
        protection: Name of the encryption that the transport has.
    """
    doc = f"Allow addresses on other machines without {protection}."
    return Option("allow.plaintext", doc, BOOLEAN, default="false")


MESSAGE_OPTIONS: Final = (
    Option(
        "max.message.bytes",
        "Maximum size of a message from a peer, also when it is decompressed.",
        SIZE,
        default="256M",
        minimum=1024,
        maximum=2**40,
        applies=READ,
    ),
    Option(
        "max.metadata.bytes",
        "Maximum size of a message header or a schema from a peer.",
        SIZE,
        default="1M",
        minimum=1024,
        maximum=2**30,
        applies=READ,
    ),
)


def seconds(config: StreamConfig, key: str) -> float:
    """The value of a period, in seconds; 0 for one of the other direction."""
    millis: int = config.get(key, 0)
    return millis / 1000


class LiveSettings:
    """Settings that all live transports have, in seconds and bytes.

    Args:
        config: A configuration that `check_options` accepted.
        listening: The option for the addresses of a side that waits for connections.
    """

    def __init__(self, config: StreamConfig, listening: str) -> None:
        self.listens = listening in config
        """Whether this side waits for connections."""
        self.addresses = config[listening if self.listens else "connect"]
        """By partition."""
        self.timeout = seconds(config, "connection.timeout.millis")
        """Timeout for the connections of peers."""
        self.buffer: int = config["buffer.bytes"]
