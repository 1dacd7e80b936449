"""Which options of a spool exclude or disable one another."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.places import place_problems
from streamfactory.spi import StreamError
from streamfactory.wiring.options.spool import PATH, store_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Backend, Problem, StreamConfig


def spool_problems(config: StreamConfig, backend: Backend) -> Iterator[Problem]:
    """Problems with the options ``spool.*``; connects to nothing.

    Args:
        config: Of the stream, with ``spool.path``.
        backend: Its type.
    """
    yield from place_problems(store_config(config), writes=True)
    bounded = "spool.full.bytes" in config
    if config.given("spool.full") and not bounded:
        what = "has no effect without spool.full.bytes"
        yield config.problem("spool.full", what, level="warning")
    if "topic.name" not in config:
        what = "receives one topic"
        yield config.problem(PATH, what, "name the topic: topic.name")
    if _is_replayable(config, backend):
        what = f"is refused: {config.type!r} can replay without a spool"
        yield config.problem(PATH, what, "leave it out")


def _is_replayable(config: StreamConfig, backend: Backend) -> bool:
    if backend.consumer_factory is None:
        return False
    with suppress(StreamError):  # a stream that cannot be read is refused when it is
        factory = backend.consumer_factory(config)
        try:
            return factory.claims().replayable
        finally:
            factory.close()
    return False
