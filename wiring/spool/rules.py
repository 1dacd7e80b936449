"""Rules over the options of a spool."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.rules import place_problems
from streamfactory.spi import StreamError
from streamfactory.wiring.options.spool import PATH, store_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Backend, Problem, StreamConfig


def spool_problems(config: StreamConfig, backend: Backend) -> Iterator[Problem]:
    """Problems with the options ``spool.*``; connects to nothing.

    Args:
        config: Configuration of the stream, with ``spool.path``.
        backend: Its stream type.
    """
    yield from place_problems(store_config(config), writes=True)
    bounded = "spool.full.bytes" in config
    if config.given("spool.full") and not bounded:
        what = "has no effect without spool.full.bytes"
        yield config.problem("spool.full", what, level="warning")
    if "topic.name" not in config:
        what = "supports one topic only"
        yield config.problem(PATH, what, "set topic.name")
    if _is_replayable(config, backend):
        what = f"is not needed: stream type {config.type!r} can be read again"
        yield config.problem(PATH, what, "omit it")


def _is_replayable(config: StreamConfig, backend: Backend) -> bool:
    if backend.consumer_factory is None:
        return False
    # a stream that cannot be read is refused when it is opened
    with suppress(StreamError):
        factory = backend.consumer_factory(config)
        try:
            return factory.claims().replayable
        finally:
            factory.close()
    return False
