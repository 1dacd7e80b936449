"""Finding plug-ins. The only module that touches pluggy and entry points.

Entry points are listed cheaply and loaded by name, when a type is used. Whatever is
wrong with one plug-in is kept with it as its reason and hurts no other.
"""

from __future__ import annotations

import difflib
import os
import threading
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

import pluggy

from streamfactory.spi import (
    SPI_LEVEL,
    Backend,
    BrokenPlugin,
    Decoder,
    DuplicatePlugin,
    NotInstalled,
    PluginBlocked,
    PluginError,
    PluginTooNew,
    UnknownPlugin,
)
from streamfactory.spi.hooks import BACKENDS, DECODERS, HookSpecs
from streamfactory.wiring.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN_DISTRIBUTION: Final = "streamfactory"
BLOCK: Final = "STREAMFACTORY_PLUGINS_BLOCK"
ALLOW: Final = "STREAMFACTORY_PLUGINS_ALLOW"
"""Both: comma lists of type names, decoder names, or distributions."""

_HOOKS: Final = {BACKENDS: "streamfactory_backend", DECODERS: "streamfactory_decoder"}
_NOUNS: Final = {BACKENDS: "stream type", DECODERS: "decoder"}
_TYPES: Final[Mapping[str, type[Any]]] = {BACKENDS: Backend, DECODERS: Decoder}


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One plug-in as it is listed, loaded or not."""

    name: str
    group: str
    distribution: str
    version: str
    target: str
    """The module that the entry point names."""
    error: PluginError | None = None
    """Why it cannot be used, as far as that is known."""
    loaded: bool = False


class PluginManager:
    """A typed front: nothing else asks pluggy.

    Thread-safe. Descriptors and failures are remembered for the life of the manager.

    Args:
        environ: Where the block and allow lists are read; the process environment.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._blocked = _words(environ.get(BLOCK, ""))
        self._allowed = _words(environ[ALLOW]) if environ.get(ALLOW) else None
        self._pluggy = pluggy.PluginManager("streamfactory")
        self._pluggy.add_hookspecs(HookSpecs)
        self._registered: dict[tuple[str, str], Backend | Decoder] = {}
        self._outcomes: dict[tuple[str, str], Backend | Decoder | PluginError] = {}
        self._lock = threading.RLock()

    def backend(self, name: str) -> Backend:
        """The descriptor of a stream type; loads its plug-in.

        Raises:
            UnknownPlugin: plugin; lists the known names and a near match.
            NotInstalled: plugin; the message is the command to run.
            BrokenPlugin, DuplicatePlugin, PluginTooNew, PluginBlocked: plugin.
        """
        found = self._get(BACKENDS, name)
        assert isinstance(found, Backend)
        return found

    def decoder(self, name: str) -> Decoder:
        """The descriptor of a message format; loads its plug-in.

        Raises:
            PluginError: As `backend`.
        """
        found = self._get(DECODERS, name)
        assert isinstance(found, Decoder)
        return found

    def names(self, group: str) -> list[str]:
        """Names that can be asked for, sorted; nothing is loaded."""
        registered = {name for g, name in self._registered if g == group}
        return sorted(registered | {entry.name for entry in _entries(group)})

    def list(self, group: str, *, load: bool = False) -> list[PluginInfo]:
        """All plug-ins of a group, sorted by name; with ``load``, each is tried."""
        listed = [
            PluginInfo(name, group, "(registered here)", "", "", loaded=True)
            for g, name in self._registered
            if g == group
        ]
        listed += [self._info(group, entry, load=load) for entry in _entries(group)]
        return sorted(listed, key=lambda info: (info.name, info.distribution))

    def register(self, plugin: object) -> Backend | Decoder:
        """Add a plug-in that no entry point names: from a test, or a notebook.

        Args:
            plugin: A module or object with one of the hooks.

        Raises:
            BrokenPlugin: plugin; it has no hook, or the hook misbehaves.
            DuplicatePlugin: plugin; the name is registered already.
        """
        with self._lock:
            hooks = [g for g, hook in _HOOKS.items() if hasattr(plugin, hook)]
            if len(hooks) != 1:
                msg = f"{plugin!r} has {len(hooks)} of our hooks, wanted one"
                raise BrokenPlugin(msg)
            descriptor = self._call_hook(hooks[0], plugin, f"registered:{id(plugin)}")
            key = (hooks[0], descriptor.name)
            if key in self._registered:
                msg = f"{_NOUNS[hooks[0]]} {descriptor.name!r} is registered already"
                raise DuplicatePlugin(msg)
            self._registered[key] = descriptor
            return descriptor

    def unregister(self, group: str, name: str) -> None:
        """Take back what `register` added; a name that is not there is fine."""
        with self._lock:
            self._registered.pop((group, name), None)

    def _get(self, group: str, name: str) -> Backend | Decoder:
        with self._lock:
            key = (group, name)
            if key in self._registered:
                return self._registered[key]
            if key not in self._outcomes:
                self._outcomes[key] = self._find(group, name)
            outcome = self._outcomes[key]
        if isinstance(outcome, PluginError):
            raise outcome
        return outcome

    def _find(self, group: str, name: str) -> Backend | Decoder | PluginError:
        found = [entry for entry in _entries(group) if entry.name == name]
        if not found:
            return self._unknown(group, name)
        blocked = [entry for entry in found if self._refusal(entry) is not None]
        free = [entry for entry in found if entry not in blocked]
        if not free:
            return self._refusal(blocked[0]) or self._unknown(group, name)
        entry = _winner(free)
        if entry is None:
            return _duplicate(group, name, free)
        try:
            return self._load(group, entry)
        except PluginError as error:
            return error

    def _info(self, group: str, entry: EntryPoint, *, load: bool) -> PluginInfo:
        distribution, version = _distribution(entry)
        info = PluginInfo(entry.name, group, distribution, version, entry.value)
        same = [e for e in _entries(group) if e.name == entry.name]
        free = [e for e in same if self._refusal(e) is None]
        refusal: PluginError | None = self._refusal(entry)
        if refusal is None and _winner(free) != entry:
            refusal = _duplicate(group, entry.name, free)
        if refusal is not None:
            return replace(info, error=refusal)
        outcome = self._outcomes.get((group, entry.name))
        if outcome is None and load:
            try:
                outcome = self._get(group, entry.name)
            except PluginError as error:
                outcome = error
        if isinstance(outcome, PluginError):
            return replace(info, error=outcome)
        return replace(info, loaded=outcome is not None)

    def _refusal(self, entry: EntryPoint) -> PluginBlocked | None:
        words = {entry.name.lower(), _distribution(entry)[0].lower()}
        if words & self._blocked:
            return PluginBlocked(f"{entry.name!r} is blocked by {BLOCK}")
        if self._allowed is not None and not words & self._allowed:
            return PluginBlocked(f"{entry.name!r} is not allowed by {ALLOW}")
        return None

    def _unknown(self, group: str, name: str) -> UnknownPlugin:
        known = self.names(group)
        near = difflib.get_close_matches(name.lower(), known, n=1)
        msg = f"unknown {_NOUNS[group]} {name!r}; known are {', '.join(known)}"
        return UnknownPlugin(msg, remedy=f"did you mean {near[0]!r}?" if near else None)

    def _load(self, group: str, entry: EntryPoint) -> Backend | Decoder:
        owner = " ".join(_distribution(entry)).strip()
        try:
            plugin = entry.load()
        except ImportError as error:
            raise _import_failure(entry, error) from error
        # A plug-in that calls sys.exit() at import must not end the host either.
        except (Exception, SystemExit) as error:
            msg = (
                f"plug-in {entry.name!r} of {owner} failed to load: "
                f"{type(error).__name__}: {error}"
            )
            raise BrokenPlugin(msg) from error
        descriptor = self._call_hook(group, plugin, f"{group}:{entry.name}")
        if descriptor.name != entry.name:
            msg = (
                f"plug-in {entry.name!r} of {owner} describes itself as "
                f"{descriptor.name!r}"
            )
            raise BrokenPlugin(msg, remedy="the entry point and `name` must agree")
        return descriptor

    def _call_hook(self, group: str, plugin: Any, name: str) -> Backend | Decoder:
        try:
            self._pluggy.register(plugin, name=name)
            self._pluggy.check_pending()
            others = [p for p in self._pluggy.get_plugins() if p is not plugin]
            hook = self._pluggy.subset_hook_caller(_HOOKS[group], others)
            results = hook()
        except Exception as error:
            msg = f"plug-in {name!r}: {type(error).__name__}: {error}"
            raise BrokenPlugin(msg) from error
        finally:
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
        if len(results) != 1:
            msg = f"plug-in {name!r} has no hook `{_HOOKS[group]}` marked @hookimpl"
            raise BrokenPlugin(msg)
        return _checked(group, name, results[0])


@cache
def default_manager() -> PluginManager:
    """The manager of this process."""
    return PluginManager()


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip())


def _entries(group: str) -> Iterable[EntryPoint]:
    return entry_points(group=group)


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    found = entry.dist
    return ("unknown", "") if found is None else (found.name, found.version)


def _winner(entries: list[EntryPoint]) -> EntryPoint | None:
    """Our own entry, or the only one: a stranger cannot take a built-in's name."""
    own = [e for e in entries if _distribution(e)[0] == OWN_DISTRIBUTION]
    chosen = own or entries
    return chosen[0] if len(chosen) == 1 else None


def _duplicate(group: str, name: str, found: list[EntryPoint]) -> DuplicatePlugin:
    owners = " and ".join(sorted(_distribution(entry)[0] for entry in found))
    return DuplicatePlugin(f"{_NOUNS[group]} {name!r} is claimed by {owners}")


def _import_failure(entry: EntryPoint, error: ImportError) -> PluginError:
    distribution = _distribution(entry)[0]
    missing = (error.name or "").partition(".")[0]
    own_package = entry.module.partition(".")[0]
    if missing and missing != own_package:
        extra = f"[{','.join(entry.extras)}]" if entry.extras else ""
        command = (
            f"run: pip install '{distribution}{extra}'"
            if extra
            else f"run: pip install {missing}"
        )
        msg = f"{entry.name!r} needs the package {missing!r}, which is not installed"
        return NotInstalled(msg, remedy=command)
    return BrokenPlugin(f"plug-in {entry.name!r} of {distribution}: {error}")


def _checked(group: str, name: str, descriptor: Any) -> Backend | Decoder:
    if not isinstance(descriptor, Backend | Decoder) or not isinstance(
        descriptor, _TYPES[group]
    ):
        wanted = _TYPES[group].__name__
        got = type(descriptor).__name__
        msg = f"plug-in {name!r} answers a {got}, wanted a {wanted}"
        raise BrokenPlugin(msg)
    if descriptor.spi_level > SPI_LEVEL:
        msg = (
            f"{descriptor.name!r} needs SPI level {descriptor.spi_level}, "
            f"this is level {SPI_LEVEL}"
        )
        raise PluginTooNew(msg)
    keys = [
        key for option in descriptor.options for key in (option.key, *option.aliases)
    ]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    clash = sorted(set(keys) & FRAMEWORK_OPTIONS.keys()) if group == BACKENDS else []
    if twice or clash:
        what = (
            f"declares {twice[0]!r} twice"
            if twice
            else (f"declares {clash[0]!r}, a word of the framework")
        )
        msg_0 = f"{descriptor.name!r} {what}"
        raise BrokenPlugin(msg_0)
    return descriptor
