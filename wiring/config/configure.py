"""From definitions to configurations: the steps in their order."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from streamfactory.spi import ConfigError, Problem, Role, StreamConfig
from streamfactory.wiring.config.classification import classify, group_properties
from streamfactory.wiring.config.crosschecks import Checked, check_rules
from streamfactory.wiring.config.resolution import resolve_options, resolve_values
from streamfactory.wiring.config.settled import Configured, settle
from streamfactory.wiring.options.masking import masked_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamfactory.spi import Option
    from streamfactory.wiring.config.definition import Property, StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager


def inspect(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str | None = None,
    allow_class_paths: bool = False,
    role: Role | None = None,
) -> Checked:
    """Validate a definition offline; problems are returned, not raised.

    A known type or decoder that is not installed is a warning, and its options are not
    checked. If the use is not known, a reference that cannot be resolved here is a
    warning too; its setting has the value None.

    Args:
        definition: The definition.
        plugins: Finds types and decoders.
        use: ``read``, ``write`` or ``spark``: options without effect there are
            reported; None if it is not known.
        allow_class_paths: Whether ``module:NAME`` may name a descriptor.
        role: Whether Spark reads or writes the stream, if known; implied by the uses
            ``read`` and ``write``.
    """
    classified = classify(
        definition, plugins, use=use, allow_class_paths=allow_class_paths
    )
    checked = check_rules(resolve_values(classified, use), use, role)
    texts = map(attrgetter("text"), definition.properties)
    problems = tuple(masked_problems(checked.problems, texts))
    config = checked.config and replace(checked.config, warnings=problems)
    return replace(checked, config=config, problems=problems)


def configure(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str,
    allow_class_paths: bool = False,
    role: Role | None = None,
) -> Configured:
    """Validate a definition for use, and load its plug-ins; arguments as `inspect`.

    Raises:
        ConfigError: config; with all problems.
        PluginError: plugin; the type or decoder is not installed, and there is no other
            problem.
    """
    checked = inspect(
        definition, plugins, use=use, allow_class_paths=allow_class_paths, role=role
    )
    reads = use != "write" and role is not Role.WRITE
    return settle(checked, plugins, reads=reads)


def resolve_settings(
    name: str,
    kind: str,
    options: Sequence[Option],
    properties: Sequence[Property],
    check: Callable[[StreamConfig], Iterable[Problem]],
) -> StreamConfig:
    """Validate the settings of a server or of the pages: they have one namespace.

    Args:
        name: What is configured, for messages.
        kind: The type of the configuration.
        options: What can be set.
        properties: What is set.
        check: Yields the problems with several options, once each is valid.

    Raises:
        ConfigError: config; every problem at once.
    """
    group, others = group_properties(options, ((prop.key, prop) for prop in properties))
    settings, problems = resolve_options(group, "serve")
    config = StreamConfig(name.removeprefix("the "), kind, settings)
    problems[:0] = (Problem(p.key, "unknown option", p.origin) for p in others)
    if not _errors(problems):
        problems += check(config)
    problems = masked_problems(problems, [prop.text for prop in properties])
    if errors := _errors(problems):
        msg = f"{name} cannot be configured"
        raise ConfigError(msg, problems=errors)
    return replace(config, warnings=tuple(problems))


def _errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.level == "error"]
