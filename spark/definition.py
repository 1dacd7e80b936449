"""Builds configurations from Spark's options, on the driver and in tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkFiles

from streamfactory.spark.arrangement import Arrangement
from streamfactory.spark.catalogues import OPTION, Home
from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.config.documents import SUFFIXES
from streamfactory.wiring.config.loading import find_definition, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamConfig
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.settled import Configured

_ENGINE: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of sinks that Spark adds for itself."""


def configured_by(
    options: Mapping[str, str], home: Home | None = None
) -> tuple[Configured, Arrangement | None]:
    """The configuration that options name or hold, and what a pipeline adds.

    Args:
        options: ``stream`` names a stream, as the argument of ``load`` does (Spark
            calls that ``path``), of the catalogue in the folder ``streams``; everything
            else is a property, over the stream's own.
        home: Where the program that registered the source looks for streams.

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
    home = home or Home()
    definition = _definition(given, lowered, home).in_folder(home.folder)
    configured = load(definition, "spark")
    if not home.folder:
        _check_folders(configured.config)
    return configured, None


def _definition(
    given: dict[str, str], lowered: Mapping[str, str], home: Home
) -> StreamDefinition:
    """The definition that options name, or are; removes those that name it."""
    folder = given.pop(lowered[OPTION]) if OPTION in lowered else None
    names = {given.pop(lowered[key]) for key in ("stream", "path") if key in lowered}
    if len(names) > 1:
        msg = f"the options name two streams: {' and '.join(sorted(map(repr, names)))}"
        raise ConfigError(msg, remedy="keep the option `stream`, and load() empty")
    if not names:
        return from_mapping(given)
    name = names.pop()
    file = Path(home.folder, name)
    if file.suffix.lower() in SUFFIXES and file.exists():
        name = str(file)
    return find_definition(name, home.catalogue(folder)).with_overrides(given)


def _check_folders(config: StreamConfig) -> None:
    """Refuse paths that are relative to a folder of Spark's own, which it deletes.

    Spark Connect gives the processes of a session such a folder. Files that a program
    added to the session are there.

    Raises:
        ConfigError: config; with all such options.
    """
    here = Path.cwd()
    # Its public function requires a context, which only the program has.
    if str(here) != SparkFiles._root_directory:
        return
    settings = [*config.settings.values(), *config.decoder_settings.values()]
    problems = [
        Problem(
            one.full_key,
            f"{one.text!r} is relative to {here}, which Spark deletes",
            one.origin,
            "write an absolute path, or call streamfactory.spark.register(spark)",
        )
        for one in settings
        if one.origin == "argument"
        and isinstance(one.value, str)
        and one.value == str(here / one.text)
        and not Path(one.value).exists()
    ]
    if problems:
        msg = f"{len(problems)} problem{'s' * (len(problems) > 1)} in the configuration"
        raise ConfigError(msg, stream=config.name, problems=problems)
