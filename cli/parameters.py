"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.wiring.config.definition import StreamDefinition

json_flag = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    help="Print one JSON document; errors too.",
)

class_paths_flag = click.option(
    "--allow-class-paths",
    is_flag=True,
    help="Let the configuration name Python objects, and import them.",
)


def overrides_of(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, str]:
    """A click callback: ``KEY=VALUE``, each key once."""
    overrides: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            msg = "wanted KEY=VALUE, with a key and an equals sign."
            raise click.BadParameter(msg, context, parameter)
        if key.strip().lower() in (known.lower() for known in overrides):
            msg = f"{key.strip()} is given twice."
            raise click.BadParameter(msg, context, parameter)
        overrides[key.strip()] = value
    return overrides


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=overrides_of,
    help="Replace or add a property; may be given several times.",
)


def one_definition(target: str, overrides: dict[str, str]) -> StreamDefinition:
    """The one stream that a name or a file stands for.

    Raises:
        ConfigError: config; there is none, or a file holds several.
    """
    # Imported here: `list` shares this module, and looks no stream up.
    from streamfactory.wiring.config.catalogue import ENVIRONMENT, Catalogue

    found = Catalogue().find(target)
    if len(found) != 1:
        names = ", ".join(definition.name for definition in found)
        msg = f"{target} holds several streams: {names}"
        remedy = f"let {ENVIRONMENT} name its folder, and give one of the names"
        raise ConfigError(msg, remedy=remedy)
    return found[0].with_overrides(overrides)
