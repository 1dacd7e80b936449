"""`streamfactory.open`: any stream as an iterator of batches, or as an Arrow reader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

import pyarrow as pa

from streamfactory.spi import (
    ClosedError,
    ConfigError,
    MessageBatch,
    MisuseError,
    Position,
    Unsupported,
    Verdict,
)
from streamfactory.wiring.config.loading import Named, load
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.reading.following import read_from, refuse_torn
from streamfactory.wiring.reading.source import for_group
from streamfactory.wiring.receiving.embedded import open_source
from streamfactory.wiring.streams.authored import AuthoredGroup
from streamfactory.wiring.streams.checkpoints import (
    FileCheckpointStore,
    stream_checkpoints,
)
from streamfactory.wiring.streams.display import Preview, preview
from streamfactory.wiring.streams.groups import CheckpointedGroup, GroupReader
from streamfactory.wiring.streams.polling import AsyncBatches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.spi import (
        CheckpointStore,
        ConsumerFactory,
        End,
        Partition,
        StreamConfig,
    )
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.counters import Counters
    from streamfactory.wiring.reading.rotation import Rotation
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.reading.starts import Start
    from streamfactory.wiring.testing.faults import Faults

_PATIENCE: Final = 1.0
"""Seconds that one turn waits; only closing has to interrupt it."""


def open_stream(
    stream: Named,
    *,
    start: Start | None = None,
    follow: bool = False,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    faults: Faults | None = None,
) -> Stream:
    """Open a stream for reading; exported as ``streamfactory.open``.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        start: ``earliest``, ``latest``, a datetime with time zone, or a `Position`;
            over all start options. By default the options decide; else the earliest,
            and when following the latest.
        follow: Go on when the latest is reached, new partitions included, until
            closed. Otherwise the stream ends at what is there now.
        columns: Columns wanted, in this order; None means all.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.
        faults: Goes around the backend: the simulator for tests.

    Raises:
        ConfigError: config; every problem at once.
        UnknownStream: config; no stream of that name.
        PluginError: plugin; the type is not installed, or broken.
        StreamError: The source's, when it is asked for partitions.
    """
    configured = load(
        stream,
        "read",
        options=options,
        allow_class_paths=allow_class_paths,
        plugins=plugins,
    )
    source = open_source(
        configured,
        plugins=plugins,
        columns=columns,
        faults=faults,
        aside=True if for_group(configured.config) else None,
    )
    try:
        return Stream(source, start=start, follow=follow)
    except BaseException:
        source.close()
        raise


@final
class Stream(Closing):
    """An open stream: a context manager and an iterator of `MessageBatch`.

    One thread iterates; ``close`` may be called from any. Closing ends the iteration
    of a stream that is followed, for which nothing else does; one that has an end of
    its own raises `ClosedError` instead, so that a part is never taken for the whole.
    It can be handed to whatever takes Arrow streams: pyarrow, Polars, DuckDB, pandas.

    In asyncio, ``async with`` closes it and ``async for`` iterates, without blocking
    the event loop. A wait that is cancelled, by a deadline for instance, loses no
    batch: go on with ``async for`` or ``anext``.
    """

    def __init__(self, source: Source, *, start: Start | None, follow: bool) -> None:
        self._source = source
        self._follow = follow
        self._closed = False
        self._group: GroupReader | None = None
        self._rotation: Rotation | None = None
        self._async = AsyncBatches(
            self._read,
            position=lambda: self._reading.position,
            finished=lambda: self._finished,
            ends=lambda: self._closed and self._endless,
        )
        self.schema: pa.Schema = source.schema
        """The schema of every batch."""
        if self.config["consumer.type"] == "highlevel":
            if start is not None:
                msg = "a group starts at its checkpoint: start is not allowed"
                remedy = "use a new group.id with a starting option"
                raise MisuseError(msg, stream=self.config.name, remedy=remedy)
            self._group = _group(source)
        else:
            default = "latest" if follow else "earliest"
            self._rotation = read_from(
                source, start=start, default=default, follow=follow
            )

    @property
    def config(self) -> StreamConfig:
        """The effective configuration."""
        return self._source.config

    @property
    def guarantee(self) -> Verdict:
        """What reading promises, with reasons."""
        return self._source.guarantee

    @property
    def position(self) -> Position:
        """Next offset of each partition, after the last batch handed out.

        Give it to ``open(..., start=)`` to go on from here.
        """
        # In this order: a poll may fetch a batch meanwhile.
        after, before = self._reading.position, self._async.before
        return after if before is None else before

    @property
    def counters(self) -> Counters:
        """Rows, messages, bytes, retries, losses so far."""
        return self._reading.counters

    @property
    def ends(self) -> Mapping[Partition, End]:
        """How partitions ended, for those that did."""
        return {} if self._rotation is None else self._rotation.ends

    def lag(self) -> dict[Partition, int | None]:
        """How far each partition is behind its latest; asks the source."""
        return self._source.metadata.lag(self.position)

    def commit(self) -> Position:
        """Save the group's position; only with ``consumer.type=highlevel``.

        Raises:
            Unsupported: misuse; this stream is read by partition, without a group.
            MisuseError: misuse; a cancelled wait left a batch that was not handed out.
            CheckpointFailed: permanent; the previous checkpoint still holds.
        """
        self._check_open()
        if self._group is None:
            msg = "a stream read by partition has no group to commit for"
            raise Unsupported(
                msg,
                stream=self.config.name,
                remedy="keep `position`, or set consumer.type=highlevel",
            )
        self._async.check_handed_out(self.config.name)
        return self._group.commit()

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """The next batch, without waiting for ever.

        Args:
            timeout: Seconds.

        Returns:
            A batch with rows, losses or an end; None when none came in time, or when
            the stream is at its end.

        Raises:
            ConnectionFailed: transient; the other side broke off, after its last rows.
            StreamError: As it fits.
        """
        self._check_open()
        over, batch = self._async.take(timeout)
        return self._read(timeout) if over and batch is None else batch

    def to_reader(self) -> pa.RecordBatchReader:
        """The rest of the stream as an Arrow reader."""
        batches = (batch.rows for batch in self if batch.num_rows)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def close(self) -> None:
        """Close everything; twice is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            self._reading.close()
        finally:
            self._source.close()

    async def aclose(self) -> None:
        """Close everything without blocking the event loop; twice is fine."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncBatches:
        self._check_open()
        return self._async

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[MessageBatch]:
        self._check_open()
        while not self._finished:
            try:
                batch = self.next_batch(_PATIENCE)
            except ClosedError:
                if self._closed and self._endless:
                    return
                raise
            if batch is not None and (batch.num_rows or batch.losses):
                yield batch

    def preview(self, rows: int = 5) -> Preview:
        """What the stream is, its partitions and its first rows; consumes nothing.

        Notebooks show it where a cell ends with a stream; ``print(stream.preview())``
        shows it as text. The source is asked for its partitions. Rows are those at
        the earliest offsets, and only of streams that can be read again.

        Args:
            rows: That are shown at the most.
        """
        return preview(self._source, None if self._closed else self.position, rows)

    def _repr_html_(self) -> str:
        return self.preview()._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        # Both forms of one preview: Jupyter takes both, and would ask the source twice.
        found = self.preview()
        return {"text/plain": str(found), "text/html": found._repr_html_()}

    def __repr__(self) -> str:
        return f"<Stream {self.config.name!r} of type {self.config.type!r}>"

    def _read(self, timeout: float) -> MessageBatch | None:
        batch = self._reading.next_batch(timeout)
        if batch is not None:
            refuse_torn(batch, self.config.name)
        return batch

    @property
    def _reading(self) -> Rotation | GroupReader:
        reading = self._rotation or self._group
        assert reading is not None
        return reading

    @property
    def _endless(self) -> bool:
        return self._follow or self._rotation is None

    def _check_open(self) -> None:
        if self._closed:
            msg = "the stream is closed"
            raise ClosedError(msg, stream=self.config.name)

    @property
    def _finished(self) -> bool:
        return self._rotation is not None and self._rotation.finished


def _group(source: Source) -> GroupReader:
    config = source.config
    group = config["group.id"]
    factory: ConsumerFactory = source.factory
    with source.guard.border():
        authored = factory.create_stream_level_consumer(f"streamfactory-{group}", group)
    if authored is not None:
        return AuthoredGroup(source, authored)
    instance, instances = config["group.instance"]
    return CheckpointedGroup(
        source,
        _checkpoints(source),
        group,
        instance=instance,
        instances=instances,
        clock=source.clock,
    )


def _checkpoints(source: Source) -> CheckpointStore:
    """Where a group keeps its checkpoints: a folder, or the stream itself."""
    config = source.config
    location = config.get("checkpoint.location")
    if location is not None:
        return FileCheckpointStore(Path(location))
    made = stream_checkpoints(source.factory, source.guard, config)
    if made is None:
        msg = "checkpoint.location is required by consumer.type=highlevel"
        raise ConfigError(msg, stream=config.name)
    return made
