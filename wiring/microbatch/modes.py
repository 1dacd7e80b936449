"""Options that differ between batch and streaming queries.

As in Spark's Kafka source, but options without effect are reported as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import StreamConfig
    from streamfactory.spi.config import Setting

log = logging.getLogger("streamfactory")

_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_LIMITS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "max.rows.per.second",
)
_FRESH: Final = ("fresh.within.millis", "fresh.within.rows")
_STARTS: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "consumer.prop.auto.offset.reset",
)
"""In order of precedence."""
_EARLIEST: Final = -2
_LATEST: Final = -1


def check_stream(config: StreamConfig) -> None:
    """Refuse options that do not apply to a streaming query.

    Raises:
        ConfigError: config; an option defines an end, or skips rows.
    """
    problems = [
        Problem(
            s.full_key,
            "is for batch queries only: a streaming query has no end",
            s.origin,
        )
        for s in _given(config, _ENDS)
    ]
    problems += [
        Problem(
            s.full_key,
            "is for `streamfactory copy --follow` only: a query of Spark skips nothing",
            s.origin,
            "remove it, or set it where the copy runs: --from-set",
        )
        for s in _given(config, _FRESH)
        if s.value
    ]
    _refuse(config, problems)


def check_batch(config: StreamConfig) -> None:
    """Refuse options that do not apply to a batch query; warn of those without effect.

    Raises:
        ConfigError: config; it starts at latest, or ends at earliest.
    """
    for setting in _given(config, _LIMITS):
        problem = Problem(
            setting.full_key,
            "has no effect on a batch query: it has no trigger",
            setting.origin,
        )
        log.warning("stream %r: %s", config.name, problem)
    problems = []
    start = next(_given(config, _STARTS), None)
    if start is not None and _says(start, "latest", _LATEST):
        what = "a batch that starts at latest has no rows"
        hint = "set startingOffsets=earliest, or a timestamp"
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
    """Whether the value is the word, or has an offset that stands for it."""
    value = setting.value
    if not isinstance(value, dict):
        return bool(value == word)
    return any(number in by_id.values() for by_id in value.values())


def _refuse(config: StreamConfig, problems: list[Problem]) -> None:
    if problems:
        count = len(problems)
        msg = f"{count} problem{'s' * (count > 1)} in the configuration"
        raise ConfigError(msg, problems=problems, stream=config.name)
