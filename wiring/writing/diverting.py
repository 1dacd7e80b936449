"""Writes dead letters to a stream, one epoch per range (rule D3).

They are committed before their range, together with the position at its end. After a
restart the position in the target shows which dead letters are committed already. So a
crash between the two commits neither loses nor repeats a dead letter.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, final

import pyarrow.compute as pc

from streamfactory.spi import ConfigError, Position, StreamError, envelope_schema
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.epochs import Epochs
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import MessageBatch, StreamConfig
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.testing.faults import Faults


def diverts(config: StreamConfig) -> bool:
    """Whether a stream's bad messages are written to another stream."""
    return config["decode.on.error"] == "dead-letter" and "dead.letter.stream" in config


def open_target(
    config: StreamConfig,
    *,
    plugins: PluginManager | None = None,
    allow_class_paths: bool = False,
    faults: Faults | None = None,
) -> Sink:
    """Open the stream for the dead letters of another; creates its topic.

    Args:
        config: Configuration of the source of the dead letters.
        plugins: Finds types; by default those of the process.
        allow_class_paths: Whether the configuration may name Python objects.
        faults: Injects faults into the target, for tests.

    Raises:
        ConfigError: config; no stream is named, it is the same, or it is misconfigured.
        SchemaMismatch: permanent; it has another schema than dead letters.
        StreamError: Raised by the target.
    """
    name = config.get("dead.letter.stream")
    if name is None:
        msg = "decode.on.error=dead-letter requires dead.letter.stream"
        raise ConfigError(
            msg, stream=config.name, remedy="set dead.letter.stream to a stream's name"
        )
    definition = Catalogue().get(name)  # a name only: it is no path
    if definition.name == config.name:
        msg = "a stream cannot be its own dead.letter.stream"
        raise ConfigError(
            msg, stream=config.name, remedy="set dead.letter.stream to another stream"
        )
    return open_letters(
        definition,
        of=config.name,
        plugins=plugins,
        allow_class_paths=allow_class_paths,
        faults=faults,
    )


def open_letters(
    definition: StreamDefinition,
    *,
    of: str,
    plugins: PluginManager | None = None,
    allow_class_paths: bool = False,
    faults: Faults | None = None,
) -> Sink:
    """Open a stream for dead letters; creates its topic.

    Args:
        definition: The stream.
        of: The stream whose dead letters they are, for errors.
        plugins: As of `open_target`, as the others.
        allow_class_paths: Whether the configuration may name Python objects.
        faults: Injects faults, for tests.

    Raises:
        ConfigError: config; it is misconfigured, or has undecoded messages.
        SchemaMismatch: permanent; it has another schema than dead letters.
        StreamError: Raised by the stream.
    """
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
            msg = f"stream {definition.name!r} has undecoded messages, but dead "
            msg += "letters are rows"
            remedy = "set an encoder there, or use a stream of typed rows"
            raise ConfigError(msg, stream=of, remedy=remedy)
        ensure_topic(sink, DEAD_LETTER_SCHEMA, create=True, partitions=None)
        sink.check(DEAD_LETTER_SCHEMA)
        unless_made.pop_all()
    return sink


@final
class Diversion:
    """Writes the dead letters of one read, range by range. Not thread-safe.

    Args:
        sink: The target; the caller closes it later.
        writer_id: Survives restarts; None claims no idempotence.
        clock: The clock.

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
        """Number of repeated dead letters that were committed before."""

    @property
    def rows(self) -> int:
        """Number of dead letters committed here."""
        return self._epochs.rows

    @property
    def due(self) -> bool:
        """Whether the dead letters of the open range have reached a threshold."""
        return self._epochs.pending > 0 and self._epochs.due

    def add(self, batch: MessageBatch) -> None:
        """Add the dead letters of a batch; those committed already are dropped.

        Raises:
            StreamError: See `put`.
        """
        letters = batch.dead_letters
        if letters is None:
            return
        self._check()
        until = self._there.get(batch.partition, 0)
        before = self._there.incarnations.get(batch.partition)
        if until and not was_recreated(before, batch.incarnation):
            fresh = letters.filter(pc.greater_equal(letters.column("offset"), until))
            self.known += letters.num_rows - fresh.num_rows
            letters = fresh
        self.put(letters)

    def put(self, letters: pa.RecordBatch) -> None:
        """Add dead letters, none of which is committed already.

        Raises:
            StreamError: See `Epochs.write`; raised again by later calls.
        """
        self._check()
        if not letters.num_rows:
            return
        try:
            self._epochs.write(letters, int(letters.nbytes))
        except StreamError as error:
            self._failure = error
            raise

    def commit(self, position: Position) -> None:
        """Commit the dead letters of the open range, if there are any.

        Args:
            position: The end of the range, which is committed afterwards.

        Raises:
            StreamError: See `Epochs.commit`; raised again by later calls. The added
                dead letters are created again when the range is read again.
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
        """Close; aborts an open range. May be called twice."""
        self._epochs.close()
        if self.known:
            log.info("%d dead letters were committed before", self.known)
            self.known = 0

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


@final
class Letters:
    """Writes the dead letters of one group member, if the stream has a target for them.

    Args:
        source: The stream.
        member: Id of the member, which survives restarts; None if it has none.
        clock: The clock.
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
        """Add the dead letters of a batch, if it has any."""
        if self._diversion is not None:
            self._diversion.add(batch)

    def commit(self, position: Position) -> None:
        """Commit the dead letters of all messages before a position."""
        if self._diversion is not None:
            self._diversion.commit(position)

    def close(self) -> None:
        """Close; aborts uncommitted dead letters. May be called twice."""
        self._opened.close()
