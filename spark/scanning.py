"""Batches that Spark's own Parquet reader reads, planned from the log of a topic."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documentation has it
from pyspark.sql.types import StructType

from streamfactory.spark.by_file import FileValues
from streamfactory.spark.catalogues import Home
from streamfactory.spark.failures import describe_failure, unlogged
from streamfactory.spark.fitting import quoted
from streamfactory.spark.types import spark_schema
from streamfactory.spi import (
    CorruptData,
    MisuseError,
    SchemaMismatch,
    StorageFailed,
)
from streamfactory.spi.ddl import type_text
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.microbatch import Planner, check_batch, check_shared
from streamfactory.wiring.microbatch.stored import REMEDY, Stored
from streamfactory.wiring.receiving.embedded import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from streamfactory.spi import Position
    from streamfactory.wiring.config.loading import StreamLike
    from streamfactory.wiring.microbatch.stored import StoredFile
    from streamfactory.wiring.reading.starts import Start

_TRIES: Final = 8
"""Attempts to plan files that merges replace meanwhile."""
_OPTIONS: Final = {
    # A file that retention removed must never be left out.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
}
_WITH_TOPIC: Final = ("_topic", "_partition", "_offset")


def scan_range(
    named: StreamLike,
    start: Start | None,
    end: Position | None,
    spark: SparkSession | None,
) -> DataFrame:
    """See `streamfactory.spark.scan`."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        msg = "no session of Spark is active in this thread"
        raise MisuseError(msg, remedy="pass the session as `spark`")
    configured = load(named, "spark", catalogue=Home.of(session).catalogue())
    check_batch(configured.config)
    source = open_source(configured, aside=False)
    try:
        check_shared(source)
        stored = Stored(source)
        topic = source.config.topic if source.config["metadata.columns"] else None
        check_columns(stored.schema, topic, source.config.name)
        schema = spark_schema(stored.schema)
        ranges = Planner(source).partition_ranges(start, end)
        for _ in range(_TRIES):
            try:
                return _frame(session, schema, stored.files(ranges), topic)
            except AnalysisException as error:
                # A merge may have removed a file since: there are new ones.
                if error.getCondition() != "PATH_NOT_FOUND":
                    raise StorageFailed(describe_failure(error)) from error
        msg = f"topic {source.config['topic.name']!r}: the files of the range are "
        raise CorruptData(msg + "replaced or removed while they are planned")
    finally:
        source.close()


# --- what can be read -----------------------------------------------------------


def check_columns(schema: pa.Schema, topic: str | None, name: str | None) -> None:
    """Refuse columns of a topic that a scan would return otherwise.

    Args:
        schema: Columns of the topic.
        topic: Value of ``_topic``; None if there is no such column.
        name: Name of the stream, for errors.

    Raises:
        SchemaMismatch: permanent; Spark's Parquet reader returns other values, or
            its name differs from that of another column only in case, which Spark
            ignores.
    """
    hidden = frozenset(schema.names)
    added = [column for column in _added(topic) if column not in hidden]
    taken = {column: column for column in ("_metadata", *added)}
    for field in schema:
        if not _is_same(field.type):
            kind = type_text(field.type)
            msg = f"column {field.name!r} of the type {kind}: Spark's Parquet "
            msg += "reader does not read it as this source does"
            raise SchemaMismatch(msg, stream=name, remedy=REMEDY)
        other = taken.get(field.name.lower())
        if other is not None:
            msg = f"column {field.name!r}: a scan has the column {other!r}, too, and "
            msg += "Spark ignores case"
            raise SchemaMismatch(msg, stream=name, remedy=REMEDY)
        taken[field.name.lower()] = field.name


def _added(topic: str | None) -> tuple[str, ...]:
    """Columns besides those of the topic."""
    return ("_partition", "_offset") if topic is None else _WITH_TOPIC


def _is_same(kind: pa.DataType) -> bool:
    """Whether Spark's Parquet reader returns what `types.spark_schema` promises."""
    types = pa.types
    if types.is_timestamp(kind):
        return bool(kind.unit in {"ms", "us"})
    if types.is_decimal(kind):
        return bool(0 <= kind.scale <= kind.precision <= 38)
    if types.is_nested(kind) and not types.is_union(kind):
        inner = range(kind.num_fields)
        return all(_is_same(kind.field(number).type) for number in inner)
    return bool(kind in _PLAIN or types.is_fixed_size_binary(kind))


_PLAIN: Final = frozenset(
    {
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.date32()),
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view()),
    }
)


# --- the frame ------------------------------------------------------------------


def _frame(
    session: SparkSession,
    schema: StructType,
    files: Sequence[StoredFile],
    topic: str | None,
) -> DataFrame:
    whole: list[StoredFile] = []
    part: list[StoredFile] = []
    for f in files:
        is_whole = f.start == f.base and f.end == f.base + f.rows
        (whole if is_whole else part).append(f)
    frames = [
        _read(session, schema, some, topic, cut=cut)
        for some, cut in ((whole, False), (part, True))
        if some
    ]
    if frames:
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])
    nothing = F.lit(None)
    empty = session.createDataFrame([], schema)
    return _selected(empty, schema, nothing.cast("int"), nothing.cast("long"), topic)


def _read(
    session: SparkSession,
    schema: StructType,
    files: Sequence[StoredFile],
    topic: str | None,
    *,
    cut: bool,
) -> DataFrame:
    values, names = FileValues(session, files), files[0].constants
    stored = [field for field in schema if field.name not in names]
    with unlogged():
        frame = (
            session.read.options(**_OPTIONS)
            .schema(StructType(stored))
            .parquet(*[f"file://{_escaped(file.path)}" for file in files])
        )
    index = F.col("_metadata.row_index")
    if cut:
        frame = frame.where(
            (index >= values.number(lambda file: file.start - file.base))
            & (index < values.number(lambda file: file.end - file.base))
        )
    partition = values.number(lambda file: file.partition).cast("int")
    offset = index + values.number(lambda file: file.base)
    constants = {name: values.constant(name) for name in names}
    return _selected(frame, schema, partition, offset, topic, constants)


def _escaped(path: str) -> str:
    """Escape the characters of Hadoop's patterns."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _selected(
    frame: DataFrame,
    schema: StructType,
    partition: Column,
    offset: Column,
    topic: str | None,
    constants: Mapping[str, Column] = MappingProxyType({}),
) -> DataFrame:
    added: Mapping[str, Column] = {"_partition": partition, "_offset": offset}
    if topic is not None:
        added = {"_topic": F.lit(topic), **added}
    own = {name: constants.get(name, quoted(name)) for name in schema.names}
    # Columns of the topic hide those of the scan.
    columns = {**own, **{name: one for name, one in added.items() if name not in own}}
    return frame.select(*(one.alias(name) for name, one in columns.items()))
