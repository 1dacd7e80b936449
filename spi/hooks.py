"""How a backend or decoder is found: a descriptor, a hook, and an entry point.

A plug-in is a module with one hook, named by an entry point::

    [project.entry-points."streamfactory.backends"]
    tiny = "tiny_stream"

    @hookimpl
    def streamfactory_backend() -> Backend:
        return Backend(name="tiny", doc="Tiny.", spi_level=1, consumer_factory=...)

The module is imported when the type is used, never before. An extra in brackets
behind the entry point (``kafka = "pkg.kafka [kafka]"``) is what users are told to
install when its client library is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.consumer import ConsumerFactory
    from streamfactory.spi.decoder import MessageDecoder, MessageEncoder
    from streamfactory.spi.errors import Problem, StreamError
    from streamfactory.spi.options import Option
    from streamfactory.spi.producer import ProducerFactory
    from streamfactory.spi.servers import StreamServer
    from streamfactory.spi.topics import TopicAdmin

SPI_LEVEL: Final = 1
"""The level of this contract: see the compatibility policy in `streamfactory.spi`."""

BACKENDS: Final = "streamfactory.backends"
DECODERS: Final = "streamfactory.decoders"

hookimpl = pluggy.HookimplMarker("streamfactory")
hookspec = pluggy.HookspecMarker("streamfactory")


class Yields(Enum):
    """What the consumers of a backend answer."""

    TYPED = "typed"
    """Rows of the stream's own schema: a decoder is refused."""
    ENVELOPE = "envelope"
    """Envelopes: a decoder is required."""
    EITHER = "either"
    """The topic decides, by its schema."""


class Role(Enum):
    """What a stream is used for."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One stream type."""

    name: str
    """The ``<type>`` of ``streamType`` and ``stream.<type>.*``; lower case."""
    doc: str
    """One line."""
    spi_level: int
    """The `SPI_LEVEL` that it was written for: a number, not the constant."""
    options: tuple[Option, ...] = ()
    """Everything under ``stream.<type>.``, but for what all backends share. An option
    of a shared key (``topic.name``) replaces the shared one."""
    consumer_factory: type[ConsumerFactory] | None = None
    producer_factory: type[ProducerFactory] | None = None
    topic_admin: type[TopicAdmin] | None = None
    """For the commands ``topics``: creating, truncating, verifying, ..."""
    server: type[StreamServer] | None = None
    """For the command ``serve``: where streams live in a server of this backend."""
    yields: Yields = Yields.TYPED
    check_options: Callable[[StreamConfig, Role | None], Iterable[Problem]] | None = (
        None
    )
    """The type's own rules over several options: answers what is wrong (level
    ``error``), and what has no effect as it is (level ``warning``), each made by
    `StreamConfig.problem`. A function of its arguments alone: it connects to nothing,
    opens no file and resolves no secret.

    Called wherever a stream is validated or opened, by a user's process or a driver,
    when each option by itself is valid and every reference that is no secret could be
    resolved. The role is None where the use is not known, as of ``validate``: then only
    what is wrong in either use is answered. Claims need no rule here: a ``guarantee``
    above them is refused by the framework."""
    translate: Callable[[BaseException], StreamError | None] | None = None
    """Foreign exceptions to errors of our tree, mostly an `ErrorTable`; None for what
    it does not know. Connection and time-out errors of the standard library are
    translated without it."""
    client_namespaces: frozenset[str] = frozenset()
    """Which of ``consumer``, ``producer`` go to a client library verbatim, as
    ``stream.<type>.consumer.prop.*``."""
    owned_client_keys: Mapping[str, str] = field(default_factory=dict)
    """Client keys that a user may not set, each with what to do instead."""
    client_keys: frozenset[str] = frozenset()
    """Every client key that is known, so that a misspelt one is told, and refused on
    Spark, whose plans show values; empty where they are not known."""
    bare_names: Mapping[str, str] = field(default_factory=dict)
    """Names without a prefix that other connectors of the same system have, in lower
    case, each with the option here that means the same."""
    bare_hints: Mapping[str, str] = field(default_factory=dict)
    """Those that mean nothing here, each with what comes close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """One message format."""

    name: str
    doc: str
    spi_level: int
    options: tuple[Option, ...] = ()
    """Everything under ``stream.<type>.decoder.prop.``."""
    decoder: type[MessageDecoder] | None = None
    encoder: type[MessageEncoder] | None = None


class HookSpecs:
    """The hooks. A plug-in implements one of them, once."""

    @hookspec
    def streamfactory_backend(self) -> Backend:
        """Answer the descriptor of a stream type. Called once, when it is used."""
        raise NotImplementedError

    @hookspec
    def streamfactory_decoder(self) -> Decoder:
        """Answer the descriptor of a message format. Called once, when it is used."""
        raise NotImplementedError
