"""Options, arguments and groups that several commands have."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.wiring.config.definition import StreamDefinition

C = TypeVar("C", bound="Callable[..., Any]")
"""A command's function."""


def interval_of(every: str, least: float) -> float:
    """The value of ``--every`` in seconds.

    Args:
        every: A period, such as 5s.
        least: The shortest that is allowed, in seconds.

    Raises:
        click.UsageError: It is no period, or too short.
    """
    # Imported here: `list` and `validate` have no period.
    from streamfactory.spi import PERIOD

    try:
        seconds = float(PERIOD.parse(every)) / 1000
    except ValueError as error:
        msg = f"--every {every!r} {error}"
        raise click.UsageError(msg) from None
    if seconds < least:
        msg = f"--every {every!r} is shorter than {least * 1000:g}ms."
        raise click.UsageError(msg)
    return seconds


json_flag = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    help="Print one JSON document; errors too.",
)

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    # `program` reads it, which prints errors of a line that cannot be parsed, too.
    expose_value=False,
    help="Format of standard error: text, or a log of JSON lines.",
)

class_paths_flag = click.option(
    "--allow-class-paths",
    is_flag=True,
    help="Allow the configuration to name Python objects, which are imported.",
)


class OrderedGroup(click.Group):
    """A group that lists its commands in the order of their declaration."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(self.commands)


class Overrides(NamedTuple):
    """Changes of a stream's properties for one command."""

    given: Mapping[str, str] = {}
    """``--set``: values that replace or add a property; may be empty strings."""
    removed: Sequence[str] = ()
    """``--unset``: keys of properties that the definition has."""

    def apply(self, definition: StreamDefinition) -> StreamDefinition:
        """The changed definition.

        Raises:
            ConfigError: config; a removed property is not in the definition.
        """
        return definition.without(self.removed).with_overrides(self.given)


def overrides_of(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, str]:
    """A click callback: ``KEY=VALUE``, each key once; the value may be empty."""
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


def copied_streams(function: C, *, or_pipeline: bool = False) -> C:
    """FROM and TO with properties that replace theirs: ``source`` and ``sink``.

    Args:
        function: The command.
        or_pipeline: Whether FROM alone is the ``pipeline`` instead, a file or a name.
    """
    name = "FROM|PIPELINE" if or_pipeline else "FROM"

    @click.argument("from_", metavar=name)
    @click.argument(
        "to", metavar="[TO]" if or_pipeline else "TO", required=not or_pipeline
    )
    @click.option(
        "--from-set",
        multiple=True,
        metavar="KEY=VALUE",
        callback=overrides_of,
        help="Replace or add a property of FROM. Repeatable.",
    )
    @click.option(
        "--to-set",
        multiple=True,
        metavar="KEY=VALUE",
        callback=overrides_of,
        help="Replace or add a property of TO. Repeatable.",
    )
    @wraps(function)
    def command(
        *args: Any,
        from_: str,
        to: str | None,
        from_set: dict[str, str],
        to_set: dict[str, str],
        **options: Any,
    ) -> Any:
        if to is None:
            if from_set or to_set:
                msg = "--from-set and --to-set need FROM and TO."
                raise click.UsageError(msg)
            return function(*args, source=None, sink=None, pipeline=from_, **options)
        if or_pipeline:
            options["pipeline"] = None
        source, sink = one_definition(from_, from_set), one_definition(to, to_set)
        return function(*args, source=source, sink=sink, **options)

    return command  # type: ignore[return-value]  # as in `set_option`


def set_option(function: C) -> C:
    """``--set KEY=VALUE`` and ``--unset KEY``, as the argument ``overrides``."""

    @click.option(
        "--set",
        "given",
        multiple=True,
        metavar="KEY=VALUE",
        callback=overrides_of,
        help="Replace or add a property; KEY= sets the empty string. Repeatable.",
    )
    @click.option(
        "--unset",
        "removed",
        multiple=True,
        metavar="KEY",
        help="Remove a property of the definition. Repeatable.",
    )
    @wraps(function)
    def command(
        *args: Any, given: dict[str, str], removed: Sequence[str], **options: Any
    ) -> Any:
        both = {key.lower() for key in given} & {key.lower() for key in removed}
        if both:
            msg = f"--set and --unset both name {min(both)}."
            raise click.UsageError(msg)
        return function(*args, overrides=Overrides(given, removed), **options)

    return command  # type: ignore[return-value]  # click replaces it by a command


def one_definition(
    target: str, overrides: Overrides | Mapping[str, str] | None = None
) -> StreamDefinition:
    """The one stream that a name or a file stands for.

    Raises:
        ConfigError: config; there is none, a file holds several, or an override does
            not fit.
    """
    # Imported here: `list` shares this module, and finds no stream.
    from streamfactory.wiring.config.catalogue import Catalogue

    definition = Catalogue().one(target)
    if not isinstance(overrides, Overrides):
        overrides = Overrides(overrides or {})
    return overrides.apply(definition)
