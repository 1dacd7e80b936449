"""Builds configurations from Spark's options, on the driver and in tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spark.arrangement import Arrangement
from streamfactory.spi import ConfigError
from streamfactory.wiring.config.loading import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.wiring.config.settled import Configured

_ENGINE: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of sinks that Spark adds for itself."""


def configured_by(
    options: Mapping[str, str],
) -> tuple[Configured, Arrangement | None]:
    """The configuration that options name or hold, and what a pipeline adds.

    Args:
        options: ``stream`` names a stream, as the argument of ``load`` does (Spark
            calls that ``path``); everything else is a property, over the stream's own.

    Raises:
        ConfigError: config; every problem at once.
        UnknownStream: config; no stream of that name.
        PluginError: plugin; the type is not installed, or broken.
    """
    given = {key: options[key] for key in options}
    lowered = {key.lower(): key for key in given}
    for key in _ENGINE & set(lowered):
        del given[lowered[key]]
    arranged = Arrangement.take(given)
    if arranged is not None:
        return load(arranged.definition, "spark", options=given), arranged
    names = {given.pop(lowered[key]) for key in ("stream", "path") if key in lowered}
    if len(names) > 1:
        msg = f"the options name two streams: {' and '.join(sorted(map(repr, names)))}"
        raise ConfigError(msg, remedy="keep the option `stream`, and load() empty")
    if names:
        return load(names.pop(), "spark", options=given), None
    return load(given, "spark"), None
