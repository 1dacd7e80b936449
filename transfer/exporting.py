"""Exports a range of a topic to plain files, for other programs.

A file is written under a temporary name in its folder, and published atomically; a
failure leaves no file.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.conversion.conform import conform
from streamfactory.spi import (
    MisuseError,
    Partition,
    PartitionState,
    Position,
    Unsupported,
)
from streamfactory.transfer.outputs import Outputs, format_of
from streamfactory.wiring.config.loading import StreamLike, load
from streamfactory.wiring.core.canonical import canonical_schema
from streamfactory.wiring.core.closing import Closing
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
"""Maximum seconds of one fetch, and so of the reaction to a stop."""


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """The exported range of one partition."""

    partition: Partition
    start: int
    end: int
    """End of the exported range, exclusive."""
    rows: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    rows: int
    size: int
    """Bytes of all files."""
    files: tuple[Path, ...]
    partitions: tuple[ExportedRange, ...]
    position: Position
    """The end of the export, at which a next one can start."""
    losses: tuple[Loss, ...]


def open_export(
    stream: StreamLike,
    output: Path,
    *,
    topic: str | None = None,
    start: Marks = "earliest",
    end: Marks = "latest",
    partitions: Collection[int] = (),
    format: str | None = None,
    by_partition: bool = False,
    force: bool = False,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Export:
    """Prepare an export.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        output: The file; with ``by_partition`` the folder, which must not exist.
        topic: Another topic of the same storage or server; None for the stream's own.
        start: Start offsets, inclusive.
        end: End offsets, exclusive.
        partitions: The partitions; empty for all.
        format: ``parquet``, ``arrow`` (a random-access file) or ``arrows`` (a stream);
            by default what the output's name ends in.
        by_partition: One file per partition, named by it.
        force: Replace an existing file.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.

    Raises:
        MisuseError: misuse; the output exists already, or its format is unknown.
        ConfigError: config; with all problems.
        StreamError: Raised by the stream.
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
        outputs: The destination.
        start: Start offsets, inclusive.
        end: End offsets, exclusive.
        partitions: The partitions; empty for all.
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
        """The schema of the files, without dictionary types."""
        return canonical_schema(self._source.schema)

    def run(
        self,
        stop: threading.Event,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Exported | None:
        """Write and publish.

        Args:
            stop: When set, this returns without publishing.
            on_progress: Called frequently with the number of rows so far.

        Returns:
            None if it was stopped.

        Raises:
            OffsetOutOfRange, IncarnationChanged: data_loss.
            StorageFailed: permanent; the output cannot be written. Nothing is left.
            StreamError: Raised by the source. Nothing is published.
        """
        ranges = self._ranges()
        schema = self.schema
        partitions: list[ExportedRange] = []
        incarnations: dict[Partition, str] = {}
        with self._outputs.begin(schema) as writing:
            for info, start, end in ranges:
                output = writing.of(info.partition)
                partition = self._export(
                    info, start, end, output, schema, stop, on_progress
                )
                if partition is None:
                    return None
                partitions.append(partition)
                if info.incarnation is not None:
                    incarnations[info.partition] = info.incarnation
            files, size = writing.publish()
        reached = {partition.partition: partition.end for partition in partitions}
        return Exported(
            self.rows,
            size,
            files,
            tuple(partitions),
            Position(reached, incarnations),
            tuple(self._losses),
        )

    def close(self) -> None:
        """Close the stream; may be called twice."""
        self._source.close()

    def _ranges(self) -> list[tuple[PartitionInfo, int, int]]:
        config, metadata = self.config, self._source.metadata
        if "topic.name" not in config:
            msg = "this stream reads several topics"
            raise MisuseError(msg, stream=config.name, remedy="select one of them")
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
            start = starts.get(partition, info.start)
            end = ends.get(partition, info.latest)
            if end is None or (info.latest is None and self._end == "latest"):
                msg = "the latest offset of this stream is unknown"
                remedy = "copy it to a stream that stores it, and export that"
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
        on_progress: Callable[[int], None],
    ) -> ExportedRange | None:
        before, at = self.rows, start
        if start == end:
            return ExportedRange(info.partition, start, at, 0)
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
                on_progress(self.rows)
            self._refuse_recreated(reader, info)
        return ExportedRange(info.partition, start, at, self.rows - before)

    def _refuse_recreated(self, reader: Reader, info: PartitionInfo) -> None:
        """Raise if the topic was recreated, whatever the loss policy.

        The range is invalid.
        """
        if was_recreated(info.incarnation, reader.incarnation):
            partition, found = info.partition, reader.incarnation
            error = recreated(partition, info.incarnation, found, None)
            error.remedy = "repeat the export"
            raise error.at(stream=self.config.name)
