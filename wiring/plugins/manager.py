"""Finding plug-ins. The only module that touches pluggy and entry points.

Entry points are listed cheaply and loaded by name, when a type is used. Whatever is
wrong with one plug-in is kept with it as its reason and hurts no other.
"""

from __future__ import annotations

import copy
import difflib
import os
import re
import sys
import threading
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pluggy

from streamfactory.spi import (
    Backend,
    BrokenPlugin,
    Decoder,
    DuplicatePlugin,
    NotInstalled,
    PluginBlocked,
    PluginError,
    UnknownPlugin,
)
from streamfactory.spi.hooks import BACKENDS, DECODERS, HookSpecs
from streamfactory.wiring.plugins.descriptors import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OWN_DISTRIBUTION: Final = "streamfactory"
BLOCK: Final = "STREAMFACTORY_PLUGINS_BLOCK"
ALLOW: Final = "STREAMFACTORY_PLUGINS_ALLOW"
"""Both: comma lists of type names, decoder names, or distributions."""

_HOOKS: Final = {BACKENDS: "streamfactory_backend", DECODERS: "streamfactory_decoder"}
_NOUNS: Final = {BACKENDS: "stream type", DECODERS: "decoder"}


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
        found = _entries(group)
        listed += [self._info(group, entry, found, load=load) for entry in found]
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
            group = hooks[0] if hooks else BACKENDS
            descriptor = self._call_hook(group, plugin, f"registered:{id(plugin)}")
            key = (group, descriptor.name)
            if key in self._registered:
                msg = f"{_NOUNS[group]} {descriptor.name!r} is registered already"
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
            raise _again(outcome)
        return outcome

    def _find(self, group: str, name: str) -> Backend | Decoder | PluginError:
        found = [entry for entry in _entries(group) if entry.name == name]
        if not found:
            return self._unknown(group, name)
        free = [entry for entry in found if self._refusal(entry) is None]
        if not free:
            return self._refusal(found[0]) or self._unknown(group, name)
        entry = _winner(free)
        if entry is None:
            return _duplicate(group, name, free)
        try:
            return self._load(group, entry)
        except PluginError as error:
            return error

    def _info(
        self, group: str, entry: EntryPoint, found: Sequence[EntryPoint], *, load: bool
    ) -> PluginInfo:
        distribution, version = _distribution(entry)
        info = PluginInfo(entry.name, group, distribution, version, entry.value)
        same = [e for e in found if e.name == entry.name]
        free = [e for e in same if self._refusal(e) is None]
        refusal: PluginError | None = self._refusal(entry)
        if refusal is None and _winner(free) is not entry:
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
        words = _words(f"{entry.name},{_distribution(entry)[0]}")
        if words & self._blocked:
            return PluginBlocked(f"{entry.name!r} is blocked by {BLOCK}")
        if self._allowed is not None and not words & self._allowed:
            return PluginBlocked(f"{entry.name!r} is not allowed by {ALLOW}")
        return None

    def _unknown(self, group: str, name: str) -> UnknownPlugin:
        known = self.names(group)
        near = difflib.get_close_matches(name.lower(), known, n=1)
        listed = f"known are {', '.join(known)}" if known else "none is installed"
        msg = f"unknown {_NOUNS[group]} {name!r}; {listed}"
        return UnknownPlugin(msg, remedy=f"did you mean {near[0]!r}?" if near else None)

    def _load(self, group: str, entry: EntryPoint) -> Backend | Decoder:
        owner = " ".join(_distribution(entry)).strip()
        try:
            plugin = entry.load()
        except ImportError as error:
            raise _import_failure(entry, error) from error
        except BaseException as error:
            if type(error) is KeyboardInterrupt:
                raise  # Ctrl-C
            # A plug-in that calls sys.exit() at import must not end the host either.
            msg = (
                f"plug-in '{entry.name} of {owner}' failed to load: "
                f"{type(error).__name__}: {error}"
            )
            raise BrokenPlugin(msg) from error
        descriptor = self._call_hook(group, plugin, f"{entry.name} of {owner}")
        if descriptor.name != entry.name:
            msg = (
                f"plug-in '{entry.name} of {owner}' describes itself as "
                f"{descriptor.name!r}"
            )
            raise BrokenPlugin(msg, remedy="the entry point and `name` must agree")
        return descriptor

    def _call_hook(self, group: str, plugin: Any, name: str) -> Backend | Decoder:
        try:
            self._pluggy.register(plugin, name=name)
            self._pluggy.check_pending()
            found = [h for h in _HOOKS.values() if self._implements(plugin, h)]
            if found != [_HOOKS[group]]:
                raise _wrong_hooks(group, name, found)
            others = [p for p in self._pluggy.get_plugins() if p is not plugin]
            [descriptor] = self._pluggy.subset_hook_caller(_HOOKS[group], others)()
        except PluginError:
            raise
        except BaseException as error:
            if type(error) is KeyboardInterrupt:
                raise  # Ctrl-C
            # A hook that calls sys.exit() must not end the host.
            msg = f"plug-in {name!r}: {type(error).__name__}: {error}"
            raise BrokenPlugin(msg) from error
        finally:
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
        if group == BACKENDS:
            return checked(Backend, name, descriptor)
        return checked(Decoder, name, descriptor)

    def _implements(self, plugin: Any, hook: str) -> bool:
        return self._pluggy.parse_hookimpl_opts(plugin, hook) is not None


@cache
def default_manager() -> PluginManager:
    """The manager of this process."""
    return PluginManager()


def _words(text: str) -> frozenset[str]:
    # Distributions are the same whatever of these stands between their words.
    words = (re.sub(r"[-_.]+", "-", word.strip().lower()) for word in text.split(","))
    return frozenset(word for word in words if word)


def _entries(group: str) -> Sequence[EntryPoint]:
    return tuple(entry_points(group=group))


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
    distribution, version = _distribution(entry)
    missing = (error.name or "").partition(".")[0]
    # A module of an installed package that is not there is a defect, not an extra.
    elsewhere = missing not in ("", entry.module.partition(".")[0])
    absent = elsewhere and missing not in sys.modules and find_spec(missing) is None
    if isinstance(error, ModuleNotFoundError) and absent:
        extra = f"[{','.join(entry.extras)}]" if entry.extras else ""
        msg = f"{entry.name!r} needs the package {missing!r}, which is not installed"
        return NotInstalled(msg, remedy=f"run: pip install '{distribution}{extra}'")
    owner = f"{distribution} {version}".strip()
    what = f"{type(error).__name__}: {error}"
    return BrokenPlugin(f"plug-in '{entry.name} of {owner}' failed to load: {what}")


def _wrong_hooks(group: str, name: str, found: list[str]) -> BrokenPlugin:
    if len(found) > 1:
        msg = f"plug-in {name!r} has two hooks, wanted one"
        return BrokenPlugin(msg, remedy="give each a module and an entry point")
    instead = f", but `{found[0]}`" if found else ""
    msg = f"plug-in {name!r} has no hook `{_HOOKS[group]}` marked @hookimpl{instead}"
    return BrokenPlugin(msg)


def _again(error: PluginError) -> PluginError:
    """The same error for another raise: each has a traceback of its own."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
