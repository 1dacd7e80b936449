"""The optional compiled part ``streamfactory-native``: loaded, checked and bound.

It copies messages from and into Arrow buffers without Python's lock. It is plain C,
called through ctypes, and uses the librdkafka that confluent-kafka has loaded.
"""

from __future__ import annotations

import ctypes
import logging
import os
from ctypes import POINTER, c_char, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from confluent_kafka import cimpl

from streamfactory.backends.kafka.options import AUTO, OFF, REQUIRED
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamConfig

log = logging.getLogger("streamfactory.kafka")

_PACKAGE: Final = "streamfactory_native"
_LEVEL: Final = 4
"""`SF_LEVEL` of kafka.h."""
_PLUGINS: Final = "plugin.library.paths"
_TRIED: Final = ((2, 16),)
"""Versions of librdkafka with which the tests were run, major and minor."""

_FUNCTIONS: Final = (
    "rd_kafka_conf_interceptor_add_on_conf_destroy",
    "rd_kafka_conf_interceptor_add_on_new",
    "rd_kafka_interceptor_add_on_acknowledgement",
    "rd_kafka_last_error",
    "rd_kafka_queue_new",
    "rd_kafka_queue_get_partition",
    "rd_kafka_queue_forward",
    "rd_kafka_queue_destroy",
    "rd_kafka_queue_poll",
    "rd_kafka_event_type",
    "rd_kafka_event_message_next",
    "rd_kafka_event_error",
    "rd_kafka_event_error_string",
    "rd_kafka_event_topic_partition",
    "rd_kafka_event_destroy",
    "rd_kafka_topic_partition_destroy",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_headers",
    "rd_kafka_header_get_all",
    "rd_kafka_topic_new",
    "rd_kafka_topic_destroy",
    "rd_kafka_topic_name",
    "rd_kafka_headers_new",
    "rd_kafka_headers_destroy",
    "rd_kafka_header_add",
    "rd_kafka_producev",
)
"""Functions of librdkafka, in the order of ``sf_librdkafka`` in kafka.h."""


class Unusable(Exception):
    """The compiled part cannot be used; the text is the reason."""


class Buffer(ctypes.Structure):
    """``sf_buffer``."""

    _fields_: ClassVar = [
        ("data", c_void_p),
        ("used", c_size_t),
        ("capacity", c_size_t),
    ]


class Binary(ctypes.Structure):
    """``sf_binary``."""

    _fields_: ClassVar = [
        ("data", Buffer),
        ("offsets", Buffer),
        ("valid", Buffer),
        ("nulls", c_int64),
    ]


class RawColumns(ctypes.Structure):
    """``sf_columns``."""

    _fields_: ClassVar = [
        ("rows", c_int64),
        ("size", c_int64),
        ("next_offset", c_int64),
        ("received", c_int64),
        ("added", c_int64),
        ("end", c_int64),
        ("error", c_int32),
        ("headers", c_int32),
        ("reason", c_char * 512),
        ("keys", Binary),
        ("values", Binary),
        ("offsets", Buffer),
        ("micros", Buffer),
        ("times_valid", Buffer),
        ("times_nulls", c_int64),
        ("kinds", Buffer),
        ("header_lists", Buffer),
        ("header_valid", Buffer),
        ("header_nulls", c_int64),
        ("header_count", c_int64),
        ("header_keys", Binary),
        ("header_values", Binary),
    ]


class RawPart(ctypes.Structure):
    """``sf_part``."""

    _fields_: ClassVar = [
        ("columns", POINTER(RawColumns)),
        ("topic", c_char_p),
        ("partition", c_int32),
        ("unused", c_int32),
    ]


class RawParts(ctypes.Structure):
    """``sf_parts``."""

    _fields_: ClassVar = [
        ("parts", POINTER(RawPart)),
        ("count", c_int64),
        ("capacity", c_int64),
        ("last", c_int64),
        ("rows", c_int64),
        ("size", c_int64),
        ("received", c_int64),
        ("failed", c_int64),
        ("headers", c_int32),
        ("unused", c_int32),
    ]


class Values(ctypes.Structure):
    """``sf_values``."""

    _fields_: ClassVar = [
        ("valid", c_void_p),
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("size", c_int64),
        ("first", c_int64),
    ]


class RawRows(ctypes.Structure):
    """``sf_rows``."""

    _fields_: ClassVar = [
        ("count", c_int64),
        ("next", c_int64),
        ("error", c_int32),
        ("unused", c_int32),
        ("keys", Values),
        ("values", Values),
        ("times_valid", c_void_p),
        ("micros", c_void_p),
        ("times_first", c_int64),
        ("headers", Values),
        ("header_keys", Values),
        ("header_values", Values),
    ]


class Failure(ctypes.Structure):
    """``sf_failure``."""

    _fields_: ClassVar = [
        ("error", c_int32),
        ("partition", c_int32),
        ("size", c_int64),
        ("topic", c_char * 256),
    ]


class Library:
    """The loaded library. Thread-safe.

    Args:
        path: Its file.

    Raises:
        Unusable: It does not fit this package or this librdkafka.
    """

    def __init__(self, path: str) -> None:
        if ";" in path:
            msg = f"the path {path!r} has a semicolon, which librdkafka splits at"
            raise Unusable(msg)
        self._path = path
        try:
            self._code = ctypes.CDLL(path)
            # Searches the libraries on which the client's module depends, too: these
            # are the functions that the client itself calls.
            client = ctypes.CDLL(cimpl.__file__)
            level = self._code.sf_level()
            version = client.rd_kafka_version()
            addresses = [
                ctypes.cast(getattr(client, name), c_void_p) for name in _FUNCTIONS
            ]
        except (OSError, AttributeError) as error:
            raise Unusable(str(error)) from error
        if level != _LEVEL:
            msg = f"{path} has level {level}, and level {_LEVEL} is needed"
            raise Unusable(msg)
        major, minor, patch = version >> 24, version >> 16 & 0xFF, version >> 8 & 0xFF
        self.version = f"{major}.{minor}.{patch}"
        if (major, minor) not in _TRIED:
            tried = ", ".join(f"{a}.{b}" for a, b in _TRIED)
            msg = f"librdkafka {self.version} was not tested with it, only {tried}"
            raise Unusable(msg)
        table = (c_void_p * len(addresses))(*addresses)
        if self._code.sf_bind(table, c_size_t(len(addresses))):
            msg = f"{path} expects other functions of librdkafka"
            raise Unusable(msg)
        self._declare()
        _try_plugin(client, path)

    def _declare(self) -> None:
        code, columns, rows = self._code, POINTER(RawColumns), POINTER(RawRows)
        parts = POINTER(RawParts)
        signatures: Mapping[str, tuple[Any, list[Any]]] = {
            "sf_take_client": (c_void_p, []),
            "sf_open_queue": (c_void_p, [c_void_p, c_char_p, c_int32]),
            "sf_purge_queue": (None, [c_void_p]),
            "sf_close_queue": (None, [c_void_p]),
            "sf_new_columns": (columns, [c_int32]),
            "sf_free_columns": (None, [columns]),
            "sf_fill": (c_int32, [columns, c_void_p, c_int64, c_int64, c_int32]),
            "sf_new_queue": (c_void_p, [c_void_p]),
            "sf_forward": (c_int32, [c_void_p, c_char_p, c_int32, c_void_p]),
            "sf_new_parts": (parts, [c_int32]),
            "sf_free_parts": (None, [parts]),
            "sf_fill_parts": (c_int32, [parts, c_void_p, c_int64, c_int64, c_int32]),
            "sf_take_columns": (columns, [parts, c_int64]),
            "sf_send": (c_int32, [c_void_p, c_char_p, c_int32, rows, c_int64, c_int32]),
            "sf_reset_reports": (None, [c_void_p]),
            "sf_delivered": (c_int64, [c_void_p]),
            "sf_first_failure": (c_int32, [c_void_p, POINTER(Failure)]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(code, name)
            function.restype, function.argtypes = result, arguments
        self.take_client = code.sf_take_client
        self.open_queue = code.sf_open_queue
        self.purge_queue = code.sf_purge_queue
        self.close_queue = code.sf_close_queue
        self.new_columns = code.sf_new_columns
        self.free_columns = code.sf_free_columns
        self.fill = code.sf_fill
        self.new_queue = code.sf_new_queue
        self.forward = code.sf_forward
        self.new_parts = code.sf_new_parts
        self.free_parts = code.sf_free_parts
        self.fill_parts = code.sf_fill_parts
        self.take_columns = code.sf_take_columns
        self.send = code.sf_send
        self.reset_reports = code.sf_reset_reports
        self.delivered = code.sf_delivered
        self.first_failure = code.sf_first_failure

    def add_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a client that `take_client` returns, in the thread of both.

        librdkafka passes a new client to its plug-ins; this is the only documented way
        to its handle, which confluent-kafka does not expose. What `take_client` returns
        is valid until the client is destroyed.
        """
        given = settings.get(_PLUGINS)
        paths = f"{given};{self._path}" if given else self._path
        return {**settings, _PLUGINS: paths}


def _try_plugin(client: ctypes.CDLL, path: str) -> None:
    """Check that this librdkafka loads plug-ins.

    Raises:
        Unusable: It does not.
    """
    client.rd_kafka_conf_new.restype = c_void_p
    settings = c_void_p(client.rd_kafka_conf_new())
    reason = ctypes.create_string_buffer(512)
    try:
        refused = client.rd_kafka_conf_set(
            settings, _PLUGINS.encode(), os.fsencode(path), reason, c_size_t(512)
        )
    finally:
        client.rd_kafka_conf_destroy(settings)
    if refused:
        msg = f"librdkafka does not load it: {reason.value.decode(errors='replace')}"
        raise Unusable(msg)


@cache
def load() -> Library | str:
    """The library, or why there is none. Warns once if it is installed but unusable."""
    try:
        path = str(import_module(_PACKAGE).KAFKA)
    except ImportError:
        return "the package streamfactory-native is not installed"
    try:
        library = Library(path)
    except Unusable as reason:
        log.warning("streamfactory-native is not used: %s", reason)
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
