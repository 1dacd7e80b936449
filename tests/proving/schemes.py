"""Plug-ins with a remote scheme of references, made of its look-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import ReferenceScheme, ResolvedReference

if TYPE_CHECKING:
    from collections.abc import Callable


def remote_scheme(
    name: str, look_up: Callable[[str, float], ResolvedReference]
) -> ReferenceScheme:
    """What the hook of such a plug-in returns."""
    return ReferenceScheme(
        name=name,
        doc="For tests.",
        spi_level=1,
        example=f"${{{name}:WHAT}}",
        lookup=look_up,
        remote=True,
    )
