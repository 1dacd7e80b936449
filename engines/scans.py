"""Lazy scans of a stream: what every engine module plans and reads with."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypedDict, final

from streamfactory.engines.pruning import Pruning, columns_of
from streamfactory.spi import (
    ConfigError,
    MisuseError,
    PartitionState,
    Unsupported,
    Yields,
)
from streamfactory.spi.arguments import FLAG, NAMES
from streamfactory.spi.producer import TOMBSTONE
from streamfactory.wiring.config.loading import StreamLike, find_definition, load
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.reading.counters import Counters
from streamfactory.wiring.reading.rotation import Rotation
from streamfactory.wiring.reading.starts import START, Start, plan_read
from streamfactory.wiring.receiving.embedded import open_source

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    import pyarrow as pa
    import pyarrow.dataset as ds

    from streamfactory.spi import Partition, PartitionInfo
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.source import Source

log = logging.getLogger("streamfactory")

PLACES: Final = frozenset({"_topic", "_partition", "_offset", "_timestamp"})
"""Those whose filters decide what is read."""
_TURN: Final = 1.0
"""Seconds that one wait for a batch lasts; nothing but closing ends it early."""


class ScanArguments(TypedDict, total=False):
    """What every function that scans a stream takes, beside the stream."""

    start: Start | None
    """As of `streamfactory.open`; by default the options decide, else the earliest."""
    columns: Sequence[str] | None
    """Columns wanted, in this order; metadata columns can be named here. None: all of
    the stream's own, and with ``metadata.columns=true`` the metadata columns."""
    options: Mapping[str, object] | None
    """Properties that replace those of the definition."""
    unbounded: bool
    """Whether to read partitions whose end is unknown, for as long as their sender
    sends. False refuses them."""
    allow_class_paths: bool
    """Whether the configuration may name Python objects."""
    plugins: PluginManager | None
    """Where types are found; the process's own by default."""


_KINDS: Final = {"start": START, "columns": NAMES, "unbounded": FLAG}
"""Of those arguments that are not checked where they are used."""


@dataclass(frozen=True)
class Plan:
    """What one scan reads, after projection and pruning."""

    stream: str
    columns: tuple[str, ...]
    """Columns of the result."""
    read: tuple[str, ...]
    """Columns read: those of the result, and those that the filter refers to."""
    ranges: Mapping[Partition, tuple[int, int | None]]
    """First offset, inclusive, and end, exclusive, of each partition that is read; an
    end of None is known to the sender only."""
    infos: tuple[PartitionInfo, ...]
    """The partitions as they were when the scan was planned."""
    incarnations: Mapping[Partition, str]
    """What the offsets count, where the start says so."""

    def __str__(self) -> str:
        ranges = ", ".join(
            f"{partition} [{start}, {'end' if end is None else end})"
            for partition, (start, end) in self.ranges.items()
        )
        columns = ", ".join(self.read)
        return f"stream {self.stream!r}: columns {columns}; ranges {ranges or 'none'}"

    def only(self, partition: Partition) -> Plan:
        """The part of this plan that reads one partition."""
        ranges = {partition: self.ranges[partition]}
        infos = tuple(info for info in self.infos if info.partition == partition)
        return replace(self, ranges=ranges, infos=infos)


@dataclass(frozen=True)
class _Wanted:
    columns: tuple[str, ...]
    read: tuple[str, ...]
    pruning: Pruning | None


@final
class StreamScan:
    """A stream that can be scanned any number of times. Thread-safe.

    Each scan opens the stream, plans what to read, reads it and closes the stream. It
    ends at the latest offsets of that moment, or at the ending options.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        arguments: `ScanArguments`.

    Raises:
        ConfigError: config; the configuration, or a column that is not there.
        Unsupported: misuse; the stream is read as a group.
        StreamError: The source's, when it is asked for its schema.
    """

    def __init__(
        self,
        stream: StreamLike,
        arguments: ScanArguments,
    ) -> None:
        _check_arguments(arguments)
        self._plugins = arguments.get("plugins")
        self._allow_class_paths = arguments.get("allow_class_paths", False)
        self._start = arguments.get("start")
        self._unbounded = arguments.get("unbounded", False)
        options = arguments.get("options")
        self._definition = find_definition(stream).with_overrides(options)
        columns = arguments.get("columns")
        configured = self._configure({})
        config = configured.config
        if config["consumer.type"] == "highlevel":
            msg = "an engine reads by partition and offset, not as a group"
            remedy = "set consumer.type=lowlevel"
            raise Unsupported(msg, stream=config.name, remedy=remedy)
        # Elsewhere `_timestamp` and the times of offsets are not the same clock's.
        self._timed = (
            configured.backend.yields is Yields.ENVELOPE and SPOOL_PATH not in config
        )
        headers = config["includeHeaders"] or "_headers" in (columns or ())
        tombstones = config["includeTombstones"] or TOMBSTONE in (columns or ())
        self._with_metadata = {
            "metadata.columns": "true",
            "includeHeaders": "true" if headers else "false",
            "includeTombstones": "true" if tombstones else "false",
        }
        self.name: str = config.name
        """For messages."""
        self.declared_name = self._definition.name
        """In the catalogue; empty where the stream is given by its properties."""
        with closing(self._open(None)) as source:
            everything = source.schema
            self._added = source.added_columns
        self.places = PLACES & self._added
        """Columns of this stream whose filters decide what is read."""
        own = [name for name in everything.names if name not in self._added]
        self._own = own
        shown = config["metadata.columns"] or config["metadata.populate"]
        default = everything.names if shown else own
        names = list(default if columns is None else columns)
        check_columns(config.name, names, everything.names)
        self._everything = everything
        self.schema: pa.Schema = _select(everything, names)
        """The schema of a scan of all columns."""
        self._lock = threading.Lock()
        self.counters = Counters()
        """What all scans have read so far; added to when a scan ends."""

    def plan(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
    ) -> Plan:
        """Plan a scan; opens and closes the stream.

        Args:
            columns: Columns wanted; None means all.
            filter: Matches the rows wanted.

        Raises:
            MisuseError: misuse; a partition's end is unknown.
            StreamError: The source's.
        """
        wanted = self._wanted(columns, filter)
        with closing(self._open(wanted.read)) as source:
            return self._plan(source, wanted)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
        *,
        plan: Plan | None = None,
    ) -> Generator[pa.RecordBatch]:
        """Read batches with rows, of the columns wanted. Closing it closes the stream.

        Args:
            columns: Columns wanted; None means all.
            filter: Matches the rows wanted; others are left out.
            plan: Its ranges are read; None: planned now.

        Raises:
            MisuseError: misuse; a partition's end is unknown.
            StreamError: The source's.
        """
        wanted = self._wanted(columns, filter)
        names, read = list(wanted.columns), list(wanted.read)
        with closing(self._open(read)) as source:
            if plan is None:
                plan = self._plan(source, wanted)
            plan = replace(plan, columns=wanted.columns, read=wanted.read)
            log.debug("scan of %s", plan)
            for batch in self._read(source, plan):
                rows = batch if batch.schema.names == read else batch.select(read)
                if filter is not None:
                    rows = rows.filter(filter)
                if rows.num_rows:
                    yield rows if names == read else rows.select(names)

    def projected(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of a scan of some columns."""
        return self.schema if columns is None else _select(self._everything, columns)

    def _wanted(
        self, columns: Sequence[str] | None, filter: ds.Expression | None
    ) -> _Wanted:
        names = tuple(self.schema.names if columns is None else columns)
        self._check_filter(filter)
        referred = [] if filter is None else columns_of(self._everything, filter)
        pruning = None
        if filter is not None:
            pruning = Pruning(self._everything, filter, referred, self.places)
        others = (name for name in referred if name not in names)
        return _Wanted(names, (*names, *others), pruning)

    def _check_filter(self, filter: object) -> None:
        from pyarrow.dataset import Expression

        if filter is not None and not isinstance(filter, Expression):
            msg = f"a filter is an Arrow expression, not {type(filter).__name__!r}"
            remedy = "pass one such as pyarrow.compute.field('n') > 1"
            raise MisuseError(msg, stream=self.name, remedy=remedy)

    def _plan(self, source: Source, wanted: _Wanted) -> Plan:
        config = source.config
        infos, starts, ends, incarnations = plan_read(
            config, source.metadata, start=self._start, default="earliest"
        )
        ends = ends or {}  # never followed: there is one for each partition
        gone = {i.partition for i in infos if i.state is PartitionState.VANISHED}
        ranges = {p: (starts[p], ends[p]) for p in starts if p not in gone}
        if wanted.pruning is not None:
            ranges = self._prune(source, ranges, wanted.pruning)
        if not self._unbounded:
            _check_bounded(config.name, ranges)
        # Reading reports those that are gone: an error, or a loss.
        ranges |= {p: (starts[p], None) for p in gone if p in starts}
        return Plan(
            config.name,
            wanted.columns,
            wanted.read,
            ranges,
            tuple(infos),
            incarnations,
        )

    def _prune(
        self,
        source: Source,
        ranges: Mapping[Partition, tuple[int, int | None]],
        pruning: Pruning,
    ) -> dict[Partition, tuple[int, int | None]]:
        # An empty range is still checked when it is read: a topic may be another one.
        empty = {p: (a, b) for p, (a, b) in ranges.items() if b is not None and b <= a}
        full = {p: one for p, one in ranges.items() if p not in empty}
        pruned = pruning.ranges(full)
        since = pruning.earliest_time() if self._timed else None
        if since is None or not pruned:
            return empty | pruned
        try:
            found = source.metadata.offsets_at(since, list(pruned))
        except Unsupported:
            return empty | pruned
        for partition, (start, end) in pruned.items():
            offset = found[partition]
            first = end if offset is None else offset
            if first is not None:
                later = max(start, first)
                pruned[partition] = (later if end is None else min(later, end), end)
        return empty | pruned

    def _read(self, source: Source, plan: Plan) -> Iterator[pa.RecordBatch]:
        rotation = Rotation(
            source,
            [info for info in plan.infos if info.partition in plan.ranges],
            {partition: start for partition, (start, _) in plan.ranges.items()},
            ends={partition: end for partition, (_, end) in plan.ranges.items()},
            incarnations=plan.incarnations,
            mine=lambda _: False,
            refresh=source.config["metadata.refresh.millis"] / 1000,
            clock=source.clock,
        )
        try:
            while not rotation.finished:
                batch = rotation.next_batch(_TURN)
                if batch is not None and batch.num_rows:
                    yield batch.rows
        finally:
            rotation.close()
            with self._lock:
                self.counters += rotation.counters

    def _open(self, read: Sequence[str] | None) -> Source:
        """A source of some columns, metadata columns included; None: of all."""
        overrides = self._with_metadata
        fields = None
        if read is not None:
            fields = [name for name in read if name not in self._added] or [
                self._cheapest()
            ]
            if not self._added.intersection(read):
                overrides = dict.fromkeys(self._with_metadata, "false")
        configured = self._configure(overrides)
        return open_source(configured, plugins=self._plugins, columns=fields)

    def _configure(self, overrides: Mapping[str, str]) -> Configured:
        return load(
            self._definition,
            "read",
            options=overrides,
            allow_class_paths=self._allow_class_paths,
            plugins=self._plugins,
        )

    def _cheapest(self) -> str:
        """A column for scans that want none of the stream's own, such as a count."""

        def width(name: str) -> int:
            try:
                return int(self._everything.field(name).type.bit_width)
            except ValueError:  # of variable width
                return 1 << 30

        cheapest: str = min(self._own, key=width)
        return cheapest


def _check_arguments(arguments: ScanArguments) -> None:
    """Refuse unknown keywords, as those of any function, and values of other kinds."""
    given: Mapping[str, object] = arguments
    for name, value in given.items():
        if name not in ScanArguments.__annotations__:
            near = nearest(name, ScanArguments.__annotations__)
            known = ", ".join(ScanArguments.__annotations__)
            hint = f"did you mean {near!r}?" if near else f"there are {known}"
            msg = f"got an unexpected keyword argument {name!r}: {hint}"
            raise TypeError(msg)
        if name in _KINDS and value is not None:
            _KINDS[name].checked(name, value)


def _select(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in names])


def check_columns(stream: str, names: Sequence[str], there: Sequence[str]) -> None:
    """Refuse columns that do not exist, and those that are named twice.

    Raises:
        ConfigError: config.
    """
    missing = [name for name in names if name not in there]
    twice = [name for name in names if list(names).count(name) > 1]
    if missing:
        have = ", ".join(there)
        msg = f"column {missing[0]!r} does not exist; available are {have}"
        raise ConfigError(msg, stream=stream)
    if twice:
        msg = f"the column {twice[0]!r} would be there twice"
        raise ConfigError(msg, stream=stream)


def _check_bounded(
    stream: str, ranges: Mapping[Partition, tuple[int, int | None]]
) -> None:
    for partition, (start, end) in ranges.items():
        if end is None:
            msg = "an engine reads to an end, and the latest offset here is unknown"
            raise MisuseError(
                msg,
                stream=stream,
                partition=partition,
                offset=start,
                remedy="set endingOffsets, or spool.path to read through a spool; or "
                "pass unbounded=True to read until the sender ends",
            )
