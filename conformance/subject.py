"""What is to be proved: a backend, and the harness that its author supplies."""

from __future__ import annotations

import difflib
import importlib
import tempfile
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.harness import Harness
from streamfactory.spi import BrokenPlugin, PluginError
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.plugins import PluginManager, default_manager

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.conformance.runner import HarnessFactory
    from streamfactory.spi import Backend

GROUP: Final = "streamfactory.conformance"
"""The entry points that name harnesses, each by the type of its backend."""

TYPE_KEYS: Final = ("streamtype", "stream.type")
"""Keys that name a type, in lower case."""

_METHODS: Final = ("create", "properties", "partitions", "write", "numbers", "close")


class NoHarness(PluginError):
    """No harness is known for a type; says what to write."""

    code = "no_harness"


@dataclass(frozen=True, slots=True)
class Subject:
    """A backend that can be proved."""

    backend: Backend
    harness: HarnessFactory
    plugins: PluginManager


def find_subject(type_name: str, harness_path: str | None = None) -> Subject:
    """The backend of a type, with its harness.

    Args:
        type_name: As in ``streamType``.
        harness_path: ``module:Class``; else the entry point of that name.

    Raises:
        PluginError: plugin; there is no such type or harness, or it cannot be used.
    """
    if harness_path is None:
        # An unknown type is told before an unknown harness.
        backend = default_manager().backend(type_name)
        harness = _registered(type_name)
        return Subject(backend, harness, default_manager())
    harness = _loaded(harness_path)
    plugins = plugins_of(harness)
    return Subject(plugins.backend(type_name), harness, plugins)


def subject_of(harness: Any, plugin: object = None) -> Subject:
    """The subject of a harness class, for whoever has no name of a type.

    Args:
        harness: The class; its properties tell the type.
        plugin: A module or object with the hook, for a backend that no entry point
            names.
    """
    checked_harness(harness, getattr(harness, "__qualname__", repr(harness)))
    plugins = plugins_of(harness, plugin)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        made = harness(Path(folder))
        try:
            made.create(1)
            name = stream_type(made.properties())
        finally:
            made.close()
    if name is None:
        msg = f"{harness.__qualname__}.properties() names no streamType"
        raise BrokenPlugin(msg)
    return Subject(plugins.backend(name), harness, plugins)


def stream_type(properties: Mapping[str, str]) -> str | None:
    """The type that properties name, whatever the spelling of the key."""
    listed = from_mapping(properties).properties
    found = (p.text.lower() for p in listed if p.key.lower() in TYPE_KEYS)
    return next(found, None)


def plugins_of(harness: Any, plugin: object = None) -> PluginManager:
    """A manager that knows the plug-in which comes with a harness, if one does."""
    if plugin is None and callable(getattr(harness, "plugin", None)):
        plugin = harness.plugin()
    if plugin is None:
        return default_manager()
    manager = PluginManager()
    manager.register(plugin)
    return manager


def checked_harness(found: Any, where: str) -> HarnessFactory:
    """A class that has what `Harness` wants.

    Raises:
        BrokenPlugin: plugin; names what is missing.
    """
    if not isinstance(found, type):
        msg = f"the harness {where} is no class"
        raise BrokenPlugin(msg, remedy=f"see {_help()}")
    missing = [name for name in _METHODS if not callable(getattr(found, name, None))]
    if missing:
        msg = f"the harness {where} has no {', '.join(missing)}"
        raise BrokenPlugin(msg, remedy=f"see {_help()}")
    return found


def _registered(type_name: str) -> HarnessFactory:
    known = entry_points(group=GROUP)
    found = [entry for entry in known if entry.name == type_name]
    if not found:
        raise _no_harness(type_name, sorted({entry.name for entry in known}))
    if len({entry.value for entry in found}) > 1:
        msg = f"{type_name!r} has several harnesses: {_values(found)}"
        raise NoHarness(msg, remedy="name one with --harness module:Class")
    return _loaded(found[0].value)


def _values(entries: Any) -> str:
    return ", ".join(sorted(entry.value for entry in entries))


def _no_harness(type_name: str, known: list[str]) -> NoHarness:
    near = difflib.get_close_matches(type_name, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    msg = f"no harness is registered for {type_name!r}{hint}"
    remedy = (
        f"write one, see {_help()}, and name it in pyproject.toml under "
        f'[project.entry-points."{GROUP}"] as {type_name} = "module:Class", '
        "or here with --harness module:Class"
    )
    return NoHarness(msg, remedy=remedy)


def _loaded(path: str) -> HarnessFactory:
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        msg = f"{path!r} names no harness, wanted module:Class"
        raise NoHarness(msg)
    try:
        found = getattr(importlib.import_module(module), name)
    # Whatever a stranger's module does at import, it must not end the host.
    except (Exception, SystemExit) as error:
        msg = f"the harness {path} cannot be loaded: {type(error).__name__}: {error}"
        raise BrokenPlugin(msg) from error
    return checked_harness(found, path)


def _help() -> str:
    return f"help({Harness.__module__})"
