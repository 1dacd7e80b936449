"""The named push tables of this process, for the stream type ``push``."""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import message_schema
from streamfactory.spi import TopicNotFound, envelope_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.push.channel import Channel
    from streamfactory.push.rows import RowFitter


@final
class NamedTable:
    """A table as the stream type uses it. Thread-safe.

    Args:
        channel: The queues.
        schema: Schema of the table.
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
        """Bytes of attempts that are neither committed nor aborted."""
        self._held: dict[str, list[tuple[int, pa.RecordBatch]]] = {}
        self._guard = threading.Lock()

    def hold(self, attempt: str, lane: int, rows: pa.RecordBatch) -> None:
        """Store rows of an attempt until `take`."""
        with self._guard:
            self._held.setdefault(attempt, []).append((lane, rows))
            self.held_bytes += rows.nbytes

    def take(self, attempt: str) -> list[tuple[int, pa.RecordBatch]]:
        """Remove and return the rows of an attempt, with their lanes."""
        with self._guard:
            held = self._held.pop(attempt, [])
            self.held_bytes -= sum(rows.nbytes for _, rows in held)
        return held


log = logging.getLogger("streamfactory")

_lock: Final = threading.Lock()
_tables: Final[
    dict[str, tuple[NamedTable, weakref.ref[object], weakref.ref[object]]]
] = {}


def register(name: str, table: NamedTable, sink: object, read: object) -> None:
    """Register a table until both of its halves are garbage-collected.

    An earlier table of that name loses it, as if a cell of a notebook is run again: its
    own halves can still be used, and streams that read it find another incarnation.
    """
    with _lock:
        for other in [key for key in _tables if not _is_alive(key)]:
            del _tables[other]
        if name in _tables and not _tables[name][0].channel.is_closed:
            what = "push table %r is open, and has lost its name to a new one"
            log.warning(what, name)
        _tables[name] = (table, weakref.ref(sink), weakref.ref(read))


def find(name: str) -> NamedTable:
    """Return the table of a name.

    Raises:
        TopicNotFound: permanent.
    """
    with _lock:
        if name in _tables and _is_alive(name):
            return _tables[name][0]
    msg = f"this process has no push table {name!r}"
    remedy = (
        f"create it with streamfactory.push_table(..., name={name!r}), and keep a "
        "reference to its sink or table"
    )
    raise TopicNotFound(msg, remedy=remedy)


def names() -> list[str]:
    """Of all tables that are in use."""
    with _lock:
        return sorted(name for name in _tables if _is_alive(name))


def _is_alive(name: str) -> bool:
    _, sink, table = _tables[name]
    return sink() is not None or table() is not None
