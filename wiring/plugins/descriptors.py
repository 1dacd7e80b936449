"""Checks the descriptors of plug-ins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.spi import (
    SPI_LEVEL,
    Backend,
    BrokenPlugin,
    Decoder,
    Option,
    PluginTooNew,
    ReferenceScheme,
    Role,
)
from streamfactory.spi.hooks import is_imported, roles_of
from streamfactory.spi.references import is_reference
from streamfactory.wiring.options.shared import SHARED_OPTIONS
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from streamfactory.spi.hooks import Descriptor

_NAME: Final = re.compile("[a-z][a-z0-9_-]*")
_LONGEST: Final = 60
"""Maximum seconds of a lookup: opening a stream waits for it."""
D = TypeVar("D", Backend, Decoder, ReferenceScheme)
"""The kind of a descriptor."""


def checked(kind: type[D], name: str, descriptor: object) -> D:
    """Check a descriptor and return it.

    Args:
        kind: The expected kind.
        name: Name of the plug-in, for errors.
        descriptor: The result of the plug-in's hook.

    Raises:
        PluginTooNew: plugin; it requires a later level.
        BrokenPlugin: plugin; it is not a descriptor, or is inconsistent.
    """
    if not isinstance(descriptor, kind):
        got = type(descriptor).__name__
        msg = (
            f"the hook of plug-in {name!r} returned a {got}, expected a {kind.__name__}"
        )
        raise BrokenPlugin(msg)
    level: object = descriptor.spi_level
    if isinstance(level, int) and level > SPI_LEVEL:
        what = f"requires SPI level {level}, but this is level {SPI_LEVEL}"
        msg = f"{descriptor.name!r} {what}"
        raise PluginTooNew(msg)
    complaint = _complaint(descriptor)
    if complaint is not None:
        msg = f"plug-in {name!r} {complaint}"
        raise BrokenPlugin(msg)
    return descriptor


def _complaint(descriptor: Descriptor) -> str | None:
    """Return why a descriptor is invalid, as the end of a sentence."""
    level: object = descriptor.spi_level
    if type(level) is not int or level < 1:
        return f"has the SPI level {level!r}, expected an integer from 1"
    if _NAME.fullmatch(str(descriptor.name)) is None:
        return (
            f"has the name {descriptor.name!r}: use lower-case letters, digits, _ and -"
        )
    if isinstance(descriptor, ReferenceScheme):
        return _scheme_complaint(descriptor)
    if not all(isinstance(option, Option) for option in descriptor.options):
        return "has options that are not of class `Option`"
    keys = [key.lower() for option in descriptor.options for key in option.spellings]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        return f"declares {twice!r} twice"
    return _backend_complaint(descriptor) if isinstance(descriptor, Backend) else None


def _scheme_complaint(scheme: ReferenceScheme) -> str | None:
    begins = scheme.example.startswith(f"${{{scheme.name}:")
    if not begins or not is_reference(scheme.example):
        return f"has the example {scheme.example!r}, which is not one of its references"
    if not 0 < scheme.timeout_seconds <= _LONGEST:
        return f"has a timeout of {scheme.timeout_seconds} s, expected 0 to {_LONGEST}"
    return None


def _backend_complaint(backend: Backend) -> str | None:
    if not roles_of(backend):
        return "has neither a consumer factory nor a producer factory"
    words = {key.lower() for key in FRAMEWORK_OPTIONS}
    own = {key for option in backend.options for key in option.spellings}
    clash = sorted(key for key in own if key.lower() in words)
    if clash:
        return f"declares {clash[0]!r}, an option of the framework"
    aliases = {alias for option in backend.options for alias in option.spellings[1:]}
    shared = sorted(alias for alias in aliases if alias.lower() in SHARED_OPTIONS)
    if shared:
        return f"has the alias {shared[0]!r}, an option of every stream"
    # That of our own plug-ins is imported when a stream is opened for writing.
    if Role.WRITE in roles_of(backend) and is_imported(backend, "producer_factory"):
        unknown = _unknown_columns(backend)
        if unknown is not None:
            return unknown
    strange = sorted(backend.client_namespaces - {"consumer", "producer", "catalog"})
    if strange:
        known = "consumer, producer, catalog"
        return f"has a client namespace {strange[0]!r}: known: {known}"
    return None


def _unknown_columns(backend: Backend) -> str | None:
    # Imported here: with a producer factory, it is imported already.
    from streamfactory.spi.producer import CARRIED_COLUMNS

    assert backend.producer_factory is not None
    unknown = sorted(set(backend.producer_factory.CARRIES) - set(CARRIED_COLUMNS))
    if not unknown:
        return None
    return f"carries {unknown[0]!r}: known are {', '.join(CARRIED_COLUMNS)}"
