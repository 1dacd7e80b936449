"""Streams in pandas: one data frame, or consecutive ones of a limited number of rows.

Needs ``pip install 'streamfactory[pandas]'``.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, Unpack, final

import pyarrow as pa

from streamfactory.engines.installing import load
from streamfactory.engines.scans import StreamScan
from streamfactory.spi import MisuseError, SchemaMismatch
from streamfactory.spi.arguments import COUNT, FLAG, having, takes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow.dataset as ds

    from streamfactory.engines.scans import ScanArguments
    from streamfactory.wiring.config.loading import StreamLike

LIKE: Final = having("select_dtypes", taken="pass a data frame of pandas")


@takes(like=LIKE)
def to_pandas(
    stream: StreamLike,
    *,
    like: pd.DataFrame | None = None,
    filter: ds.Expression | None = None,
    **how: Unpack[ScanArguments],
) -> pd.DataFrame:
    """The rows of a stream as one data frame, which holds all of them.

    No value changes: columns have NumPy's types, but whole numbers and booleans with
    nulls have those of pandas, ``Int64`` and ``boolean``, and nested columns Arrow's,
    ``pandas.ArrowDtype``.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        like: A frame whose types, time zones, categories and index the result gets,
            such as the one that was written: a stream stores values, not these.
        filter: Arrow expression that matches the rows wanted.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Raises:
        MisuseError: misuse; a partition's end is unknown.
        SchemaMismatch: permanent; a column has values that the type in ``like`` lacks.
        NotInstalled: plugin; names the command that installs pandas.
        ConfigError: config; every problem at once.
        StreamError: The source's.
    """
    load("pandas")
    scan = StreamScan(stream, how)
    frames = _Frames(scan.name, like, arrow_types=False)
    with closing(scan.batches(filter=filter)) as batches:
        return frames.frame(pa.Table.from_batches(batches, scan.schema))


@takes(rows=COUNT, arrow_types=FLAG, like=LIKE)
def chunks(
    stream: StreamLike,
    *,
    rows: int = 65_536,
    filter: ds.Expression | None = None,
    arrow_types: bool = False,
    like: pd.DataFrame | None = None,
    **how: Unpack[ScanArguments],
) -> Iterator[pd.DataFrame]:
    """The rows of a stream as data frames; holds one of them at a time.

    The index goes on from one frame to the next. A stream without rows is one frame
    without rows.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        rows: That every frame but the last one has.
        filter: Arrow expression that matches the rows wanted.
        arrow_types: Whether columns keep Arrow's types, ``pandas.ArrowDtype``.
            Otherwise they have the types of `to_pandas`, where a column with nulls in
            some frames only can have two.
        like: As of `to_pandas`.
        how: `ScanArguments`: start, columns, options, unbounded, allow_class_paths,
            plugins.

    Raises:
        MisuseError: misuse; ``rows`` is below 1, or a partition's end is unknown.
        SchemaMismatch: permanent; a column has values that the type in ``like`` lacks.
        NotInstalled: plugin; names the command that installs pandas.
        ConfigError: config; every problem at once.
        StreamError: The source's.
    """
    load("pandas")
    if rows < 1:
        msg = f"rows is {rows}"
        raise MisuseError(msg, remedy="use 1 or more")
    if arrow_types and like is not None:
        msg = "arrow_types and like both decide the types"
        raise MisuseError(msg, remedy="pass one of them")
    scan = StreamScan(stream, how)
    frames = _Frames(scan.name, like, arrow_types=arrow_types)
    return _chunks(scan, rows, filter, frames)


def _chunks(
    scan: StreamScan, rows: int, filter: ds.Expression | None, frames: _Frames
) -> Iterator[pd.DataFrame]:
    held: list[pa.RecordBatch] = []
    count, whole = 0, 0

    def frame() -> pd.DataFrame:
        table = pa.Table.from_batches(held, scan.schema)
        return frames.frame(table, begin=whole * rows)

    with closing(scan.batches(filter=filter)) as batches:
        for batch in batches:
            rest = batch
            while count + rest.num_rows >= rows:
                missing = rows - count
                held.append(rest.slice(0, missing))
                yield frame()
                held, count, rest = [], 0, rest.slice(missing)
                whole += 1
            if rest.num_rows:
                held.append(rest)
                count += rest.num_rows
    if held or not whole:
        yield frame()


@final
class _Frames:
    """Makes data frames of tables, all in the same way.

    Args:
        stream: Its name, for errors.
        like: Whose types the frames get; None: those of the values.
        arrow_types: Whether they get Arrow's types.
    """

    def __init__(
        self, stream: str, like: pd.DataFrame | None, *, arrow_types: bool
    ) -> None:
        self._stream = stream
        self._like = like
        self._arrow_types = arrow_types
        self._pandas = load("pandas")
        self._nullable = {pa.bool_(): self._pandas.BooleanDtype()}
        for bits in (8, 16, 32, 64):
            for sign in ("", "U"):
                kind = getattr(pa, f"{sign.lower()}int{bits}")()
                dtype = getattr(self._pandas, f"{sign}Int{bits}Dtype")()
                self._nullable[kind] = dtype

    def frame(self, table: pa.Table, begin: int = 0) -> pd.DataFrame:
        """Return the rows of a table; the index begins at a number."""
        if self._like is not None:
            return self._alike(table, self._like, begin)
        columns = {
            name: column.to_pandas(types_mapper=self._types_of(column))
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        index = self._pandas.RangeIndex(begin, begin + table.num_rows)
        frame: pd.DataFrame = self._pandas.DataFrame(columns).set_axis(index)
        return frame

    def _types_of(self, column: pa.ChunkedArray) -> Any:
        # pandas has no nanoseconds of a day
        exact = pa.types.is_nested(column.type) or column.type == pa.time64("ns")
        if self._arrow_types or exact:
            return self._pandas.ArrowDtype
        return self._nullable.get if column.null_count else None

    def _alike(self, table: pa.Table, like: pd.DataFrame, begin: int) -> pd.DataFrame:
        """Return the rows with types and index of another frame."""
        # pandas does not read the names of nested types back.
        arrow = [
            name
            for name, dtype in like.dtypes.items()
            if isinstance(dtype, self._pandas.ArrowDtype)
        ]
        model = pa.Schema.from_pandas(like.drop(columns=arrow))
        for number, field in enumerate(table.schema):
            at = model.get_field_index(field.name)
            kind = field.type if at < 0 else model.field(at).type
            if pa.types.is_timestamp(kind) and kind != field.type:
                zoned = table.column(number).cast(kind)
                table = table.set_column(number, field.with_type(kind), zoned)
        frame: pd.DataFrame = table.replace_schema_metadata(model.metadata).to_pandas()
        if isinstance(frame.index, self._pandas.RangeIndex):
            frame = frame.set_axis(self._continued(like.index, begin, len(frame)))
        for name in frame.columns.intersection(like.columns):
            dtype = like[name].dtype
            if name in arrow:
                frame[name] = self._arrow(table.column(name), name, dtype, frame.index)
                continue
            if str(dtype) == "object" and pa.types.is_nested(
                table.schema.field(name).type
            ):
                # pandas would make floats of whole numbers beside nulls
                objects = table.column(name).to_pylist()
                frame[name] = self._pandas.Series(objects, frame.index, object)
            frame[name] = self._cast(frame[name], dtype)
        return frame

    def _continued(self, index: pd.Index[Any], begin: int, rows: int) -> Any:
        """Return the index of further rows of a frame."""
        first, step, name = 0, 1, None
        if isinstance(index, self._pandas.RangeIndex):
            first, step, name = index.start, index.step, index.name
        start = first + begin * step
        return self._pandas.RangeIndex(start, start + rows * step, step, name=name)

    def _cast(self, column: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
        if column.dtype == dtype:
            return column
        cast = None
        known = getattr(dtype, "categories", None)
        if known is None or column.dropna().isin(known).all():
            with suppress(TypeError, ValueError):
                cast = column.astype(dtype)
        if cast is None or not (cast.isna() == column.isna()).all():
            raise self._unlike(column.name, dtype)
        return cast

    def _arrow(
        self, column: pa.ChunkedArray, name: str, dtype: Any, index: Any
    ) -> pd.Series[Any]:
        """Return a column in a type of Arrow."""
        try:
            values = column.cast(dtype.pyarrow_dtype)
        except pa.ArrowException as error:
            raise self._unlike(name, dtype) from error
        array = self._pandas.arrays.ArrowExtensionArray(values)
        series: pd.Series[Any] = self._pandas.Series(array, index)
        return series

    def _unlike(self, name: object, dtype: object) -> SchemaMismatch:
        msg = f"column {name!r} has values that are not in the type {dtype} "
        msg += "of the frame `like`"
        remedy = "pass like= a frame with another type of it"
        return SchemaMismatch(msg, stream=self._stream, remedy=remedy)
