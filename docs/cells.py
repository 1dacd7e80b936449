# ruff: noqa: INP001 - part of a script, in no package
"""What generated tables of stream types share."""

from __future__ import annotations

from streamfactory.wiring.plugins.manager import OWN_DISTRIBUTION, default_manager


def code(text: str | None) -> str:
    """A cell of code; an empty one of None."""
    return "" if text is None else f"`{text}`"


def own_names(group: str) -> list[str]:
    """The names of our own plug-ins of an entry point group."""
    listed = default_manager().list(group)
    return [info.name for info in listed if info.distribution == OWN_DISTRIBUTION]
