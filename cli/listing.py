"""``list``: the plug-ins that there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result, table
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.plugins import PluginInfo, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.cli.printing import Printer

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
@json_flag
@click.pass_obj
def list_command(printer: Printer, *, load: bool) -> None:
    """List stream types and decoders.

    Nothing is imported without --load: what is listed is what their packages declare.
    """
    manager = default_manager()
    lines = [
        _line(kind, info)
        for kind, group in (("stream type", BACKENDS), ("decoder", DECODERS))
        for info in manager.list(group, load=load)
    ]
    printer.show(Plugins(lines))


def _line(kind: str, info: PluginInfo) -> PluginLine:
    state = "loaded" if info.loaded else "available"
    reason = None
    if info.error is not None:
        state, reason = _STATES.get(info.error.code, "broken"), str(info.error)
    return PluginLine(
        kind, info.name, info.distribution, info.version, state, reason, info.target
    )
