"""Lookups of pipelines: tables that steps read beside streams.

A lookup is read as a whole, and cached: each batch between two readings uses the same
rows, whatever happens to the files meanwhile.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from streamfactory.spark.arrangement import Arrangement
from streamfactory.spark.failures import reason, words_of
from streamfactory.spark.fanout import FORMAT
from streamfactory.spark.pipelines.deadletters import declared_inflow
from streamfactory.spark.types import spark_schema
from streamfactory.spi import PermanentError, StreamError
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.spi.producer import TOMBSTONE
from streamfactory.spi.references import resolve, values_to_mask
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.decoding.row_schema import ENVELOPE_FIELDS, METADATA_FIELDS
from streamfactory.wiring.receiving.embedded import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Lookup
    from streamfactory.wiring.config.definition import StreamDefinition

_METADATA: Final = {"metadata.columns": "true"}
_CHANGE: Final = "_change"
"""Column of tables with changes: insert, update_before, update_after or delete."""
_ADDED: Final = (
    *(field.name for field in (*METADATA_FIELDS, *ENVELOPE_FIELDS)),
    "_headers",
    TOMBSTONE,
)
"""Metadata columns, which users did not ask for."""
_ORDER: Final = "__order"
_DATED: Final = 1000
"""Most files whose times are read."""
_CONNECTOR: Final = "name its package in [spark], as jars.packages, or give --spark"
_MASKED: Final = "***"
_CONDITION: Final = re.compile(r"\[([A-Z_.0-9]+)\]")
"""Spark's name of an error, before its message."""


class LookupFailed(PermanentError):
    """The table of a pipeline's lookup could not be read, or its columns changed."""

    code = "lookup_failed"


@dataclass(frozen=True, slots=True)
class LookupState:
    """What was read of a lookup: the rows that a batch used."""

    read: str
    """When, in UTC."""
    rows: int
    of: Mapping[str, Any]
    """Offsets of a stream; number, bytes and newest change of files; the version of a
    Delta table."""

    def plain(self) -> dict[str, Any]:
        """As values for JSON."""
        return {"read": self.read, "rows": self.rows, **self.of}


def schema_of(spark: SparkSession, lookup: Lookup) -> StructType:
    """The columns of a lookup. Reads rows only where the connector infers columns.

    Raises:
        LookupFailed: permanent; the table cannot be read.
        StreamError: Errors of the stream.
    """
    return _frame(spark, lookup, {}).schema


def declared_columns(spark: SparkSession, lookup: Lookup) -> StructType | None:
    """The same; None for a stream whose configuration declares no schema.

    Connects to no stream.
    """
    if lookup.stream is None:
        return schema_of(spark, lookup)
    inflow = declared_inflow(lookup.stream)
    return None if inflow is None else inflow.schema


@final
class Lookups:
    """The lookups of one pipeline while it runs. One thread uses it.

    Args:
        lookups: Those that steps read.
        schemas: Their columns as they were analysed.
        clock: Monotonic seconds; another one in tests.
    """

    def __init__(
        self,
        lookups: Sequence[Lookup],
        schemas: Mapping[str, StructType],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lookups = tuple(lookups)
        self._schemas = schemas
        self._clock = clock
        self._frames: dict[str, DataFrame] = {}
        self._states: dict[str, LookupState] = {}
        self._due: dict[str, float] = {}

    @property
    def refreshed(self) -> frozenset[str]:
        """Ids of lookups that are read again while the pipeline runs."""
        return frozenset(one.id for one in self._lookups if not one.refresh.once)

    @property
    def states(self) -> dict[str, LookupState]:
        """What was read last, by id."""
        return dict(self._states)

    def open(self, session: SparkSession) -> None:
        """Read the lookups that are read once, as views of the session.

        The second call reads nothing.

        Raises:
            LookupFailed: permanent; a table cannot be read.
            StreamError: Errors of a stream.
        """
        for lookup in self._lookups:
            if lookup.refresh.once and lookup.id not in self._frames:
                self._read(session, lookup)

    def refresh(self, session: SparkSession) -> None:
        """Read what is due before a batch, as views of the batch's session.

        Raises:
            LookupFailed: permanent; a table cannot be read, or its columns changed.
            StreamError: Errors of a stream.
        """
        now = self._clock()
        for lookup in self._lookups:
            if lookup.refresh.once:
                continue
            if lookup.id not in self._due or now >= self._due[lookup.id]:
                self._read(session, lookup)
                self._due[lookup.id] = now + (lookup.refresh.millis or 0) / 1000

    def close(self) -> None:
        """Free the cached rows."""
        while self._frames:
            self._frames.popitem()[1].unpersist()

    def _read(self, session: SparkSession, lookup: Lookup) -> None:
        read = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            ends = self._ends(lookup)
            frame = _frame(session, lookup, ends)
            self._check(lookup, frame.schema)
            of = _facts(frame, lookup) if lookup.stream is None else {"offsets": ends}
            # Spark takes equal plans for one: it would use the rows of before, or those
            # of another pipeline.
            frame = frame.where(F.lit(uuid4().hex).isNotNull()).persist()
            try:
                rows = frame.count()
            except BaseException:
                frame.unpersist()
                raise
        except (PySparkException, Py4JJavaError) as error:
            raise _failed(lookup, error) from error
        frame.createOrReplaceTempView(lookup.id)
        before = self._frames.get(lookup.id)
        self._frames[lookup.id] = frame
        self._states[lookup.id] = LookupState(read, rows, of)
        if before is not None:
            before.unpersist()

    def _check(self, lookup: Lookup, found: StructType) -> None:
        """Refuse columns other than those that the steps were analysed with."""
        wanted = self._schemas[lookup.id]
        columns = [[(f.name, f.dataType) for f in one] for one in (wanted, found)]
        if columns[0] != columns[1]:
            msg = f"lookup {lookup.id!r} has other columns than before: "
            msg += f"{found.simpleString()}, was {wanted.simpleString()}"
            remedy = "run the pipeline again, or declare the columns with schema"
            raise LookupFailed(msg, remedy=remedy)

    def _ends(self, lookup: Lookup) -> dict[str, dict[str, int]]:
        """The latest offsets of a stream, which bound its reading."""
        found: dict[str, dict[str, int]] = {}
        if lookup.stream is None:
            return found
        source = open_source(load(lookup.stream, "spark"), aside=False)
        try:
            for info in source.metadata.partitions():
                if info.latest is not None:
                    by_id = found.setdefault(info.partition.topic, {})
                    by_id[str(info.partition.id)] = info.latest
        finally:
            source.close()
        return found


def _frame(
    session: SparkSession, lookup: Lookup, ends: dict[str, dict[str, int]]
) -> DataFrame:
    """The rows of a lookup.

    Args:
        session: Its session.
        lookup: The lookup.
        ends: The offsets up to which a stream is read.
    """
    try:
        if lookup.stream is not None:
            return _latest(session, lookup.stream, lookup.key, ends)
        options = {key: resolve(text) for key, text in lookup.options.items()}
        reader = session.read.format(lookup.format).options(**options)
        if lookup.schema is not None:
            reader = reader.schema(spark_schema(parse_schema(lookup.schema)))
        return reader.load() if lookup.path is None else reader.load(lookup.path)
    except (PySparkException, Py4JJavaError) as error:
        raise _failed(lookup, error) from error


def _failed(lookup: Lookup, error: Exception) -> StreamError:
    """Why a lookup could not be read, without the secrets of its options."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java.toString())
    ours = reason(error)
    what = ours or words_of(Exception(text))
    # Longest first: one of them may be part of another.
    secrets = {s for text in lookup.options.values() for s in values_to_mask(text)}
    for secret in sorted(secrets, key=len, reverse=True):
        what = what.replace(secret, _MASKED)
    place = lookup.format if lookup.path is None else lookup.path
    if lookup.stream is not None:
        place = f"stream {lookup.stream.name}"
    found = _CONDITION.match(text)
    condition = "" if found is None else found[1]
    remedy: str | None = (
        "correct the path and the options of the lookup, or create the table"
    )
    if ours is not None:
        remedy = None  # it has its own
    elif condition.startswith("PATH_NOT_FOUND"):
        remedy = "create the table, or correct path: it is relative to the folder "
        remedy += "where the command runs"
    elif condition == "DATA_SOURCE_NOT_FOUND" or "No suitable driver" in what:
        remedy = _CONNECTOR
    elif condition.startswith("UNABLE_TO_INFER_SCHEMA"):
        remedy = 'write rows to the table, or declare schema = "id bigint, ..."'
    elif lookup.key and condition.startswith("UNRESOLVED_COLUMN"):
        remedy = "name columns of the stream in key"
    return LookupFailed(f"lookup {lookup.id!r} of {place}: {what}", remedy=remedy)


def _latest(
    session: SparkSession,
    stream: StreamDefinition,
    key: Sequence[str],
    ends: dict[str, dict[str, int]],
) -> DataFrame:
    """The latest row of each key of a stream.

    That is the row with the greatest timestamp, if the stream has timestamps, and then
    the greatest offset. Keys whose latest row deletes them are left out.
    """
    shown = load(stream, "spark").config["metadata.columns"]
    bounds = {"endingOffsets": json.dumps(ends)} if ends else {}
    definition = stream.with_overrides({**_METADATA, **bounds})
    options = Arrangement(definition).to_options()
    rows = session.read.format(FORMAT).options(**options).load()
    names = set(rows.columns)
    if _CHANGE in names:
        rows = rows.where(F.col(_CHANGE) != "update_before")
    order = [F.col(name) for name in ("_timestamp", "_offset") if name in names]
    # Rows of one message share its offset, and are in the order of the message.
    rows = rows.withColumn(_ORDER, F.struct(*order, F.monotonically_increasing_id()))
    latest = F.max_by(F.struct(*map(_quoted, rows.columns[:-1])), F.col(_ORDER))
    rows = rows.groupBy(*map(_quoted, key)).agg(latest.alias(_ORDER))
    rows = rows.select(f"{_ORDER}.*")
    if _CHANGE in names:
        rows = rows.where(F.col(_CHANGE) != "delete")
    if TOMBSTONE in names:
        rows = rows.where(~F.col(TOMBSTONE))
    return rows if shown else rows.drop(*_ADDED)


def _quoted(name: str) -> Any:
    return F.col("`{}`".format(name.replace("`", "``")))


def _facts(rows: DataFrame, lookup: Lookup) -> dict[str, Any]:
    """What is known of the state that was read."""
    if lookup.format == "delta" and lookup.path is not None:
        spark = rows.sparkSession
        place = lookup.path.replace("`", "``")
        last = spark.sql(f"describe history delta.`{place}` limit 1").first()
        return {} if last is None else {"version": last["version"]}
    files = rows.inputFiles()
    if not files:
        return {}
    facts: dict[str, Any] = {"files": len(files)}
    if len(files) <= _DATED:
        facts["newest"] = _newest(rows.sparkSession, files)
    return facts


def _newest(session: SparkSession, files: Sequence[str]) -> str:
    """When the newest of files was changed, in UTC."""
    jvm: Any = session._jvm
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    millis = 0
    for name in files:
        path = jvm.org.apache.hadoop.fs.Path(name)
        status = path.getFileSystem(hadoop).getFileStatus(path)
        millis = max(millis, status.getModificationTime())
    moment = datetime.fromtimestamp(millis / 1000, UTC)
    return moment.isoformat(timespec="milliseconds")
