"""Replays dead letters after their cause was corrected.

A replay is a copy of the dead-letter stream, exactly once if a copy is: its position is
stored in the sink. Each dead letter counts once. Those that are bad again are appended,
after the position, for the next run of the same replay: see `ledger`.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.spi import ConfigError, SchemaMismatch, envelope_schema
from streamfactory.transfer.copying import Copy
from streamfactory.transfer.ledger import READ, Ledger, batches_of, untagged
from streamfactory.transfer.resending import (
    Due,
    Messages,
    Rows,
    SkippedLetters,
    own_letters,
)
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.reading.raw_messages import as_raw
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.cycles import refuse_cycle
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from streamfactory.spi import Partition, Position
    from streamfactory.transfer.conversion import Conversion
    from streamfactory.transfer.ledger import Check
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager

_ANYTHING: Final = {
    "decode.on.error": "dead-letter",
    "max.errors": str(2**63 - 1),
    "max.error.ratio": "1",
}
"""A replay has no error budget: all messages that are bad again are written."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    rows: int = 0
    """Written by this run."""
    again: int = 0
    """Dead letters that are bad again, and were written again."""
    others: int = 0
    """Dead letters of other streams, which were skipped."""
    repeated: int = 0
    """Dead letters that were skipped because their message was counted before."""
    epochs: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Outstanding:
    """What a replay would process."""

    writer_id: str
    """Of the replay."""
    stream: str | None
    """The stream whose letters it replays; None for those of all streams."""
    whole: bool
    """Whether it writes the messages as they were, instead of decoded rows."""
    unresolved: int = 0
    """Dead letters that it would process."""
    resolved: int = 0
    """Dead letters that it has written."""
    others: int = 0
    """Dead letters of other streams."""


@final
class Replay(Closing):
    """A replay; a context manager.

    Args:
        copy: Executes it; None if there is no dead letter.
        skipped: Counters of the copy's conversion.
        opened: Closed with the replay.
    """

    def __init__(
        self, copy: Copy | None, skipped: SkippedLetters, opened: ExitStack
    ) -> None:
        self.copy = copy
        self._skipped = skipped
        self._opened = opened

    def run(
        self, stop: threading.Event, on_progress: Callable[[int], None] = lambda _: None
    ) -> Replayed:
        """Replay all unresolved dead letters up to the latest offset of now.

        Raises:
            StreamError: See `Copy.run`.
        """
        if self.copy is None:
            return Replayed()
        done = self.copy.run(stop, on_progress=on_progress)
        return Replayed(
            done.rows,
            done.dead_letters,
            self._skipped.others,
            self._skipped.repeated,
            done.epochs,
            done.complete,
        )

    def close(self) -> None:
        """Close; twice is fine."""
        self._opened.close()


@final
@dataclass(frozen=True, slots=True)
class _Ends:
    """The streams of a replay, opened."""

    source: Source
    """The dead letters."""
    target: Configured
    stream: StreamDefinition | None
    """The original stream; None for all."""
    whole: bool
    writer_id: str

    @property
    def name(self) -> str | None:
        return None if self.stream is None else self.stream.name

    def open_ledger(
        self, history: Source, position: Position | None, check: Check = lambda: None
    ) -> Ledger:
        """Read what was processed before a position; the caller closes the result."""
        ledger = Ledger(self.writer_id, self.name, position, whole=self.whole)
        try:
            ledger.read(history, check)
        except BaseException:
            ledger.close()
            raise
        return ledger


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
    skipped = SkippedLetters()
    with ExitStack() as opened:
        ends = _open_ends(opened, letters, to, find, of, writer_id, loading)
        if ends is None:
            return Replay(None, skipped, opened.pop_all())
        sink = Sink(ends.target)
        opened.callback(sink.close)
        refuse_cycle(ends.source, ends.target)
        again = Sink(loading(letters, "write"))
        opened.callback(again.close)
        history = Source(loading(letters, "read", quiet=True), fields=READ)
        opened.callback(history.close)
        decoding = None
        if not ends.whole and ends.stream is not None:
            current = loading(ends.stream, "read", options=_ANYTHING)
            decoding = Source(current, aside=True)
            opened.callback(decoding.close)
        due = Due(partial(ends.open_ledger, history))
        convert = _conversion(decoding, sink, ends.name, due, skipped)
        schema = _VALUE if decoding is None else decoding.schema
        ensure_topic(sink, schema, create=False, partitions=None)
        copy = Copy(ends.source, sink, ends.writer_id, letters=again, convert=convert)
        return Replay(copy, skipped, opened.pop_all())


def find_outstanding(
    letters: StreamDefinition,
    to: StreamDefinition,
    find: Callable[[str], StreamDefinition],
    *,
    of: StreamDefinition | None = None,
    writer_id: str | None = None,
    on_letters: Callable[[Partition, pa.RecordBatch, pa.Array, pa.Array], None] = (
        lambda *_: None
    ),
    check: Check = lambda: None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Outstanding | None:
    """Return what a replay would process; None if there is no dead letter.

    Writes nothing, and disturbs no replay that is running.

    Args:
        letters: See `open_replay`, as the others.
        to: The sink.
        find: Finds a stream by its name.
        of: The original stream.
        writer_id: Writer id.
        on_letters: Called with the partition, dead letters, the offset of each, and
            which of them would be processed.
        check: Called at least once in a second, and before each batch is read; raises
            to end the call. The letters are read twice.
        allow_class_paths: Whether configurations may name Python objects.
        plugins: Where types are found.

    Raises:
        StreamError: See `open_replay`.
    """
    loading = partial(
        load, quiet=True, allow_class_paths=allow_class_paths, plugins=plugins
    )
    skipped = SkippedLetters()
    with ExitStack() as opened:
        ends = _open_ends(opened, letters, to, find, of, writer_id, loading)
        if ends is None:
            return None
        sink = Sink(ends.target)
        opened.callback(sink.close)
        history = Source(loading(letters, "read"), fields=READ)
        opened.callback(history.close)
        position = sink.last_position(ends.writer_id)
        ledger = ends.open_ledger(history, position, check)
        opened.callback(ledger.close)
        unresolved = 0
        for batch in batches_of(ends.source, check):
            found, places = own_letters(batch, ends.name, skipped)
            due = ledger.due(batch.partition, found, places)
            unresolved += due.true_count
            on_letters(batch.partition, untagged(found), places, due)
        return Outstanding(
            ends.writer_id,
            ends.name,
            ends.whole,
            unresolved,
            max(0, ledger.letters - unresolved),
            skipped.others,
        )


def find_origin(letters: Source) -> str | None:
    """Return the stream that the first dead letter comes from; None without one.

    Args:
        letters: The stream of dead letters.

    Raises:
        SchemaMismatch: permanent; the stream does not contain dead letters.
        StreamError: Of the stream.
    """
    _check_letters(letters)
    with closing(batches_of(letters)) as batches:
        for batch in batches:
            found, _ = own_letters(batch, None, SkippedLetters())
            return str(found.column("stream")[0].as_py())
    return None


def _open_ends(
    opened: ExitStack,
    letters: StreamDefinition,
    to: StreamDefinition,
    find: Callable[[str], StreamDefinition],
    of: StreamDefinition | None,
    writer_id: str | None,
    loading: Callable[..., Configured],
) -> _Ends | None:
    """Open the letters and decide what is written; None if there is no letter."""
    source = Source(loading(letters, "read"))
    opened.callback(source.close)
    _check_letters(source)
    target = loading(to, "write")
    raw = target.decoder is not None and target.decoder.decoder is None
    if not raw and of is None:
        name = find_origin(source)
        if name is None:
            return None
        of = find(name)
    whole = raw or (of is not None and of.name == to.name)
    if whole and not raw:
        target = loading(as_raw(to), "write")
    own = "*" if of is None else of.name
    writer_id = writer_id or f"replay/{letters.name}/{own}/{to.name}"
    return _Ends(source, target, of, whole, writer_id)


_VALUE: Final = pa.schema([envelope_schema().field("value")])


def _conversion(
    decoding: Source | None,
    sink: Sink,
    name: str | None,
    due: Due,
    skipped: SkippedLetters,
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
        return lambda _: Messages(name, due, skipped)
    if not decoding.decodes:
        msg = "dead letters cannot be replayed: their original stream has no decoder"
        remedy = "configure one, or select another stream with --from"
        raise ConfigError(msg, stream=decoding.config.name, remedy=remedy)
    keyed = bool(sink.config.get("producer.key.columns"))
    count = None if keyed else sink.partition_count()
    left_out = sink.lacks(decoding.metadata_columns)
    return lambda _: Rows(decoding, count, due, skipped, left_out)


def _check_letters(source: Source) -> None:
    missing = [n for n in DEAD_LETTER_SCHEMA.names if n not in source.schema.names]
    if missing:
        msg = (
            f"the stream does not contain dead letters: column {missing[0]!r} "
            f"is missing"
        )
        raise SchemaMismatch(msg, stream=source.config.name)
