"""`streamfactory.open`: a stream as an iterator of batches or an Arrow reader."""

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
from streamfactory.spi.arguments import COUNT, FLAG, NAMES, SECONDS, takes
from streamfactory.wiring.config.loading import FAULTS, StreamLike, load
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.decoding.stages import for_group
from streamfactory.wiring.reading.following import read_from
from streamfactory.wiring.reading.starts import ending_offsets
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
    from datetime import timedelta

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
"""Maximum seconds of one poll; only closing interrupts it."""


@takes(follow=FLAG, columns=NAMES, faults=FAULTS)
def open_stream(
    stream: StreamLike,
    *,
    start: Start | None = None,
    follow: bool = False,
    columns: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    faults: Faults | None = None,
) -> Stream:
    """Open a stream for reading; exported as ``streamfactory.open``.

    Args:
        stream: The name of a stream in the catalogue, the path of its file, or its
            properties.
        start: ``earliest``, ``latest``, a datetime with time zone, a date, which begins
            at midnight UTC, a timedelta before now, or a `Position`; has precedence
            over all start options. The default is the start options, then earliest, or
            latest if ``follow``.
        follow: Continue after the latest offset is reached, with new partitions, until
            closed. Otherwise the stream ends at the latest offsets of now; a member of
            a group where its partitions are read up to these: a loop ends there,
            ``next_batch`` does not.
        columns: Columns to read, in this order; None means all.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.
        faults: A `streamfactory.Faults`: injects faults, for tests.

    Raises:
        ConfigError: config; with all problems.
        UnknownStream: config; no stream has that name.
        PluginError: plugin; the type is not installed, or broken.
        StreamError: Raised by the source when its partitions are fetched.
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


# Its public name, which help() shows: a module has `open` of Python otherwise.
open_stream.__module__, open_stream.__qualname__ = "streamfactory", "open"
open_stream.__name__ = "open"


@final
class Stream(Closing):
    """An open stream: a context manager and an iterator of `MessageBatch`.

    One thread iterates; ``close`` may be called from any thread. Closing ends the
    iteration of a followed stream, which has no other end; a bounded one raises
    `ClosedError`, so that a part is never mistaken for the whole. It can be passed to
    all consumers of Arrow streams: pyarrow, Polars, DuckDB, pandas.

    In asyncio, ``async with`` closes it and ``async for`` iterates, without blocking
    the event loop. A cancelled wait, by a timeout for example, loses no batch: continue
    with ``async for`` or ``anext``.
    """

    def __init__(self, source: Source, *, start: Start | None, follow: bool) -> None:
        self._source = source
        self._follow = follow
        self._closed = False
        self._group: GroupReader | None = None
        self._rotation: Rotation | None = None
        self._schema = source.schema
        if self.config["consumer.type"] == "highlevel":
            if start is not None:
                msg = "a group starts at its checkpoint: start is not allowed"
                remedy = "use a new group.id with a starting option"
                raise MisuseError(msg, stream=self.config.name, remedy=remedy)
            infos = [] if follow else source.metadata.partitions()
            self._latest = ending_offsets(source.config, source.metadata, infos)
            self._group = _group(source)
        else:
            default = "latest" if follow else "earliest"
            self._rotation = read_from(
                source, start=start, default=default, follow=follow
            )
        self._async = AsyncBatches(
            self._reading.next_batch,
            position=lambda: self._reading.position,
            finished=lambda: self._finished,
            ends=lambda: self._closed and self._endless,
        )

    @property
    def config(self) -> StreamConfig:
        """The effective configuration."""
        return self._source.config

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._schema

    @property
    def guarantee(self) -> Verdict:
        """The guarantee of reading, with reasons."""
        return self._source.guarantee

    @property
    def position(self) -> Position:
        """Next offset of each partition, after the last returned batch.

        Pass it to ``open(..., start=)`` to continue from here.
        """
        # In this order: a poll may fetch a batch between the two calls.
        after, before = self._reading.position, self._async.before
        return after if before is None else before

    @property
    def counters(self) -> Counters:
        """Rows, messages, bytes, retries, losses so far."""
        return self._reading.counters

    @property
    def ends(self) -> Mapping[Partition, End]:
        """The ends of partitions that have ended."""
        return {} if self._rotation is None else self._rotation.ends

    def lag(self) -> dict[Partition, int | None]:
        """Return the lag of each partition; calls the source."""
        return self._source.metadata.lag(self.position)

    def commit(self) -> Position:
        """Commit the group's position; only with ``consumer.type=highlevel``.

        Returns:
            What was committed: without partitions that the group has taken away
            meanwhile, whose rows since the last commit are delivered again.

        Raises:
            Unsupported: misuse; this stream is read by partition, without a group.
            MisuseError: misuse; a cancelled wait left a batch that was not returned.
            CheckpointFailed: permanent; the previous checkpoint remains valid.
        """
        self._check_open()
        if self._group is None:
            msg = "a stream that is read by partition has no group to commit for"
            raise Unsupported(
                msg,
                stream=self.config.name,
                remedy="store `position`, or set consumer.type=highlevel",
            )
        self._async.check_handed_out(self.config.name)
        return self._group.commit()

    def next_batch(self, timeout: float | timedelta) -> MessageBatch | None:
        """Return the next batch, or None after a timeout.

        Args:
            timeout: Seconds, or a timedelta.

        Returns:
            A batch with rows, losses or an end; None if none arrived in time, or if the
            stream has ended.

        Raises:
            ConnectionFailed: transient; the stream broke off after its last rows.
            StreamError: Other errors of the source.
        """
        seconds: float = SECONDS.checked("timeout", timeout)
        self._check_open()
        over, batch = self._async.take(seconds)
        if over and batch is None:
            return self._reading.next_batch(seconds)
        return batch

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rest of the stream as an Arrow reader."""
        batches = (batch.rows for batch in self if batch.num_rows)
        return pa.RecordBatchReader.from_batches(self._schema, batches)

    def close(self) -> None:
        """Close the stream; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._reading.close()
        finally:
            self._source.close()

    async def aclose(self) -> None:
        """Close the stream without blocking the event loop; may be called twice."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncBatches:
        self._check_open()
        return self._async

    async def __anext__(self) -> MessageBatch:
        self._check_open()
        return await anext(self._async)

    def __array__(self, *_: object, **__: object) -> object:
        # pandas.DataFrame(stream) would make a column of batches.
        msg = "a stream is no array: pyarrow.table(stream).to_pandas() makes a frame"
        msg += ", and streamfactory.engines.pandas.chunks makes several"
        raise TypeError(msg)

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

    @takes(rows=COUNT)
    def preview(self, rows: int = 5) -> Preview:
        """Return properties, partitions and first rows of the stream; consumes nothing.

        Notebooks show it for a cell that ends with a stream;
        ``print(stream.preview())`` shows it as text. It fetches the partitions from the
        source. Rows are those at the earliest offsets, only for streams that can be
        read again.

        Args:
            rows: Maximum number of rows.

        Raises:
            MisuseError: misuse; ``rows`` is below 0.
        """
        return preview(self._source, None if self._closed else self.position, rows)

    def _repr_html_(self) -> str:
        return self.preview()._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        # Both forms of one preview: Jupyter requests both, which would call the source
        # twice.
        found = self.preview()
        return {"text/plain": str(found), "text/html": found._repr_html_()}

    def __repr__(self) -> str:
        return f"<Stream {self.config.name!r} of type {self.config.type!r}>"

    @property
    def _reading(self) -> Rotation | GroupReader:
        reading = self._rotation or self._group
        assert reading is not None
        return reading

    @property
    def _endless(self) -> bool:
        return self._follow

    def _check_open(self) -> None:
        if self._closed:
            msg = "the stream is closed"
            raise ClosedError(msg, stream=self.config.name)

    @property
    def _finished(self) -> bool:
        if self._rotation is not None:
            return self._rotation.finished
        assert self._group is not None
        return (
            not self._follow and not self._closed and self._group.has_read(self._latest)
        )


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
    """Return the checkpoint store of a group: a folder, or the stream's own."""
    config = source.config
    location = config.get("checkpoint.location")
    if location is not None:
        return FileCheckpointStore(Path(location))
    made = stream_checkpoints(source.factory, source.guard, config)
    if made is None:
        msg = "checkpoint.location is required by consumer.type=highlevel"
        raise ConfigError(msg, stream=config.name)
    return made
