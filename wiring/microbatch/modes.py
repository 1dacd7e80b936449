"""What an option means for a batch and for a stream, where that differs.

As in Spark-Kafka; but what has no effect is told there as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Setting, StreamConfig

log = logging.getLogger("streamfactory")

_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_LIMITS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_STARTS: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "consumer.prop.auto.offset.reset",
)
"""As they beat one another."""
_EARLIEST: Final = -2
_LATEST: Final = -1


def check_stream(config: StreamConfig) -> None:
    """Refuse what a stream cannot do.

    Raises:
        ConfigError: config; an option says where a stream ends.
    """
    problems = [
        Problem(s.full_key, "a stream has no end: this is for batches", s.origin)
        for s in _given(config, _ENDS)
    ]
    _refuse(config, problems)


def check_batch(config: StreamConfig) -> None:
    """Refuse what a batch cannot do, and warn of what it does not heed.

    Raises:
        ConfigError: config; it starts where there is nothing yet, or ends where
            nothing is any more.
    """
    for setting in _given(config, _LIMITS):
        problem = Problem(
            setting.full_key, "has no effect on a batch: no trigger", setting.origin
        )
        log.warning("stream %r: %s", config.name, problem)
    problems = []
    start = next(_given(config, _STARTS), None)
    if start is not None and _says(start, "latest", _LATEST):
        what = "a batch that starts at latest has no rows"
        hint = "say startingOffsets=earliest, or a timestamp"
        problems.append(Problem(start.full_key, what, start.origin, hint))
    end = next(_given(config, _ENDS), None)
    if end is not None and _says(end, "earliest", _EARLIEST):
        what = "a batch that ends at earliest has no rows"
        problems.append(Problem(end.full_key, what, end.origin))
    _refuse(config, problems)


def _given(config: StreamConfig, keys: tuple[str, ...]) -> Iterator[Setting]:
    for key in keys:
        setting = config.settings.get(key)
        if setting is not None and setting.origin != "default":
            yield setting


def _says(setting: Setting, word: str, number: int) -> bool:
    """Whether it is the word, or offsets of which one means it."""
    value = setting.value
    if not isinstance(value, dict):
        return bool(value == word)
    return any(number in by_id.values() for by_id in value.values())


def _refuse(config: StreamConfig, problems: list[Problem]) -> None:
    if problems:
        count = len(problems)
        msg = f"{count} problem{'s' * (count > 1)} in the configuration"
        raise ConfigError(msg, problems=problems, stream=config.name)
