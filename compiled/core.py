"""Loads the compiled core of ``streamfactory-native``, where it is installed."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.compiled.buffers import Bytes
    from streamfactory.compiled.kafka import Kafka

    Column = tuple[Bytes | None, Sequence[Bytes]]
    """Validity, None where all rows are valid, and the buffers of the values."""

log = logging.getLogger("streamfactory.native")

LEVEL: Final = 2
"""`LEVEL` of native/src/lib.rs."""


class FlatJson(Protocol):
    """Parses objects of JSON without nested columns."""

    def parse(
        self,
        offsets: pa.Buffer,
        data: pa.Buffer,
        first: int,
        count: int,
        undeclared: bool,
        /,
    ) -> tuple[Bytes, Sequence[Column]]:
        """Return the messages that are not surely good, and the others' columns."""


class Core(Protocol):
    """The functions of the core; see native/src/lib.rs. Thread-safe."""

    @property
    def LEVEL(self) -> int:  # noqa: N802 - a constant of the module
        """The level of its interface."""

    @property
    def __file__(self) -> str | None:
        """The file, which librdkafka loads as a plug-in."""

    @property
    def kafka(self) -> Kafka:
        """Messages of librdkafka."""

    def FlatJson(  # noqa: N802 - a class of the module
        self,
        fields: Sequence[tuple[str, str]],
        all_fields: bool,
        /,
    ) -> FlatJson:
        """Return a parser for columns with names and kinds."""

    def partitions(
        self,
        kind: str,
        buffers: Sequence[pa.Buffer | None],
        first: int,
        rows: int,
        count: int,
        home: int,
        /,
    ) -> Bytes:
        """Return the partition of each key, int32."""

    def split(
        self, partitions: pa.Buffer, /
    ) -> tuple[Sequence[tuple[int, int]], Bytes]:
        """Return partitions and their sizes, and the rows by partition, uint32."""


@cache
def load() -> Core | str:
    """The core, or why there is none. Warns once if it is installed but unusable."""
    try:
        import_module("streamfactory_native")
    except ImportError:
        return "the package streamfactory-native is not installed"
    try:
        found: Core = import_module("streamfactory_native._core")
        reason = f"its level is {found.LEVEL}, and level {LEVEL} is needed"
    except ImportError as error:
        reason = str(error)
    else:
        if found.LEVEL == LEVEL:
            return found
    log.warning(
        "the compiled core of streamfactory-native is not used: %s. Install the "
        "version of streamfactory-native that fits this version of streamfactory",
        reason,
    )
    return reason


def core() -> Core | None:
    """The core; None where Python does its work."""
    found = load()
    return None if isinstance(found, str) else found
