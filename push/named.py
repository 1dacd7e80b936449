"""Push tables that the stream type ``push`` finds by name, in this process."""

from __future__ import annotations

import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import message_schema
from streamfactory.spi import ConfigError, TopicNotFound, envelope_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.push.channel import Channel
    from streamfactory.push.rows import RowFitter
    from streamfactory.push.sink import PushSink
    from streamfactory.push.table import PushTable


@final
class Named:
    """A table as the stream type uses it. Thread-safe.

    Args:
        channel: Between the producers and the reader.
        schema: Of the table.
        fitter: Checks rows against it.
    """

    def __init__(self, channel: Channel, schema: pa.Schema, fitter: RowFitter) -> None:
        self.channel = channel
        self.schema = schema
        self.fitter = fitter
        self.has_messages = schema.equals(message_schema())
        """Whether its rows are undecoded messages, which a decoder reads."""
        self.stream_schema = envelope_schema() if self.has_messages else schema
        """Of the stream's rows."""
        self.incarnation = uuid.uuid4().hex
        self.held_bytes = 0
        """Bytes of attempts that were written and not decided."""
        self._held: dict[str, list[tuple[int, pa.RecordBatch]]] = {}
        self._guard = threading.Lock()

    def hold(self, attempt: str, lane: int, rows: pa.RecordBatch) -> None:
        """Keep rows of an attempt until `take`."""
        with self._guard:
            self._held.setdefault(attempt, []).append((lane, rows))
            self.held_bytes += rows.nbytes

    def take(self, attempt: str) -> list[tuple[int, pa.RecordBatch]]:
        """The rows that are held of an attempt, with their lanes; once."""
        with self._guard:
            held = self._held.pop(attempt, [])
            self.held_bytes -= sum(rows.nbytes for _, rows in held)
        return held


_lock: Final = threading.Lock()
_tables: Final[
    dict[str, tuple[Named, weakref.ref[PushSink], weakref.ref[PushTable]]]
] = {}


def register(name: str, table: Named, sink: PushSink, read: PushTable) -> None:
    """Make a table known until both of its halves were garbage-collected.

    Raises:
        ConfigError: config; a table of that name is in use.
    """
    with _lock:
        for other in [key for key in _tables if not _is_alive(key)]:
            del _tables[other]
        if name in _tables:
            msg = f"name: a push table {name!r} is in use in this process"
            raise ConfigError(msg, remedy="use another name, or let go of that one")
        _tables[name] = (table, weakref.ref(sink), weakref.ref(read))


def find(name: str) -> Named:
    """The table of that name.

    Raises:
        TopicNotFound: permanent.
    """
    with _lock:
        if name in _tables and _is_alive(name):
            return _tables[name][0]
    msg = f"this process has no push table {name!r}"
    remedy = f"make it with streamfactory.push_table(..., name={name!r}), and keep it"
    raise TopicNotFound(msg, remedy=remedy)


def names() -> list[str]:
    """Of all tables that are in use."""
    with _lock:
        return sorted(name for name in _tables if _is_alive(name))


def _is_alive(name: str) -> bool:
    _, sink, table = _tables[name]
    return sink() is not None or table() is not None
