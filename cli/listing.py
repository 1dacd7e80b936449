"""``list``: the plug-ins that there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result, table
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.plugins.manager import PluginInfo, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.cli.printing import Printer

_KINDS: Final = {BACKENDS: "stream type", DECODERS: "decoder"}
_STATES: Final = {
    "broken_plugin": "broken",
    "duplicate_plugin": "duplicate",
    "not_installed": "not installed",
    "plugin_blocked": "blocked",
    "plugin_too_new": "too new",
}


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One plug-in of ``list``."""

    kind: str
    """``stream type`` or ``decoder``."""
    name: str
    distribution: str
    version: str
    state: str
    """``available`` (not tried), ``loaded``, ``blocked``, ``duplicate``, ..."""
    reason: str | None
    target: str
    """The module that the entry point names."""


@dataclass(frozen=True, slots=True)
class Plugins(Result):
    """The answer of ``list``."""

    plugins: list[PluginLine]

    def lines(self) -> Iterable[str]:
        """The answer as text."""
        head = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "REASON")
        rows = [
            (p.kind, p.name, p.distribution, p.version, p.state, p.reason or "")
            for p in self.plugins
        ]
        return table([head if any(row[-1] for row in rows) else head[:-1], *rows])


@click.command("list")
@click.option("--load", is_flag=True, help="Load each, and show why one cannot be.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="With --load: how long each may take.",
)
@json_flag
@click.pass_obj
def list_command(printer: Printer, *, load: bool, timeout: float) -> None:
    """List stream types and decoders.

    Nothing is imported without --load: what is listed is what their packages declare.
    With --load, another process imports them: one that hangs or crashes hurts no other.
    """
    manager = default_manager()
    infos = [info for group in _KINDS for info in manager.list(group)]
    if load:
        infos = _tried(infos, timeout)
    printer.show(Plugins([_line(_KINDS[info.group], info) for info in infos]))


def _tried(infos: Sequence[PluginInfo], seconds: float) -> list[PluginInfo]:
    """What is known of plug-ins once each was loaded."""
    from streamfactory.wiring.streams.probing import probe

    untried = [i for i in infos if i.error is None and not i.loaded]
    errors = probe([(info.group, info.name) for info in untried], seconds)
    return [
        replace(info, error=errors[info.group, info.name], loaded=True)
        if info in untried
        else info
        for info in infos
    ]


def _line(kind: str, info: PluginInfo) -> PluginLine:
    state = "loaded" if info.loaded else "available"
    reason = None
    if info.error is not None:
        state, reason = _STATES.get(info.error.code, "broken"), str(info.error)
    return PluginLine(
        kind, info.name, info.distribution, info.version, state, reason, info.target
    )
