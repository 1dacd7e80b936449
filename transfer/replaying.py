"""Replays dead letters after their cause was corrected.

A replay is a copy of the dead-letter stream, exactly once if a copy is: its position is
stored in the sink. Messages that are bad again are appended as new dead letters, after
the position: the next replay reads them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.spi import ConfigError, SchemaMismatch, envelope_schema
from streamfactory.transfer.copying import Copy
from streamfactory.transfer.resending import Again, Messages, Rows, own_letters
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.reading.following import read_from
from streamfactory.wiring.reading.raw_messages import as_raw
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.cycles import refuse_cycle
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from streamfactory.transfer.conversion import Conversion
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager

_ANYTHING: Final = {
    "decode.on.error": "dead-letter",
    "max.errors": str(2**63 - 1),
    "max.error.ratio": "1",
}
"""A replay has no error budget: all messages that are bad again are written."""
_TURN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    rows: int = 0
    """Written by this run."""
    again: int = 0
    """Dead letters that are bad again, and were written again."""
    others: int = 0
    """Dead letters of other streams, which were skipped."""
    epochs: int = 0
    complete: bool = True


@final
class Replay(Closing):
    """A replay; a context manager.

    Args:
        copy: Executes it; None if there is no dead letter. Closed with the replay.
        met: Counters of the copy's conversion.
        decoding: The original stream of the dead letters; closed with the replay.
    """

    def __init__(
        self, copy: Copy | None, met: Again, decoding: Source | None = None
    ) -> None:
        self.copy = copy
        self._met = met
        self._decoding = decoding

    def run(
        self, stop: threading.Event, on_progress: Callable[[int], None] = lambda _: None
    ) -> Replayed:
        """Replay all dead letters up to the latest offset of now.

        Raises:
            StreamError: See `Copy.run`.
        """
        if self.copy is None:
            return Replayed()
        done = self.copy.run(stop, on_progress=on_progress)
        return Replayed(
            done.rows, done.dead_letters, self._met.others, done.epochs, done.complete
        )

    def close(self) -> None:
        """Close; twice is fine."""
        with ExitStack() as last:
            if self._decoding is not None:
                last.callback(self._decoding.close)
            if self.copy is not None:
                last.callback(self.copy.close)


def open_replay(
    letters: StreamDefinition,
    to: StreamDefinition,
    find: Callable[[str], StreamDefinition],
    *,
    of: StreamDefinition | None = None,
    writer_id: str | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Replay:
    """Open a replay.

    Args:
        letters: The dead-letter stream.
        to: The sink. If it stores undecoded messages, or is the original stream, the
            original messages are written.
        find: Finds a stream by its name.
        of: The original stream of the dead letters, as configured now; by default that
            of the first dead letter.
        writer_id: Writer id; by default made of the streams' names.
        allow_class_paths: Whether configurations may name Python objects.
        plugins: Where types are found; the process's own by default.

    Raises:
        ConfigError: config; there is no stream of that name, it decodes nothing, or
            both ends are one topic.
        SchemaMismatch: permanent; the stream does not contain dead letters.
        StreamError: Raised by either end.
    """
    loading = partial(load, allow_class_paths=allow_class_paths, plugins=plugins)
    with ExitStack() as unless_made:
        source = Source(loading(letters, "read"))
        unless_made.callback(source.close)
        _check_letters(source)
        target = loading(to, "write")
        raw = target.decoder is not None and target.decoder.decoder is None
        if not raw and of is None:
            name = _first_stream(source)
            if name is None:
                return Replay(None, Again())
            of = find(name)
        as_messages = raw or (of is not None and of.name == to.name)
        if as_messages and not raw:
            target = loading(as_raw(to), "write")
        sink = Sink(target)
        unless_made.callback(sink.close)
        refuse_cycle(source, target)
        again = Sink(loading(letters, "write"))
        unless_made.callback(again.close)
        met, decoding = Again(), None
        if not as_messages and of is not None:
            current = loading(of, "read", options=_ANYTHING)
            decoding = Source(current, aside=True)
            unless_made.callback(decoding.close)
        name = None if of is None else of.name
        convert = _conversion(decoding, sink, name, met)
        schema = _VALUE if decoding is None else decoding.schema
        ensure_topic(sink, schema, create=False, partitions=None)
        writer_id = writer_id or f"replay/{letters.name}/{name or '*'}/{to.name}"
        copy = Copy(source, sink, writer_id, letters=again, convert=convert)
        unless_made.pop_all()
    return Replay(copy, met, decoding)


_VALUE: Final = pa.schema([envelope_schema().field("value")])


def _conversion(
    decoding: Source | None, sink: Sink, name: str | None, met: Again
) -> Callable[[pa.Schema], Conversion]:
    """Return the conversion of dead letters.

    To messages, or to rows with ``decoding``.
    """
    if decoding is None:
        schema = sink.schema
        if schema is not None and not schema.equals(envelope_schema()):
            msg = "undecoded messages cannot be written to a stream of typed rows"
            remedy = "configure a decoder for their original stream"
            raise ConfigError(msg, stream=sink.config.name, remedy=remedy)
        return lambda _: Messages(name, met)
    if not decoding.decodes:
        msg = "dead letters cannot be replayed: their original stream has no decoder"
        remedy = "configure one, or select another stream with --from"
        raise ConfigError(msg, stream=decoding.config.name, remedy=remedy)
    keyed = bool(sink.config.get("producer.key.columns"))
    count = None if keyed else sink.partition_count()
    left_out = sink.lacks(decoding.metadata_columns)
    return lambda _: Rows(decoding, count, met, left_out)


def _check_letters(source: Source) -> None:
    missing = [n for n in DEAD_LETTER_SCHEMA.names if n not in source.schema.names]
    if missing:
        msg = (
            f"the stream does not contain dead letters: column {missing[0]!r} "
            f"is missing"
        )
        raise SchemaMismatch(msg, stream=source.config.name)


def _first_stream(source: Source) -> str | None:
    """Return the original stream of the first dead letter; None if there is none."""
    rotation = read_from(source, start="earliest", default="earliest", follow=False)
    try:
        while not rotation.finished:
            batch = rotation.next_batch(_TURN)
            if batch is not None and batch.num_rows:
                letters, _ = own_letters(batch, None, Again())
                return str(letters.column("stream")[0].as_py())
    finally:
        rotation.close()
    return None
