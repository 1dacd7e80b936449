"""Loads a stream's configuration by name or properties.

The first step of all openers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import MisuseError
from streamfactory.spi.arguments import FLAG, having, takes
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition, from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from streamfactory.spi import Role
    from streamfactory.wiring.config.catalogue import Catalogue
    from streamfactory.wiring.config.settled import Configured

StreamLike = str | PathLike[str] | Mapping[str, Any] | StreamDefinition
"""The name of a stream in the catalogue, a file, its properties, or its definition."""

FAULTS: Final = having("around_consumers", taken="pass a streamfactory.Faults")
PLUGINS: Final = having("backend", taken="pass a PluginManager")


def find_definition(
    named: StreamLike, catalogue: Catalogue | None = None
) -> StreamDefinition:
    """Return the definition of a name, a file, a map of properties, or itself.

    A text that ends as the files of definitions do, ``other.toml``, is the path of a
    file if one is there.

    Args:
        named: The stream.
        catalogue: Where names are looked up; by default that of the process.

    Raises:
        UnknownStream: config; no stream has that name.
        ConfigError: config; a property is not a string, or a file cannot be read.
        MisuseError: misuse; it is none of these.
    """
    if isinstance(named, StreamDefinition):
        return named
    if isinstance(named, Mapping):
        return from_mapping(named)
    kind: type = type(named)
    if not issubclass(kind, str | PathLike):
        msg = f"a stream is not a {kind.__name__!r}"
        remedy = (
            "pass its name, the path of its file, or a dictionary of its properties"
        )
        raise MisuseError(msg, remedy=remedy)
    if catalogue is None:
        # Imported here: Spark's workers load a stream by its configuration.
        from streamfactory.wiring.config.catalogue import Catalogue

        catalogue = Catalogue()
    return catalogue.one(named)


@takes(allow_class_paths=FLAG, plugins=PLUGINS)
def load(
    named: StreamLike,
    use: str,
    *,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    role: Role | None = None,
    quiet: bool = False,
    catalogue: Catalogue | None = None,
) -> Configured:
    """Find a stream and validate its configuration.

    Args:
        named: The stream.
        use: ``read``, ``write`` or ``spark``.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.
        role: Whether Spark reads or writes the stream, if known.
        quiet: Whether warnings of the configuration are left out, because the caller
            shows them, or opens the stream again and again.
        catalogue: Where names are looked up; by default that of the process.

    Raises:
        ConfigError: config; with all problems.
        UnknownStream: config; no stream has that name.
        PluginError: plugin; the type is not installed, or broken.
    """
    found = configure(
        find_definition(named, catalogue).with_overrides(options),
        plugins or default_manager(),
        use=use,
        allow_class_paths=allow_class_paths,
        role=role,
    )
    if not quiet:
        return found
    return replace(found, config=replace(found.config, warnings=()))
