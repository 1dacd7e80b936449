"""How a plug-in is found: a descriptor, a hook, and an entry point.

A plug-in is a module with one hook, named by an entry point::

    [project.entry-points."streamfactory.backends"]
    tiny = "tiny_stream"

    @hookimpl
    def streamfactory_backend() -> Backend:
        return Backend(name="tiny", doc="Tiny.", spi_level=1, consumer_factory=...)

The module is imported when the type is first used. An extra in brackets after the entry
point (``kafka = "pkg.kafka [kafka]"``) is the extra that error messages name when the
client library is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pluggy

from streamfactory.spi.errors import BrokenPlugin, MisuseError

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
REFERENCES: Final = "streamfactory.references"


class _Marker(pluggy.HookimplMarker):  # type: ignore[misc]  # final for checkers
    """Marks a function as the implementation of the hook of its name."""

    def __call__(  # type: ignore[override]  # one for both overloads
        self, function: Any = None, **how: Any
    ) -> Any:
        if function is not None and not callable(function):
            msg = f"hookimpl marks a function, not a {type(function).__name__!r}"
            raise MisuseError(msg, remedy="write @hookimpl above a function")
        return super().__call__(function, **how)


hookimpl: pluggy.HookimplMarker = _Marker("streamfactory")
hookspec = pluggy.HookspecMarker("streamfactory")


class Yields(Enum):
    """What the consumers of a backend return."""

    TYPED = "typed"
    """Rows of the stream's schema: a decoder is refused."""
    ENVELOPE = "envelope"
    """Envelopes: a decoder is required."""
    EITHER = "either"
    """Either, by the schema of the topic."""


class Role(Enum):
    """What a stream is used for."""

    READ = "read"
    WRITE = "write"


class _Later:
    """A class or function that is not imported yet."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def load(self) -> object:
        try:
            return getattr(import_module(self.module), self.name)
        except ImportError as error:
            msg = f"{self.module} cannot be imported: {error}"
            raise BrokenPlugin(msg) from error


def import_later(module: str, name: str) -> Any:
    """Return a value for a field of a descriptor, imported when the field is read.

    Our own plug-ins use it: their options are validated without Arrow.

    Args:
        module: Full name of the module.
        name: Name of the class or function there.
    """
    return _Later(module, name)


def import_all(descriptor: Descriptor) -> None:
    """Import what `import_later` put off.

    Raises:
        BrokenPlugin: plugin; a module cannot be imported.
    """
    for one in fields(descriptor):
        getattr(descriptor, one.name)


def require_installed(*modules: str) -> None:
    """Check that client libraries are installed; imports none of them.

    Called by the module of a plug-in whose classes are imported later, so that a
    missing library is reported when the plug-in is loaded.

    Raises:
        ModuleNotFoundError: One of them is missing.
    """
    for name in modules:
        if find_spec(name) is None:
            msg = f"No module named {name!r}"
            raise ModuleNotFoundError(msg, name=name)


class _Descriptor:
    """Imports the values of fields that `import_later` returned."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if type(value) is _Later:
            value = value.load()
            object.__setattr__(self, name, value)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(_Descriptor):
    """One stream type.

    Args:
        name: The ``<type>`` of ``streamType`` and ``stream.<type>.*``; lower case.
        doc: One line.
        spi_level: The `SPI_LEVEL` that the plug-in requires: a number, not the
            constant.
        options: The options under ``stream.<type>.``, without those that all backends
            share. An option with a shared key (``topic.name``) replaces the shared one.
        consumer_factory: Reads a stream; None for a type that cannot be read.
        producer_factory: Writes a stream; None for a type that cannot be written.
        topic_admin: For ``streamfactory topics``: create, truncate, verify, ...
        server: For ``streamfactory serve``: the server of this backend's streams.
        yields: What consumers return: typed rows, envelopes, or either.
        check_options: Rules of the type over several options: returns problems (level
            ``error``), and options without effect (level ``warning``), each created by
            `StreamConfig.problem`. A pure function: it connects to nothing, opens no
            file and resolves no secret. Called when a stream is validated or opened, in
            the user's process or the driver, after each option was validated and every
            reference that is not a secret was resolved. The role is None if the use is
            not known, as in ``validate``: then only problems of both uses are returned.
            Claims need no rule here: the framework refuses a ``guarantee`` that is
            stronger.
        translate: Translates foreign exceptions, usually an `ErrorTable`; returns None
            for unknown ones. Connection and timeout errors of the standard library are
            translated without it.
        client_namespaces: Pass-through namespaces, of ``consumer``, ``producer`` and
            ``catalog``: ``stream.<type>.consumer.prop.*`` is passed to the client
            library verbatim.
        owned_client_keys: Client keys that a user may not set, each with the remedy.
        client_keys: All known client keys, so that a misspelt one is reported, and
            refused on Spark, whose plans show values; empty if unknown.
        bare_names: Option names of other connectors of the same system, in lower case,
            each with the equivalent option here.
        bare_hints: Option names of other connectors without an equivalent, each with
            the closest option.
        markers: Names, as shell patterns, one of which a folder has that the type can
            read: by them ``streamfactory discover`` recognises the type. Empty if no
            name shows it.
    """

    name: str
    doc: str
    spi_level: int
    options: tuple[Option, ...] = ()
    consumer_factory: type[ConsumerFactory] | None = None
    producer_factory: type[ProducerFactory] | None = None
    topic_admin: type[TopicAdmin] | None = None
    server: type[StreamServer] | None = None
    yields: Yields = Yields.TYPED
    check_options: Callable[[StreamConfig, Role | None], Iterable[Problem]] | None = (
        None
    )
    translate: Callable[[BaseException], StreamError | None] | None = None
    client_namespaces: frozenset[str] = frozenset()
    owned_client_keys: Mapping[str, str] = field(default_factory=dict)
    client_keys: frozenset[str] = frozenset()
    bare_names: Mapping[str, str] = field(default_factory=dict)
    bare_hints: Mapping[str, str] = field(default_factory=dict)
    markers: tuple[str, ...] = ()


def roles_of(backend: Backend) -> frozenset[Role]:
    """Return the roles that a stream type supports; imports none of its classes."""
    factories = {Role.READ: "consumer_factory", Role.WRITE: "producer_factory"}
    return frozenset(
        role
        for role, name in factories.items()
        if object.__getattribute__(backend, name) is not None
    )


def is_imported(descriptor: Descriptor, name: str) -> bool:
    """Whether reading a field of a descriptor imports nothing."""
    return type(object.__getattribute__(descriptor, name)) is not _Later


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder(_Descriptor):
    """One message format.

    Args:
        name: As in ``decoder.class.name``.
        doc: One sentence for users.
        spi_level: The level of the contract that it was written for.
        options: Everything under ``stream.<type>.decoder.prop.``.
        decoder: The class that decodes; None for a format that is only written.
        encoder: The class that encodes; None for a format that is only read.
        reads_headers: Whether the decoder reads `DecodeContext.headers`, which may be
            null otherwise.
    """

    name: str
    doc: str
    spi_level: int
    options: tuple[Option, ...] = ()
    decoder: type[MessageDecoder] | None = None
    encoder: type[MessageEncoder] | None = None
    reads_headers: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """What a reference stands for.

    Args:
        value: The value.
        keep_seconds: How long the process keeps it, of a scheme that is `remote`; 0 to
            look it up each time.
    """

    value: str = field(repr=False)
    keep_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScheme(_Descriptor):
    """One kind of references in values: ``${<name>:WHAT}``.

    Args:
        name: What is before the colon; lower case.
        doc: One sentence for users.
        spi_level: The level of the contract that it was written for.
        example: A whole reference, for error messages: ``${vault:kv/kafka#password}``.
        lookup: Returns the value of what follows the colon, within a number of seconds.
            Called from any thread, by several at once, in the process that uses the
            value. It may block that long. What it raises: `ConfigError` (there is no
            such value), `NotAuthorized`, `ConnectionFailed` or `StreamTimeout` (a retry
            may help). A message contains no part of a value.
        remote: Whether ``lookup`` waits for something outside of the process. Then it
            runs in a thread of its own, which is left behind at the deadline; its
            values are kept for their time; and it is never called to mask a text.
        timeout_seconds: The deadline of one lookup, if ``remote``.
    """

    name: str
    doc: str
    spi_level: int
    example: str
    lookup: Callable[[str, float], ResolvedReference]
    remote: bool = False
    timeout_seconds: float = 10.0


Descriptor: TypeAlias = Backend | Decoder | ReferenceScheme
"""What a hook returns."""


class HookSpecs:
    """The hooks. A plug-in implements one of them, once."""

    @hookspec
    def streamfactory_backend(self) -> Backend:
        """Return the descriptor of a stream type. Called once, on first use."""
        raise NotImplementedError

    @hookspec
    def streamfactory_decoder(self) -> Decoder:
        """Return the descriptor of a message format. Called once, on first use."""
        raise NotImplementedError

    @hookspec
    def streamfactory_reference(self) -> ReferenceScheme:
        """Return the descriptor of a scheme. Called once, on first use."""
        raise NotImplementedError
