"""Rules over several settings of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.rules import place_problems
from streamfactory.backends.flight.server.options import STORE_OPTIONS
from streamfactory.spi import Problem
from streamfactory.spi.listening import listening_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import StreamConfig


def check_options(config: StreamConfig) -> Iterator[Problem]:
    """See `StreamServer.check_options`."""
    yield from _store(config)
    yield from listening_problems(config)


def _store(config: StreamConfig) -> Iterator[Problem]:
    if config["memory"] == ("path" in config):
        what = "the server needs either path or memory=true"
        yield Problem("path", what, "", "set one of the two")
    elif "path" in config:
        yield from place_problems(config, writes=True)
    else:
        for option in STORE_OPTIONS:
            if config.given(option.key):
                what = "has no effect with memory=true"
                yield config.problem(option.key, what, level="warning")
