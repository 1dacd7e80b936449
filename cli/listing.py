"""``list``: the available plug-ins."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import table
from streamfactory.wiring.plugins.manager import NOUNS, PluginInfo, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.cli.printing import Printer

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
    """List stream types, decoders and schemes of references.

    Nothing is imported without --load: the list shows what packages declare. With
    --load, each is imported in another process, so that one that hangs or crashes
    affects no other.
    """
    infos = default_manager().list(*NOUNS)
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
    missing = None if info.loaded else _lacks(info)
    if missing is not None:
        state = f"needs {missing}"
    if info.error is not None:
        state = _STATES.get(info.error.code, "broken")
    return {
        "kind": NOUNS[info.group],
        "name": info.name,
        "distribution": info.distribution,
        "version": info.version,
        "state": state,
        "reason": None if info.error is None else str(info.error),
        "target": info.target,
    }


def _lacks(info: PluginInfo) -> str | None:
    """The extra that a plug-in names and that is not installed whole."""
    try:
        owner = distribution(info.distribution or "")
    except (PackageNotFoundError, ValueError):  # of no distribution
        return None
    entries = owner.entry_points.select(group=info.group, name=info.name)
    extras = {extra for entry in entries for extra in entry.extras}
    for text in owner.requires or () if extras else ():
        needed, _, condition = text.partition(";")
        extra, package = _EXTRA.search(condition), _PACKAGE.match(needed)
        if package is None or extra is None or extra[1] not in extras:
            continue
        try:
            version(package[0])
        except PackageNotFoundError:
            return f"{info.distribution}[{extra[1]}]"
    return None


def _lines(documents: Sequence[dict[str, Any]]) -> Iterable[str]:
    head = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "REASON")
    rows = [[one[name.lower()] or "" for name in head] for one in documents]
    return table([head if any(row[-1] for row in rows) else head[:-1], *rows])
