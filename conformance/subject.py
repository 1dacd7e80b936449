"""What is to be proved: a plug-in, and the harness that its author supplies."""

from __future__ import annotations

import importlib
import tempfile
import warnings
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.bench import Bench
from streamfactory.conformance.case import (
    CASES,
    DECODER_CASES,
    SCHEME_CASES,
    Registry,
)
from streamfactory.conformance.decoders import DecoderBench
from streamfactory.conformance.harness import BACKEND, DECODER, SCHEME, Kind
from streamfactory.conformance.patience import USUAL, Waits
from streamfactory.conformance.schemes import SchemeBench
from streamfactory.conformance.workbench import guarded
from streamfactory.spi import BrokenPlugin, PluginError
from streamfactory.spi.hooks import REFERENCES
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.spi import Backend, Decoder, ReferenceScheme

TYPE_KEYS: Final = ("streamtype", "stream.type")
"""Keys that name a type, in lower case."""


class NoHarness(PluginError):
    """No harness is known for a plug-in; says what to write."""

    code = "no_harness"


@dataclass(frozen=True, slots=True)
class Subject:
    """A backend that can be proved."""

    backend: Backend
    harness: Callable[[Path], Any]
    plugins: PluginManager
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Properties over those of the harness."""
    waits: Waits = USUAL

    @property
    def name(self) -> str:
        """The type."""
        return self.backend.name

    @property
    def claims(self) -> dict[str, dict[str, Any]]:
        """The fields of its strongest claims as a source and as a sink, plain."""
        factories = {
            "source": self.backend.consumer_factory,
            "sink": self.backend.producer_factory,
        }
        found = {role: f.CLAIMS for role, f in factories.items() if f is not None}
        return {
            role: {**asdict(claims), "epoch_visibility": claims.epoch_visibility.value}
            for role, claims in found.items()
        }

    @property
    def registry(self) -> Registry[Bench]:
        """The cases of backends."""
        return CASES

    def prepare(self) -> None:
        """Start what the harness shares between cases."""
        prepare = getattr(self.harness, "prepare", None)
        if prepare is not None:
            guarded(prepare, self.harness, "prepare")()

    def open(self, folder: Path, seed: int = 0) -> Bench:
        """The environment of a case. The caller closes it.

        Args:
            folder: Empty, for the harness.
            seed: Seed of the random choices.
        """
        made = guarded(self.harness, self.harness, "__init__")(folder)
        return Bench(self.backend, made, self.plugins, self.overrides, seed, self.waits)


@dataclass(frozen=True, slots=True)
class DecoderSubject:
    """A decoder that can be proved."""

    decoder: Decoder
    harness: Callable[[], Any]
    waits: Waits = USUAL

    @property
    def name(self) -> str:
        """The decoder's."""
        return self.decoder.name

    @property
    def claims(self) -> dict[str, dict[str, Any]]:
        """A decoder claims nothing."""
        return {}

    @property
    def registry(self) -> Registry[DecoderBench]:
        """The cases of decoders."""
        return DECODER_CASES

    def prepare(self) -> None:
        """Nothing is shared between cases."""

    def open(self, folder: Path, seed: int = 0) -> DecoderBench:  # noqa: ARG002 - of backends
        """The environment of a case. The caller closes it."""
        made = guarded(self.harness, self.harness, "__init__")()
        return DecoderBench(self.decoder, made, seed)


@dataclass(frozen=True, slots=True)
class SchemeSubject:
    """A scheme of references that can be proved. Its plug-in is installed."""

    scheme: ReferenceScheme
    harness: Callable[[], Any]
    waits: Waits = USUAL

    @property
    def name(self) -> str:
        """The scheme's."""
        return self.scheme.name

    @property
    def claims(self) -> dict[str, dict[str, Any]]:
        """A scheme claims nothing."""
        return {}

    @property
    def registry(self) -> Registry[SchemeBench]:
        """The cases of schemes."""
        return SCHEME_CASES

    def prepare(self) -> None:
        """Start what the harness shares between cases."""
        prepare = getattr(self.harness, "prepare", None)
        if prepare is not None:
            guarded(prepare, self.harness, "prepare")()

    def open(self, folder: Path, seed: int = 0) -> SchemeBench:  # noqa: ARG002 - of backends
        """The environment of a case. The caller closes it."""
        made = guarded(self.harness, self.harness, "__init__")()
        return SchemeBench(self.scheme, made, seed)


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
        harness = _registered(type_name, BACKEND)
        return Subject(backend, harness, default_manager())
    harness = _loaded(harness_path, BACKEND)
    plugins = plugins_of(harness)
    return Subject(plugins.backend(type_name), harness, plugins)


def find_decoder(name: str, harness_path: str | None = None) -> DecoderSubject:
    """A decoder, with its harness; arguments and errors as `find_subject`."""
    if harness_path is None:
        decoder = default_manager().decoder(name)
        return DecoderSubject(decoder, _registered(name, DECODER))
    harness = _loaded(harness_path, DECODER)
    return DecoderSubject(plugins_of(harness).decoder(name), harness)


def find_scheme(name: str, harness_path: str | None = None) -> SchemeSubject:
    """A scheme of references, with its harness; arguments and errors as above.

    A plug-in that the harness supplies stays registered in this process.
    """
    # References are resolved by the plug-ins of the process, where one is added.
    plugins = default_manager()
    if harness_path is None:
        scheme = plugins.scheme(name)
        return SchemeSubject(scheme, _registered(name, SCHEME))
    harness = _loaded(harness_path, SCHEME)
    if callable(getattr(harness, "plugin", None)):
        plugins.unregister(REFERENCES, name)  # that of a harness before this one
        plugins.register(harness.plugin())
    return SchemeSubject(plugins.scheme(name), harness)


def subject_of(harness: Any, plugin: object = None) -> Subject:
    """The subject of a harness class, for callers without the name of a type.

    Args:
        harness: The class; its properties name the type.
        plugin: A module or object with the hook, for a backend that no entry point
            names.
    """
    _check(harness, getattr(harness, "__qualname__", repr(harness)), BACKEND)
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


def _check(found: Any, where: str, kind: Kind) -> None:
    """Refuse what is no harness, before a case meets it."""
    if not isinstance(found, type):
        msg = f"the harness {where} is no class"
    elif problems := list(kind.problems(found)):
        msg = f"the harness {where} {'; '.join(problems)}"
    else:
        for name in kind.helpers(found):
            what = f"the harness {where} has an unknown public method {name}"
            warnings.warn(f"{what}: rename it _{name}", FutureWarning, stacklevel=2)
        return
    raise BrokenPlugin(msg, remedy=_HELP)


_HELP: Final = f"see help({Kind.__module__})"


def _registered(name: str, kind: Kind) -> Any:
    known = entry_points(group=kind.group)
    found = {entry.value for entry in known if entry.name == name}
    if not found:
        raise _no_harness(name, kind, sorted({entry.name for entry in known}))
    if len(found) > 1:
        msg = f"{name!r} has several harnesses: {', '.join(sorted(found))}"
        raise NoHarness(msg, remedy="name one with --harness module:Class")
    return _loaded(found.pop(), kind)


def _no_harness(name: str, kind: Kind, known: list[str]) -> NoHarness:
    near = nearest(name, known)
    hint = f" (did you mean {near!r}?)" if near else ""
    msg = f"no harness is registered for {name!r}{hint}"
    remedy = (
        f"write one, {_HELP}, and name it in pyproject.toml under "
        f'[project.entry-points."{kind.group}"] as {name} = "module:Class", '
        "or here with --harness module:Class"
    )
    return NoHarness(msg, remedy=remedy)


def _loaded(path: str, kind: Kind) -> Any:
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
