"""The scheme ``env``: environment variables of the process."""

from __future__ import annotations

import os

from streamfactory.spi import ConfigError
from streamfactory.spi.hooks import ReferenceScheme, ResolvedReference, hookimpl


def look_up(name: str, _seconds: float) -> ResolvedReference:
    """Return the value of a variable."""
    try:
        value = os.environ.get(name)
    except ValueError:  # a null character or a lone surrogate in the name
        value = None
    if value is None:
        msg = "the environment variable is not set"
        raise ConfigError(msg)
    return ResolvedReference(value)


@hookimpl
def streamfactory_reference() -> ReferenceScheme:
    """Describe the scheme."""
    return ReferenceScheme(
        name="env",
        doc="An environment variable of the process that uses the value.",
        spi_level=1,
        example="${env:NAME}",
        lookup=look_up,
    )
