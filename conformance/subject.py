"""What is to be proved: a plug-in, and the harness that its author supplies."""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.decoders import DecoderHarness
from streamfactory.conformance.harness import Harness
from streamfactory.spi import BrokenPlugin, PluginError
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.conformance.runner import HarnessFactory
    from streamfactory.spi import Backend, Decoder

GROUP: Final = "streamfactory.conformance"
"""The entry points that name harnesses, each by the type of its backend."""
DECODER_GROUP: Final = f"{GROUP}.decoders"
"""The same for decoders."""

TYPE_KEYS: Final = ("streamtype", "stream.type")
"""Keys that name a type, in lower case."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a harness is for."""

    group: str
    methods: tuple[str, ...]
    module: str
    """Its help describes what to write."""

    @property
    def help(self) -> str:
        return f"see help({self.module})"


_BACKEND: Final = _Kind(
    GROUP,
    ("create", "properties", "partitions", "write", "numbers", "close"),
    Harness.__module__,
)
_DECODER: Final = _Kind(
    DECODER_GROUP, ("options", "message", "numbers"), DecoderHarness.__module__
)


class NoHarness(PluginError):
    """No harness is known for a plug-in; says what to write."""

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
        # An unknown type is reported before an unknown harness.
        backend = default_manager().backend(type_name)
        harness = _registered(type_name, _BACKEND)
        return Subject(backend, harness, default_manager())
    harness = _loaded(harness_path, _BACKEND)
    plugins = plugins_of(harness)
    return Subject(plugins.backend(type_name), harness, plugins)


def find_decoder(
    name: str, harness_path: str | None = None
) -> tuple[Decoder, Callable[[], Any]]:
    """A decoder, with its harness; arguments and errors as `find_subject`."""
    if harness_path is None:
        decoder = default_manager().decoder(name)
        return decoder, _registered(name, _DECODER)
    harness = _loaded(harness_path, _DECODER)
    return plugins_of(harness).decoder(name), harness


def subject_of(harness: Any, plugin: object = None) -> Subject:
    """The subject of a harness class, for callers without the name of a type.

    Args:
        harness: The class; its properties name the type.
        plugin: A module or object with the hook, for a backend that no entry point
            names.
    """
    _check(harness, getattr(harness, "__qualname__", repr(harness)), _BACKEND)
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
    """A manager with the plug-in that the harness supplies, if it supplies one."""
    if plugin is None and callable(getattr(harness, "plugin", None)):
        plugin = harness.plugin()
    if plugin is None:
        return default_manager()
    manager = PluginManager()
    manager.register(plugin)
    return manager


def _check(found: Any, where: str, kind: _Kind) -> None:
    """Refuse what is no harness, before a case meets it."""
    if not isinstance(found, type):
        msg = f"the harness {where} is no class"
        raise BrokenPlugin(msg, remedy=kind.help)
    missing = [n for n in kind.methods if not callable(getattr(found, n, None))]
    if missing:
        msg = f"the harness {where} has no {', '.join(missing)}"
        raise BrokenPlugin(msg, remedy=kind.help)


def _registered(name: str, kind: _Kind) -> Any:
    known = entry_points(group=kind.group)
    found = [entry for entry in known if entry.name == name]
    if not found:
        raise _no_harness(name, kind, sorted({entry.name for entry in known}))
    if len({entry.value for entry in found}) > 1:
        msg = f"{name!r} has several harnesses: {_values(found)}"
        raise NoHarness(msg, remedy="name one with --harness module:Class")
    return _loaded(found[0].value, kind)


def _values(entries: Any) -> str:
    return ", ".join(sorted(entry.value for entry in entries))


def _no_harness(name: str, kind: _Kind, known: list[str]) -> NoHarness:
    near = nearest(name, known)
    hint = f" (did you mean {near!r}?)" if near else ""
    msg = f"no harness is registered for {name!r}{hint}"
    remedy = (
        f"write one, {kind.help}, and name it in pyproject.toml under "
        f'[project.entry-points."{kind.group}"] as {name} = "module:Class", '
        "or here with --harness module:Class"
    )
    return NoHarness(msg, remedy=remedy)


def _loaded(path: str, kind: _Kind) -> Any:
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
    _check(found, path, kind)
    return found
