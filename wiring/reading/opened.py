"""Sources that are opened to look at a stream, and closed again."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from streamfactory.spi import Unsupported
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.wiring.config.definition import StreamDefinition


@contextmanager
def opened_source(
    definition: StreamDefinition, *, client_id: str = "streamfactory-ui"
) -> Iterator[Source]:
    """A source for look-ups; it is closed at the end of the block.

    Raises:
        ConfigError: config; every problem of the configuration at once.
        StreamError: Of the factory, with its secrets masked.
    """
    configured = load(definition, "read", quiet=True)
    with (
        masked_errors([configured.config.mask]),
        closing(Source(configured, client_id=client_id)) as source,
    ):
        yield source


def refuse_transport(source: Source) -> None:
    """Refuse to connect to what can be read once.

    A look-up would bind the address of a receiver, or take messages from it.

    Raises:
        Unsupported: misuse; messages of the stream cannot be read again.
    """
    if not source.claims.replayable:
        msg = "not looked up: this transport can be read once, and a second "
        msg += "connection may take its messages"
        remedy = "set spool.path, and run `streamfactory spool`"
        raise Unsupported(msg, stream=source.config.name, remedy=remedy)
