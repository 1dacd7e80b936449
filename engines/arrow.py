"""Streams as Arrow datasets: for pyarrow, and for every engine that scans datasets.

``dataset("clicks")`` is a `pyarrow.dataset.Dataset` without files. Its scanners read
one batch at a time and never collect, except where a method returns a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Unpack, final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystemHandler, PyFileSystem

from streamfactory.engines.scans import Plan, ScanArguments, StreamScan
from streamfactory.spi import MisuseError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.wiring.config.loading import StreamLike
    from streamfactory.wiring.reading.counters import Counters


def dataset(
    stream: StreamLike,
    **how: Unpack[ScanArguments],
) -> StreamDataset:
    """Return a stream as an Arrow dataset; reads only its schema.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Raises:
        ConfigError: config; every problem at once.
        StreamError: The source's, when it is asked for its schema.
    """
    return StreamDataset(StreamScan(stream, how))


@final
class StreamScanner:
    """One scan of a stream: each method that reads begins a new scan.

    Made by `StreamDataset.scanner`.
    """

    def __init__(
        self,
        scan: StreamScan,
        columns: Sequence[str] | None,
        filter: ds.Expression | None,
        plan: Plan | None = None,
    ) -> None:
        self._scan = scan
        self._columns = None if columns is None else list(columns)
        self._filter = filter
        self._plan = plan

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema before projection."""
        return self._scan.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._scan.projected(self._columns)

    def plan(self) -> Plan:
        """Return what a scan would read now: columns, and offsets by partition."""
        return self._plan or self._scan.plan(self._columns, self._filter)

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the rows, a batch at a time."""
        return pa.RecordBatchReader.from_batches(
            self.projected_schema, self.to_batches()
        )

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time."""
        return self._scan.batches(self._columns, self._filter, plan=self._plan)

    def to_table(self) -> pa.Table:
        """All rows, collected."""
        return pa.Table.from_batches(self.to_batches(), schema=self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; reads no more batches than they take."""
        return pa.Table.from_batches(
            first_rows(self.to_batches(), num_rows), schema=self.projected_schema
        )

    def count_rows(self) -> int:
        """Count the matching rows; reads only columns of the filter."""
        counted = StreamScanner(self._scan, [], self._filter)
        return sum(batch.num_rows for batch in counted.to_batches())

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Refused: batches of a stream belong to no fragment of a file.

        Raises:
            Unsupported: misuse.
        """
        raise _refused(self._scan, what="scan_batches", remedy="use to_batches")

    def take(self, *_: Any, **__: Any) -> pa.Table:
        """Refused: rows of a stream have offsets, not indices.

        Raises:
            Unsupported: misuse.
        """
        raise _refused(
            self._scan, what="take", remedy="filter on _partition and _offset"
        )


@final
class StreamFragment:
    """The part of a planned scan that reads one partition."""

    def __init__(
        self, scan: StreamScan, plan: Plan, filter: ds.Expression | None
    ) -> None:
        self._scan = scan
        self.plan = plan
        """What it reads."""
        self._filter = filter

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema of the stream."""
        return self._scan.schema

    @property
    def partition_expression(self) -> ds.Expression:
        """No condition: nothing is known about all rows."""
        return ds.scalar(True)

    def scanner(
        self,
        schema: pa.Schema | None = None,  # noqa: ARG002 - always the stream's
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
        **_: Any,
    ) -> StreamScanner:
        """A scanner of the planned offsets."""
        both = _both(self._filter, filter)
        return StreamScanner(self._scan, columns, both, self.plan)

    def to_batches(self, schema: pa.Schema | None = None, **how: Any) -> Any:
        """See `scanner`."""
        return self.scanner(schema, **how).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **how: Any) -> pa.Table:
        """See `scanner`."""
        return self.scanner(schema, **how).to_table()

    def head(
        self, num_rows: int, schema: pa.Schema | None = None, **how: Any
    ) -> pa.Table:
        """See `scanner`."""
        return self.scanner(schema, **how).head(num_rows)

    def count_rows(self, **how: Any) -> int:
        """See `scanner`."""
        return self.scanner(**how).count_rows()


class _Refusing(FileSystemHandler):  # type: ignore[misc]
    """What Arrow's C++ gets to read a stream's dataset from: an error with a remedy."""

    def __init__(self, stream: str) -> None:
        self._stream = stream

    def get_type_name(self) -> str:
        return "streamfactory"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        msg = "Arrow's C++ cannot scan a stream as a dataset"
        remedy = "pass dataset.scanner().to_reader()"
        raise Unsupported(msg, stream=self._stream, remedy=remedy)

    get_file_info = get_file_info_selector = _refuse
    open_input_file = open_input_stream = _refuse
    open_output_stream = open_append_stream = _refuse
    create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse


@final
class StreamDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A stream as a dataset, whose fragments are its partitions. Thread-safe.

    Every scan reads the stream as it is then: a second one may find more rows. Made by
    `dataset`. Arrow's C++ cannot scan it: `Scanner.from_dataset` and Acero raise
    `Unsupported`, `pyarrow.dataset.write_dataset` a ``TypeError``. They take
    ``scanner().to_reader()``.
    """

    def __init__(self, scan: StreamScan, filter: ds.Expression | None = None) -> None:
        # C++ gets a dataset of its own: one file, that cannot be opened. Without it
        # a scan in C++ would follow a null pointer.
        format, nowhere = ds.IpcFileFormat(), PyFileSystem(_Refusing(scan.name))
        file = format.make_fragment("stream", filesystem=nowhere)
        super().__init__([file], scan.schema, format, nowhere)
        self._scan = scan
        self._filter = filter

    @property
    def schema(self) -> pa.Schema:
        """The schema of a scan of all columns."""
        return self._scan.schema

    @property
    def partition_expression(self) -> ds.Expression:
        """No condition: nothing is known about all rows."""
        return ds.scalar(True)

    @property
    def name(self) -> str:
        """The stream's name in the catalogue; empty for properties."""
        return self._scan.declared_name

    @property
    def counters(self) -> Counters:
        """Rows, messages, bytes that all scans of this dataset have read so far."""
        return self._scan.counters

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
        **_: Any,
    ) -> StreamScanner:
        """A scanner of some columns of the rows that a filter matches.

        Args:
            columns: Names; None means all.
            filter: An expression over any columns of the stream, including metadata
                columns and columns that are not selected.
            _: Settings for files, such as batch sizes; ignored.

        Raises:
            Unsupported: misuse; columns are computed.
        """
        if columns is not None and not isinstance(columns, list | tuple):
            raise _refused(
                self._scan,
                what="a projection that computes",
                remedy="pass names of columns",
            )
        return StreamScanner(self._scan, columns, _both(self._filter, filter))

    def plan(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
    ) -> Plan:
        """Return what a scan would read now: columns, and offsets by partition."""
        return self.scanner(columns, filter).plan()

    def get_fragments(
        self, filter: ds.Expression | None = None
    ) -> Iterator[StreamFragment]:
        """One fragment for each partition that can have matching rows, planned now."""
        both = _both(self._filter, filter)
        plan = self._scan.plan(None, both)
        return iter(
            [StreamFragment(self._scan, plan.only(p), both) for p in plan.ranges]
        )

    def filter(self, expression: ds.Expression) -> StreamDataset:
        """The dataset without rows that do not match."""
        return StreamDataset(self._scan, _both(self._filter, expression))

    def replace_schema(self, *_: Any, **__: Any) -> StreamDataset:
        """Refused: the stream decides.

        Raises:
            Unsupported: misuse.
        """
        raise _refused(
            self._scan, what="replace_schema", remedy="pass columns to dataset()"
        )

    def sort_by(self, sorting: object, **_: Any) -> ds.InMemoryDataset:
        """The rows in order, collected."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting))

    def join(self, *_: Any, **__: Any) -> ds.InMemoryDataset:
        """Refused: Arrow joins datasets of files only.

        Raises:
            Unsupported: misuse.
        """
        raise _refused(
            self._scan, what="join", remedy="join in DuckDB, Polars or DataFusion"
        )

    def join_asof(self, *_: Any, **__: Any) -> object:
        """Refused, like `join`.

        Raises:
            Unsupported: misuse.
        """
        raise _refused(self._scan, what="join_asof", remedy="join in DuckDB or Polars")

    def __repr__(self) -> str:
        return f"<StreamDataset of stream {self._scan.name!r}>"


def first_rows(
    batches: Iterator[pa.RecordBatch], rows: int
) -> Iterator[pa.RecordBatch]:
    """Return batches with so many rows in total; the last one is cut."""
    for batch in batches:
        if rows <= 0:
            return
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


def _both(
    one: ds.Expression | None, other: ds.Expression | None
) -> ds.Expression | None:
    if one is None or other is None or one.equals(other):
        return one if other is None else other
    return one & other


def _refused(scan: StreamScan, *, what: str, remedy: str) -> Unsupported:
    msg = f"a stream as a dataset does not support {what}"
    return Unsupported(msg, stream=scan.name, remedy=remedy)


def view_name(given: str | None, stream: str) -> str:
    """Return the name of a stream in SQL: the given one, else the stream's.

    Raises:
        MisuseError: misuse; there is neither.
    """
    if not (given or stream):
        msg = "a stream that is defined by properties has no name"
        raise MisuseError(msg, remedy="pass name= to register it")
    return given or stream
