"""A range of a topic as plain files, for programs that know nothing of streams.

A file is written under a temporary name beside its own, and published whole: until
then nobody sees it, and what fails leaves nothing behind.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    MisuseError,
    Partition,
    PartitionState,
    Position,
    Unsupported,
)
from streamfactory.transfer.outputs import Outputs, format_of
from streamfactory.wiring.config.loading import Named, load
from streamfactory.wiring.core.canonical import canonical_schema
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.conform import conform
from streamfactory.wiring.microbatch.ranges import Range, read_range
from streamfactory.wiring.reading.losses import recreated, was_recreated
from streamfactory.wiring.reading.position_arguments import offsets_of, refuse_unknown
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.topics.admin import of_topic

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.spi import Loss, PartitionInfo, StreamConfig
    from streamfactory.transfer.outputs import Output
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.reading.reader import Reader

_TURN: Final = 0.2
"""Seconds that one fetch waits at the most: a stop is noticed that soon."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What was exported of one partition."""

    partition: Partition
    start: int
    end: int
    """Where reading came to; exclusive."""
    rows: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has written."""

    rows: int
    size: int
    """Bytes of all files."""
    files: tuple[Path, ...]
    lanes: tuple[Lane, ...]
    position: Position
    """Where reading came to; what a next export may begin with."""
    losses: tuple[Loss, ...]


def open_export(
    stream: Named,
    output: Path,
    *,
    topic: str | None = None,
    start: Marks = "earliest",
    end: Marks = "latest",
    partitions: Collection[int] = (),
    format: str | None = None,
    by_partition: bool = False,
    force: bool = False,
    options: Mapping[str, str] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Export:
    """Prepare an export.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        output: The file; with ``by_partition`` the folder, which must not be there.
        topic: Another topic of the same place; None for the stream's own.
        start: First offsets wanted.
        end: First offsets not wanted.
        partitions: Which; none means all.
        format: ``parquet``, ``arrow`` (a random-access file) or ``arrows`` (a stream);
            by default what the output's name ends in.
        by_partition: One file for each partition, named by it.
        force: Replace a file that is there.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.

    Raises:
        MisuseError: misuse; the output is there already, or no format is known.
        ConfigError: config; every problem at once.
        StreamError: As it fits.
    """
    kind = format_of(output, format, by_partition=by_partition)
    outputs = Outputs(output, kind, by_partition=by_partition, force=force)
    configured = load(
        stream,
        "read",
        options=options,
        allow_class_paths=allow_class_paths,
        plugins=plugins,
    )
    source = Source(of_topic(configured, topic), client_id="streamfactory-export")
    return Export(source, outputs, start=start, end=end, partitions=partitions)


@final
class Export(Closing):
    """One export. One thread runs it, once.

    Args:
        source: The stream; closed with the export.
        outputs: Where to.
        start: First offsets wanted.
        end: First offsets not wanted.
        partitions: Which; none means all.
    """

    def __init__(
        self,
        source: Source,
        outputs: Outputs,
        *,
        start: Marks,
        end: Marks,
        partitions: Collection[int],
    ) -> None:
        self._source = source
        self._outputs = outputs
        self._start = start
        self._end = end
        self._partitions = partitions
        self._losses: list[Loss] = []
        self.rows = 0
        """Rows written so far."""

    @property
    def config(self) -> StreamConfig:
        """The effective configuration."""
        return self._source.config

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files: values stand for dictionaries."""
        return canonical_schema(self._source.schema)

    def run(
        self, stop: threading.Event, *, tell: Callable[[int], None] = lambda _: None
    ) -> Exported | None:
        """Write and publish.

        Args:
            stop: Once it is set, nothing is published, and that is all.
            tell: Is given the rows so far, often.

        Returns:
            None where it was stopped.

        Raises:
            OffsetOutOfRange, IncarnationChanged: data_loss.
            StorageFailed: permanent; the output cannot be written. Nothing is left.
            StreamError: The source's. Nothing is published.
        """
        ranges = self._ranges()
        schema = self.schema
        lanes: list[Lane] = []
        incarnations: dict[Partition, str] = {}
        with self._outputs.begin(schema) as writing:
            for info, start, end in ranges:
                output = writing.of(info.partition)
                lane = self._export(info, start, end, output, schema, stop, tell)
                if lane is None:
                    return None
                lanes.append(lane)
                if info.incarnation is not None:
                    incarnations[info.partition] = info.incarnation
            files, size = writing.publish()
        reached = {lane.partition: lane.end for lane in lanes}
        return Exported(
            self.rows,
            size,
            files,
            tuple(lanes),
            Position(reached, incarnations),
            tuple(self._losses),
        )

    def close(self) -> None:
        """Close the stream; twice is fine."""
        self._source.close()

    def _ranges(self) -> list[tuple[PartitionInfo, int, int]]:
        config, metadata = self.config, self._source.metadata
        if "topic.name" not in config:
            msg = "this stream reads several topics"
            raise MisuseError(msg, stream=config.name, remedy="name one of them")
        infos = [
            info
            for info in metadata.partitions()
            if info.state is not PartitionState.VANISHED
        ]
        refuse_unknown(config, infos, dict.fromkeys(self._partitions))
        starts = offsets_of(config, metadata, infos, self._start)
        ends = offsets_of(config, metadata, infos, self._end)
        ranges = []
        for info in infos:
            partition = info.partition
            if self._partitions and partition.id not in self._partitions:
                continue
            start = starts.get(partition, info.earliest)
            end = ends.get(partition, info.latest)
            if end is None or (info.latest is None and self._end == "latest"):
                msg = "the latest offset of this stream is unknown"
                remedy = "copy it into a stream that keeps it, and export that"
                raise Unsupported(
                    msg, stream=config.name, partition=partition, remedy=remedy
                )
            if start > end:
                msg = f"the range ends at {end}, before its start at {start}"
                raise MisuseError(msg, stream=config.name, partition=partition)
            ranges.append((info, start, end))
        return ranges

    def _export(
        self,
        info: PartitionInfo,
        start: int,
        end: int,
        output: Output,
        schema: pa.Schema,
        stop: threading.Event,
        tell: Callable[[int], None],
    ) -> Lane | None:
        before, at = self.rows, start
        if start == end:
            return Lane(info.partition, start, at, 0)
        reader = self._source.reader(
            info.partition, info=info, incarnation=info.incarnation
        )
        with closing(reader):
            for batch in read_range(
                reader,
                Range(info.partition, start, end, info.incarnation),
                timeout=self.config["fetch.timeout.millis"] / 1000,
                clock=self._source.clock,
                turn=_TURN,
            ):
                if stop.is_set():
                    return None
                self._losses += batch.losses
                at = batch.next_offset
                output.write(conform(batch.rows, schema))
                self.rows += batch.num_rows
                tell(self.rows)
            self._refuse_recreated(reader, info)
        return Lane(info.partition, start, at, self.rows - before)

    def _refuse_recreated(self, reader: Reader, info: PartitionInfo) -> None:
        """Under a policy that continues, the range would mean something else."""
        if was_recreated(info.incarnation, reader.incarnation):
            partition, found = info.partition, reader.incarnation
            error = recreated(partition, info.incarnation, found, None)
            error.remedy = "export it again"
            raise error.at(stream=self.config.name)
