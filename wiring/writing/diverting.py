"""Dead letters on their way to a stream, each range of them one epoch (rule D3).

They are committed before the range that they come from, with the position that it will
have. Whoever begins again asks the target where it stands: letters before that are
there. So a crash between the two commits neither loses a letter nor repeats it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, final

import pyarrow.compute as pc

from streamfactory.spi import ConfigError, Position, StreamError, envelope_schema
from streamfactory.wiring.config.loading import find_definition, load
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.epochs import Epochs
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import MessageBatch, Partition, StreamConfig
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.testing.faults import Faults


def diverts(config: StreamConfig) -> bool:
    """Whether a stream's bad messages are to go to another stream."""
    return config["decode.on.error"] == "dead-letter" and "dead.letter.stream" in config


def open_target(
    config: StreamConfig,
    *,
    plugins: PluginManager | None = None,
    allow_class_paths: bool = False,
    faults: Faults | None = None,
) -> Sink:
    """Open the stream that takes the dead letters of another; its topic is made.

    Args:
        config: Of the stream that they come from.
        plugins: Where types are found; the process's own by default.
        allow_class_paths: Whether the configuration may name Python objects.
        faults: Around the target: the simulator for tests.

    Raises:
        ConfigError: config; no stream is named, it is the same, or it is misconfigured.
        SchemaMismatch: permanent; it holds something else than dead letters.
        StreamError: As the target raises.
    """
    name = config.get("dead.letter.stream")
    if name is None:
        msg = "decode.on.error=dead-letter requires dead.letter.stream"
        raise ConfigError(
            msg, stream=config.name, remedy="set dead.letter.stream to a stream's name"
        )
    definition = find_definition(name)
    if definition.name == config.name:
        msg = "a stream cannot take its own dead letters"
        raise ConfigError(msg, stream=config.name, remedy="name another stream")
    configured = load(
        definition, "write", allow_class_paths=allow_class_paths, plugins=plugins
    )
    with ExitStack() as unless_made:
        wrap = None if faults is None else faults.around_producers
        clock = None if faults is None else faults.clock
        sink = Sink(configured, clock=clock, wrap=wrap)
        unless_made.callback(sink.close)
        raw = configured.decoder is not None and configured.decoder.encoder is None
        if raw and sink.schema is not None and sink.schema.equals(envelope_schema()):
            msg = f"{name!r} holds undecoded messages: a dead letter is a row"
            remedy = "name an encoder there, or a stream of typed rows"
            raise ConfigError(msg, stream=config.name, remedy=remedy)
        ensure_topic(sink, DEAD_LETTER_SCHEMA, create=True, partitions=None)
        sink.check(DEAD_LETTER_SCHEMA)
        unless_made.pop_all()
    return sink


@final
class Diversion:
    """Takes the dead letters of one reading, range after range. One thread at a time.

    Args:
        sink: Where to; the caller closes it, later.
        writer_id: Survives restarts; None claims no idempotence.
        clock: Time.

    Raises:
        StreamError: As `Epochs`.
    """

    def __init__(self, sink: Sink, writer_id: str | None, clock: Clock) -> None:
        self._epochs = Epochs(
            sink, DEAD_LETTER_SCHEMA, writer_id=writer_id, clock=clock
        )
        last = self._epochs.last
        found = None if last is None else last.source_position
        self._there = Position() if found is None else found
        self._failure: StreamError | None = None
        self.known = 0
        """Letters that came again, and were there."""

    @property
    def rows(self) -> int:
        """Letters committed here."""
        return self._epochs.rows

    @property
    def due(self) -> bool:
        """Whether the letters of the open range have reached a threshold."""
        return self._epochs.pending > 0 and self._epochs.due

    def add(self, batch: MessageBatch) -> None:
        """Take the dead letters of a batch, if it has any.

        Raises:
            StreamError: As `put`.
        """
        letters = batch.dead_letters
        if letters is not None:
            offsets = letters.column("offset")
            self.put(batch.partition, letters, offsets, batch.incarnation)

    def put(
        self,
        partition: Partition,
        letters: pa.RecordBatch,
        offsets: pa.Array,
        incarnation: str | None,
    ) -> None:
        """Take letters; those that are there already are dropped.

        Args:
            partition: What was read.
            letters: As they are to be kept.
            offsets: Where what was read stands, of each of them.
            incarnation: What these offsets count.

        Raises:
            StreamError: As `Epochs.write`; the same again for whoever goes on.
        """
        self._check()
        until = self._there.get(partition, 0)
        before = self._there.incarnations.get(partition)
        if until and not was_recreated(before, incarnation):
            fresh = letters.filter(pc.greater_equal(offsets, until))
            self.known += letters.num_rows - fresh.num_rows
            letters = fresh
        if not letters.num_rows:
            return
        try:
            self._epochs.write(letters, int(letters.nbytes))
        except StreamError as error:
            self._failure = error
            raise

    def commit(self, position: Position) -> None:
        """Commit the letters of the open range, if there are any.

        Args:
            position: Where the range ends; committed with it afterwards.

        Raises:
            StreamError: As `Epochs.commit`. Whoever would go on gets it again: what
                was taken is lost here, and comes again with the range.
        """
        self._check()
        if not self._epochs.pending:
            return
        try:
            self._epochs.commit(position)
        except StreamError as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Close; an open range is aborted. Twice is fine."""
        self._epochs.close()
        if self.known:
            log.info("%d dead letters were there already", self.known)
            self.known = 0

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


@final
class Letters:
    """Where the dead letters of one member go; nowhere if the stream names no place.

    Args:
        source: The stream.
        member: Names the member, and survives restarts; None where nothing does.
        clock: Time.
    """

    def __init__(self, source: Source, member: str | None, clock: Clock) -> None:
        self._opened = ExitStack()
        self._diversion: Diversion | None = None
        if not source.decodes or not diverts(source.config):
            return
        name = source.config.name
        writer_id = None if member is None else f"group/{name}/{member}/dead-letters"
        with ExitStack() as stack:
            sink = open_target(source.config)
            stack.callback(sink.close)
            self._diversion = Diversion(sink, writer_id, clock)
            stack.callback(self._diversion.close)
            self._opened = stack.pop_all()

    def add(self, batch: MessageBatch) -> None:
        """Take the dead letters of a batch, if it has any."""
        if self._diversion is not None:
            self._diversion.add(batch)

    def commit(self, position: Position) -> None:
        """Commit the letters of all that lies before a position."""
        if self._diversion is not None:
            self._diversion.commit(position)

    def close(self) -> None:
        """Close; what was not committed is aborted. Twice is fine."""
        self._opened.close()
