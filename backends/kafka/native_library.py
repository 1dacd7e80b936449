"""The optional compiled part for Kafka: found, checked and bound to librdkafka.

It is a part of the core of ``streamfactory-native``: it copies messages from and into
Arrow buffers without Python's lock, and uses the librdkafka that confluent-kafka has
loaded.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import cimpl

from streamfactory.backends.kafka.options import AUTO, OFF, REQUIRED
from streamfactory.compiled import core
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from streamfactory.compiled.core import Core
    from streamfactory.spi import StreamConfig

log = logging.getLogger("streamfactory.kafka")

_PLUGINS: Final = "plugin.library.paths"
_TRIED: Final = ((2, 16),)
"""Versions of librdkafka with which the tests were run, major and minor."""

NO_MEMORY: Final = 1
TOO_LARGE: Final = 2
BAD_HEADER: Final = 3
"""Statuses of calls: `Refused` of native/src/kafka/mod.rs."""


class Unusable(Exception):
    """The compiled part cannot be used; the text is the reason."""


class Library:
    """Kafka's part of a core, bound to the client's librdkafka. Thread-safe.

    Args:
        core: The core.

    Raises:
        Unusable: It does not fit this librdkafka.
    """

    def __init__(self, core: Core) -> None:
        self.core = core.kafka
        self._path = str(core.__file__)
        if ";" in self._path:
            msg = f"the path {self._path!r} has a semicolon, at which librdkafka splits"
            raise Unusable(msg)
        try:
            # Searches the libraries on which the client's module depends, too: these
            # are the functions that the client itself calls.
            version = self.core.bind(cimpl.__file__)
        except OSError as error:
            raise Unusable(str(error)) from error
        major, minor, patch = version >> 24, version >> 16 & 0xFF, version >> 8 & 0xFF
        self.version = f"{major}.{minor}.{patch}"
        if (major, minor) not in _TRIED:
            tried = ", ".join(f"{a}.{b}" for a, b in _TRIED)
            msg = f"librdkafka {self.version} was not tested with it, only {tried}"
            raise Unusable(msg)
        try:
            self.core.try_plugin(self._path)
        except OSError as error:
            msg = f"librdkafka does not load it: {error}"
            raise Unusable(msg) from error

    def add_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a client that `take_client` returns, in the thread of both.

        librdkafka passes a new client to its plug-ins; this is the only documented way
        to its handle, which confluent-kafka does not expose. What `take_client`
        returns has no effect after the client is destroyed.
        """
        given = settings.get(_PLUGINS)
        paths = f"{given};{self._path}" if given else self._path
        return {**settings, _PLUGINS: paths}


@cache
def load() -> Library | str:
    """The library, or why there is none. Warns once if it is installed but unusable."""
    found = core.load()
    if isinstance(found, str):
        return found
    try:
        library = Library(found)
    except Unusable as reason:
        log.warning("streamfactory-native is not used for Kafka: %s", reason)
        return str(reason)
    log.info("streamfactory-native is used, with librdkafka %s", library.version)
    return library


def library_for(config: StreamConfig, option: str) -> Library | None:
    """The library with which a stream is read or written; None for the Python path.

    Args:
        config: The stream's configuration.
        option: `READING` or `WRITING`.

    Raises:
        ConfigError: config; the option requires it, and it cannot be used.
    """
    if config[option] == OFF:
        return None
    found = load()
    if isinstance(found, Library):
        return found
    if config[option] == REQUIRED:
        msg = f"stream.{config.type}.{option}={REQUIRED} is not possible: {found}"
        remedy = "install streamfactory-native for this version of confluent-kafka, or "
        remedy += f"set {option}={AUTO}"
        raise ConfigError(msg, stream=config.name, remedy=remedy)
    return None
