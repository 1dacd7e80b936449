"""``list``: the available plug-ins."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import table
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.plugins.manager import PluginInfo, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.cli.printing import Printer

_KINDS: Final = {BACKENDS: "stream type", DECODERS: "decoder"}
_NAME: Final = "streamfactory"
_PACKAGE: Final = re.compile("[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)""")
_STATES: Final = {
    "broken_plugin": "broken",
    "duplicate_plugin": "duplicate",
    "not_installed": "not installed",
    "plugin_blocked": "blocked",
    "plugin_too_new": "too new",
}


@click.command("list")
@click.option(
    "--load", is_flag=True, help="Load each, and show the reason if that fails."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="With --load: the time limit for each.",
)
@json_flag
@click.pass_obj
def list_command(printer: Printer, *, load: bool, timeout: float) -> None:
    """List stream types and decoders.

    Nothing is imported without --load: the list shows what packages declare. With
    --load, each is imported in another process, so that one that hangs or crashes
    affects no other.
    """
    infos = default_manager().list(*_KINDS)
    if load:
        infos = _loaded(infos, timeout)
    documents = [_document(info) for info in infos]
    printer.show({"plugins": documents}, _lines(documents))


def _loaded(infos: Sequence[PluginInfo], seconds: float) -> list[PluginInfo]:
    """The plug-ins after each was loaded."""
    from streamfactory.wiring.streams.probing import probe

    untried = [i for i in infos if i.error is None and not i.loaded]
    errors = probe([(info.group, info.name) for info in untried], seconds)
    return [
        info._replace(error=errors[info.group, info.name], loaded=True)
        if info in untried
        else info
        for info in infos
    ]


def _document(info: PluginInfo) -> dict[str, Any]:
    state = "loaded" if info.loaded else "available"
    if not info.loaded and _lacks(info):
        state = f"needs {_NAME}[{info.name}]"
    if info.error is not None:
        state = _STATES.get(info.error.code, "broken")
    return {
        "kind": _KINDS[info.group],
        "name": info.name,
        "distribution": info.distribution,
        "version": info.version,
        "state": state,
        "reason": None if info.error is None else str(info.error),
        "target": info.target,
    }


def _lacks(info: PluginInfo) -> bool:
    """Whether a package is missing of the extra that has the plug-in's name."""
    if info.distribution != _NAME:
        return False
    for text in requires(_NAME) or ():
        name, _, condition = text.partition(";")
        found = _EXTRA.search(condition)
        package = _PACKAGE.match(name)
        if package and found and found[1] == info.name:
            try:
                version(package[0])
            except PackageNotFoundError:
                return True
    return False


def _lines(documents: Sequence[dict[str, Any]]) -> Iterable[str]:
    head = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "REASON")
    rows = [[one[name.lower()] or "" for name in head] for one in documents]
    return table([head if any(row[-1] for row in rows) else head[:-1], *rows])
