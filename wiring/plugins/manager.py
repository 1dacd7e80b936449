"""Finds plug-ins. The only module that uses pluggy and entry points.

Entry points are listed without loading, and loaded by name when a type is used. An
error of one plug-in is stored with it and does not affect others.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
import sys
import threading
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pluggy

from streamfactory.spi import (
    Backend,
    BrokenPlugin,
    Decoder,
    DuplicatePlugin,
    NotInstalled,
    PluginBlocked,
    PluginError,
    ReferenceScheme,
    UnknownPlugin,
)
from streamfactory.spi.hooks import (
    BACKENDS,
    DECODERS,
    REFERENCES,
    HookSpecs,
    import_all,
)
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.metadata import Distribution, EntryPoint

    from streamfactory.spi.hooks import Descriptor

OWN_DISTRIBUTION: Final = "streamfactory"
BLOCK: Final = "STREAMFACTORY_PLUGINS_BLOCK"
ALLOW: Final = "STREAMFACTORY_PLUGINS_ALLOW"
"""Environment variables: lists of type names, decoder names or distributions."""

_HOOKS: Final = {
    BACKENDS: "streamfactory_backend",
    DECODERS: "streamfactory_decoder",
    REFERENCES: "streamfactory_reference",
}
NOUNS: Final = {
    BACKENDS: "stream type",
    DECODERS: "decoder",
    REFERENCES: "reference scheme",
}
"""What the plug-ins of each group are called."""


class PluginInfo(NamedTuple):
    """One plug-in as it is listed, loaded or not."""

    name: str
    group: str
    distribution: str
    version: str
    target: str
    """The module of the entry point."""
    error: PluginError | None = None
    """Why it cannot be used, if known."""
    loaded: bool = False


class _Entry(NamedTuple):
    """An entry point and the distribution that has it."""

    point: EntryPoint
    distribution: str
    version: str

    @property
    def name(self) -> str:
        """The name of the plug-in."""
        return self.point.name

    @property
    def owner(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}".strip()


class PluginManager:
    """Finds and loads plug-ins.

    Thread-safe. Descriptors and failures are cached.

    Args:
        environ: Has the block and allow lists; by default the process environment.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._blocked = _words(environ.get(BLOCK, ""))
        self._allowed = _words(environ[ALLOW]) if environ.get(ALLOW) else None
        self._pluggy = pluggy.PluginManager("streamfactory")
        self._pluggy.add_hookspecs(HookSpecs)
        self._registered: dict[tuple[str, str], Descriptor] = {}
        self._outcomes: dict[tuple[str, str], Descriptor | PluginError] = {}
        self._lock = threading.RLock()

    def backend(self, name: str) -> Backend:
        """Return the descriptor of a stream type; loads its plug-in.

        Raises:
            UnknownPlugin: plugin; lists the known names and a near match.
            NotInstalled: plugin; the message is the command to run.
            BrokenPlugin, DuplicatePlugin, PluginTooNew, PluginBlocked: plugin.
        """
        found = self._get(BACKENDS, name)
        assert isinstance(found, Backend)
        return found

    def decoder(self, name: str) -> Decoder:
        """Return the descriptor of a decoder; loads its plug-in.

        Raises:
            PluginError: See `backend`.
        """
        found = self._get(DECODERS, name)
        assert isinstance(found, Decoder)
        return found

    def scheme(self, name: str) -> ReferenceScheme:
        """Return the descriptor of a scheme of references.

        Raises:
            PluginError: See `backend`.
        """
        found = self._get(REFERENCES, name)
        assert isinstance(found, ReferenceScheme)
        return found

    def load(self, group: str, name: str) -> Descriptor:
        """Return the descriptor of a plug-in of a group.

        Raises:
            PluginError: See `backend`.
        """
        return self._get(group, name)

    def names(self, group: str) -> list[str]:
        """Return the names of all plug-ins, sorted; loads none."""
        registered = {name for g, name in self._registered if g == group}
        return sorted(registered | {entry.name for entry in _entries(group)})

    def list(self, *groups: str, load: bool = False) -> list[PluginInfo]:
        """Return all plug-ins of some groups; with ``load``, loads each.

        In the order of the groups, and within a group sorted by name.
        """
        found = _entries(*groups)
        return [
            info
            for group in groups
            for info in self._infos(
                group, [e for e in found if e.point.group == group], load=load
            )
        ]

    def _infos(
        self, group: str, found: Sequence[_Entry], *, load: bool
    ) -> Sequence[PluginInfo]:
        listed = [
            PluginInfo(name, group, "(registered here)", "", "", loaded=True)
            for g, name in self._registered
            if g == group
        ]
        listed += [self._info(group, entry, found, load=load) for entry in found]
        return sorted(listed, key=lambda info: (info.name, info.distribution))

    def register(self, plugin: object) -> Descriptor:
        """Add a plug-in without an entry point: in a test or a notebook.

        Args:
            plugin: A module or object with one of the hooks.

        Raises:
            BrokenPlugin: plugin; it has no hook, or the hook failed.
            DuplicatePlugin: plugin; the name is registered already.
        """
        with self._lock:
            hooks = [g for g, hook in _HOOKS.items() if hasattr(plugin, hook)]
            group = hooks[0] if hooks else BACKENDS
            descriptor = self._call_hook(group, plugin, f"registered:{id(plugin)}")
            key = (group, descriptor.name)
            if key in self._registered:
                msg = f"{NOUNS[group]} {descriptor.name!r} is registered already"
                raise DuplicatePlugin(msg)
            self._registered[key] = descriptor
            return descriptor

    def unregister(self, group: str, name: str) -> None:
        """Remove a registered plug-in; unknown names are ignored."""
        with self._lock:
            self._registered.pop((group, name), None)

    def _get(self, group: str, name: str) -> Descriptor:
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

    def _find(self, group: str, name: str) -> Descriptor | PluginError:
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
        self, group: str, entry: _Entry, found: Sequence[_Entry], *, load: bool
    ) -> PluginInfo:
        target = entry.point.value
        info = PluginInfo(entry.name, group, entry.distribution, entry.version, target)
        same = [e for e in found if e.name == entry.name]
        free = [e for e in same if self._refusal(e) is None]
        refusal: PluginError | None = self._refusal(entry)
        if refusal is None and _winner(free) is not entry:
            refusal = _duplicate(group, entry.name, free)
        if refusal is not None:
            return info._replace(error=refusal)
        outcome = self._outcomes.get((group, entry.name))
        if outcome is None and load:
            try:
                outcome = self._get(group, entry.name)
                import_all(outcome)
            except PluginError as error:
                outcome = error
        if isinstance(outcome, PluginError):
            return info._replace(error=outcome)
        return info._replace(loaded=outcome is not None)

    def _refusal(self, entry: _Entry) -> PluginBlocked | None:
        words = _words(f"{entry.name},{entry.distribution}")
        if words & self._blocked:
            return PluginBlocked(f"{entry.name!r} is blocked by {BLOCK}")
        # A list of allowed types was written without the schemes of every installation.
        own = entry.distribution == OWN_DISTRIBUTION
        if own and entry.point.group == REFERENCES:
            return None
        if self._allowed is not None and not words & self._allowed:
            return PluginBlocked(f"{entry.name!r} is not allowed by {ALLOW}")
        return None

    def _unknown(self, group: str, name: str) -> UnknownPlugin:
        known = self.names(group)
        near = nearest(name.lower(), known)
        listed = f"known are {', '.join(known)}" if known else "none is installed"
        msg = f"unknown {NOUNS[group]} {name!r}; {listed}"
        return UnknownPlugin(msg, remedy=f"did you mean {near!r}?" if near else None)

    def _load(self, group: str, entry: _Entry) -> Descriptor:
        whose = f"{entry.name} of {entry.owner}"
        try:
            plugin = _load(entry.point)
        except ImportError as error:
            raise _import_failure(entry, error) from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise  # a signal, not the plug-in
            # A plug-in that calls sys.exit() at import must not end the host either.
            msg = f"plug-in {whose!r} failed to load: {type(error).__name__}: {error}"
            raise BrokenPlugin(msg) from error
        descriptor = self._call_hook(group, plugin, whose)
        if descriptor.name != entry.name:
            msg = f"plug-in {whose!r} describes itself as {descriptor.name!r}"
            raise BrokenPlugin(msg, remedy="the entry point and `name` must agree")
        return descriptor

    def _call_hook(self, group: str, plugin: Any, name: str) -> Descriptor:
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
            if isinstance(error, KeyboardInterrupt):
                raise  # a signal, not the plug-in
            # A hook that calls sys.exit() must not end the host.
            msg = f"plug-in {name!r}: {type(error).__name__}: {error}"
            raise BrokenPlugin(msg) from error
        finally:
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
        # Imported here: what lists plug-ins without loading needs no option.
        from streamfactory.wiring.plugins.descriptors import checked

        if group == BACKENDS:
            return checked(Backend, name, descriptor)
        if group == DECODERS:
            return checked(Decoder, name, descriptor)
        return checked(ReferenceScheme, name, descriptor)

    def _implements(self, plugin: Any, hook: str) -> bool:
        # pluggy 1.6 raises where a plug-in has no such attribute.
        if hook not in dir(plugin):
            return False
        return self._pluggy.parse_hookimpl_opts(plugin, hook) is not None


@cache
def default_manager() -> PluginManager:
    """Return the manager of this process."""
    return PluginManager()


def _words(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(_normalized, text.split(","))))


def _normalized(name: str) -> str:
    # Names of distributions are compared as in PEP 503.
    return re.sub(r"[-_.]+", "-", name.strip().lower())


def _entries(*groups: str) -> Sequence[_Entry]:
    found: list[_Entry] = []
    seen = set[str]()  # a folder may be on the path twice
    for owner in distributions():
        # Searched before it is parsed: most distributions declare nothing of ours.
        declared = owner.read_text("entry_points.txt") or ""
        if not any(group in declared for group in groups):
            continue
        name, version = _name_and_version(owner)
        if _normalized(name) not in seen and not _is_hidden(owner, name):
            seen.add(_normalized(name))
            points = (point for point in owner.entry_points if point.group in groups)
            found += [_Entry(point, name, version) for point in points]
    return found


def _name_and_version(owner: Distribution) -> tuple[str, str]:
    # Not `owner.metadata`: importing and running the parser of mails takes 5 ms.
    text = owner.read_text("METADATA") or owner.read_text("PKG-INFO") or ""
    lines = itertools.takewhile(bool, text.splitlines())
    fields = {key: value for key, _, value in (line.partition(": ") for line in lines)}
    return fields.get("Name", "unknown"), fields.get("Version", "")


def _is_hidden(owner: Distribution, name: str) -> bool:
    """Whether another distribution of this name comes before it on the path."""
    first = next(iter(distributions(name=name)), owner)
    return first.locate_file("") != owner.locate_file("")


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except KeyError as error:
        # CPython 3.11 can lose its record of a thread that imports while a finalizer
        # imports too (gh-91351). The modules are sound: the next import finds them.
        if error.args != (threading.get_ident(),):
            raise
        return entry.load()


def _winner(entries: list[_Entry]) -> _Entry | None:
    """Return our own entry, or the only one: others cannot replace a built-in."""
    own = [e for e in entries if e.distribution == OWN_DISTRIBUTION]
    chosen = own or entries
    return chosen[0] if len(chosen) == 1 else None


def _duplicate(group: str, name: str, found: list[_Entry]) -> DuplicatePlugin:
    owners = " and ".join(sorted(entry.distribution for entry in found))
    return DuplicatePlugin(f"{NOUNS[group]} {name!r} is provided by {owners}")


def _import_failure(entry: _Entry, error: ImportError) -> PluginError:
    missing = (error.name or "").partition(".")[0]
    # A missing module of an installed package is a defect, not a missing extra.
    elsewhere = missing not in ("", entry.point.module.partition(".")[0])
    absent = elsewhere and missing not in sys.modules and find_spec(missing) is None
    if isinstance(error, ModuleNotFoundError) and absent:
        extra = f"[{','.join(entry.point.extras)}]" if entry.point.extras else ""
        msg = f"{entry.name!r} requires the package {missing!r}, which is not installed"
        remedy = f"run: pip install '{entry.distribution}{extra}'"
        return NotInstalled(msg, remedy=remedy)
    whose, what = f"{entry.name} of {entry.owner}", f"{type(error).__name__}: {error}"
    return BrokenPlugin(f"plug-in {whose!r} failed to load: {what}")


def _wrong_hooks(group: str, name: str, found: list[str]) -> BrokenPlugin:
    if len(found) > 1:
        msg = f"plug-in {name!r} has two hooks, expected one"
        return BrokenPlugin(msg, remedy="give each a module and an entry point")
    instead = f", but `{found[0]}`" if found else ""
    msg = f"plug-in {name!r} has no hook `{_HOOKS[group]}` marked @hookimpl{instead}"
    return BrokenPlugin(msg)


def _again(error: PluginError) -> PluginError:
    """Return a copy of an error, because each raise adds a traceback."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
