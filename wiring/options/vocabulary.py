"""The framework options, which have no prefix and mean the same for every stream.

They have the names of Spark's Kafka source if it has such an option.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    LIST,
    NUMBER,
    PATH,
    PERIOD,
    SIZE,
    Option,
    choice,
)
from streamfactory.wiring.options.masks import MASKS
from streamfactory.wiring.options.shared import READ
from streamfactory.wiring.options.spool import SPOOL_OPTIONS
from streamfactory.wiring.options.types import (
    ASSIGNMENT,
    GUARANTEE,
    INSTANCE,
    OFFSETS,
    OUT_OF_RANGE,
    PATTERN,
    PLUGIN,
    SCHEMA,
    TIMESTAMPS,
    TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITE: Final = frozenset({"write", "spark"})
SPARK: Final = frozenset({"spark"})


AUDIT: Final = Option(
    "audit.record",
    "Whether this stream is the record of who changed what in its catalogue: commands "
    "that change a topic, a position or a job write it, and so do the pages.",
    BOOLEAN,
    default="false",
)

MASK_COLUMNS: Final = Option(
    "mask.columns",
    "What users of the pages without the right values see of rows: columns, and paths "
    "within them, that are hidden, hashed by mask.key, or cut to some characters. "
    "Without it they see no rows.",
    MASKS,
    example="email=hash, card.number=hide, phone=cut:4",
)
MASK_KEY: Final = Option(
    "mask.key",
    "Key of the hashes of mask.columns, at least 16 characters: equal values have "
    "equal hashes in all streams with the same key.",
    secret=True,
    example="${env:MASK_KEY}",
)

_FRAMEWORK: Final = (
    Option(
        "streamType",
        "The stream type, which is the <type> of every stream.<type>.* key.",
        PLUGIN,
        aliases=("stream.type",),
        required=True,
        example="memory",
    ),
    # where to start and end
    Option(
        "startingOffsets",
        "Where a new reader starts: earliest, latest, or offsets by topic and "
        "partition as JSON, where -2 is earliest and -1 latest.",
        OFFSETS,
        applies=READ,
        example="earliest",
    ),
    Option(
        "startingTimestamp",
        "Start at the first message at or after this time, in milliseconds.",
        INTEGER,
        minimum=0,
        applies=READ,
    ),
    Option(
        "startingOffsetsByTimestamp",
        "The same by topic and partition, as JSON.",
        TIMESTAMPS,
        applies=READ,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "If no message is that late: fail, or start at latest.",
        choice("error", "latest"),
        default="error",
        applies=READ,
    ),
    Option("endingOffsets", "Where a batch ends, exclusive.", OFFSETS, applies=READ),
    Option(
        "endingTimestamp",
        "End a batch before the first message at or after this time.",
        INTEGER,
        minimum=0,
        applies=READ,
    ),
    Option(
        "endingOffsetsByTimestamp",
        "The same by topic and partition, as JSON.",
        TIMESTAMPS,
        applies=READ,
    ),
    # what to read
    Option("subscribe", "Topics to read, instead of topic.name.", TOPICS, applies=READ),
    Option(
        "subscribePattern",
        "Topics to read, as a regular expression of RE2 over whole names.",
        PATTERN,
        applies=READ,
    ),
    Option(
        "assign",
        'Partitions to read, as JSON such as {"topic": [0, 1]}.',
        ASSIGNMENT,
        applies=READ,
    ),
    Option(
        "schema",
        "Declared schema, if the source has none, as Spark DDL.",
        SCHEMA,
        example="id bigint not null, name string",
    ),
    Option(
        "metadata.columns",
        "Add _topic, _partition, _offset and, if the source has them, _timestamp and "
        "_key.",
        BOOLEAN,
        default="false",
        applies=READ,
    ),
    Option(
        "includeHeaders",
        "Add _headers to the metadata columns.",
        BOOLEAN,
        default="false",
        applies=READ,
    ),
    Option(
        "includeTombstones",
        "Add _tombstone to the metadata columns: whether a message has no value, as "
        "the deletion of its key in a compacted topic.",
        BOOLEAN,
        default="false",
        applies=READ,
    ),
    Option(
        "metadata.refresh.millis",
        "How often a reader that follows looks for new partitions.",
        PERIOD,
        default="30000",
        minimum=1,
        applies=READ,
    ),
    # guarantees and failures
    Option(
        "out.of.range",
        "If a start is out of range: fail, or continue at earliest or latest with a "
        "loss "
        "record. failOnDataLoss=true and =false are fail and earliest.",
        OUT_OF_RANGE,
        default="fail",
        aliases=("failOnDataLoss",),
        applies=READ,
    ),
    Option(
        "guarantee",
        "The required delivery guarantee: a weaker one is refused.",
        GUARANTEE,
        example="exactly-once",
    ),
    Option(
        "retry.max.attempts",
        "Attempts at an operation that fails with a transient error. Unless it is "
        "given, failures to connect are retried for connection.timeout.millis.",
        INTEGER,
        default="5",
        minimum=1,
        maximum=1000,
    ),
    Option(
        "retry.initial.millis",
        "Maximum first pause between attempts; doubles, with full jitter.",
        PERIOD,
        default="100",
        minimum=1,
    ),
    Option(
        "retry.max.millis",
        "Maximum pause between attempts.",
        PERIOD,
        default="10000",
        minimum=1,
    ),
    Option(
        "decode.on.error",
        "How bad messages are handled: fail, skip, null (a row of nulls) or "
        "dead-letter: "
        "copy and groups write them to dead.letter.stream, elsewhere they are rows of "
        "nulls with `_error` and `_raw`.",
        choice("fail", "skip", "null", "dead-letter"),
        default="fail",
        applies=READ,
    ),
    Option(
        "dead.letter.stream",
        "Name of the stream for dead letters, which commits them with their range.",
        applies=READ,
        example="bad_clicks",
    ),
    Option(
        "max.errors",
        "Bad messages that a range may have before reading fails, unless the first "
        "one fails: a round of `copy`, what a Spark task reads, else all of a "
        "partition.",
        INTEGER,
        minimum=0,
        applies=READ,
    ),
    Option(
        "max.error.ratio",
        "The same as a share of the range's messages, once 1000 were read.",
        NUMBER,
        minimum=0,
        maximum=1,
        applies=READ,
    ),
    Option(
        "schema.contract",
        "What becomes of fields and values that do not fit the declared schema: "
        "`freeze` refuses the message, `evolve` takes columns that the decoder's "
        "schema has when the stream is opened and leaves out other fields, "
        "`discard_row` drops the row, `discard_value` the field or the value. Without "
        "it, values are as under `freeze`, and fields that only messages have are "
        "left out. For a stream of typed rows, as of a table, it applies to rows whose "
        "columns are not those of when the stream was opened; without it, as under "
        "`freeze`, they are an error. Where rows are written to a topic of typed rows, "
        "`evolve` adds the columns that a table lacks, and widens types; `discard_row` "
        "and `discard_value` drop rows, or columns and values, that do not fit; other "
        "sinks refuse them.",
        choice("evolve", "freeze", "discard_row", "discard_value"),
    ),
    Option(
        "payload.compression",
        "Compression of each message's value; auto detects gzip, zstd and lz4 by the "
        "first bytes.",
        choice("none", "gzip", "zstd", "lz4", "snappy", "auto"),
        default="none",
        applies=READ,
    ),
    Option(
        "payload.max.bytes",
        "Maximum bytes of one decompressed value; a larger one is a bad message.",
        SIZE,
        default="64M",
        minimum=1,
        applies=READ,
    ),
    # stream level
    Option("group.id", "Name of the group of stream-level readers.", applies=READ),
    Option(
        "group.instance",
        "Index of this reader and number of readers of the group, as 0/3.",
        INSTANCE,
        default="0/1",
        applies=READ,
    ),
    Option(
        "checkpoint.location",
        "Folder of the group's checkpoints; if not set, the stream stores them itself, "
        "if it can.",
        PATH,
        applies=READ,
    ),
    # writing
    Option("writer.id", "Identifies the writer across restarts.", applies=SPARK),
    Option("epoch", "Epoch of a batch write.", INTEGER, minimum=0, applies=SPARK),
    Option(
        "epoch.mismatch",
        "If a repeated epoch has another number of rows: warn and count, or fail. With "
        "fail its content is compared as well, which costs time on every write.",
        choice("warn", "fail"),
        default="warn",
        applies=WRITE,
    ),
    Option(
        "epoch.adopt",
        "Accept this epoch as new although the record of its predecessor was removed.",
        INTEGER,
        minimum=0,
        applies=WRITE,
    ),
    Option(
        "writer.memory.millis",
        "How long an idle writer is remembered.",
        PERIOD,
        default="30d",
        applies=WRITE,
        former=("writer.memory",),
    ),
    Option(
        "producer.key.columns",
        "Columns whose values determine the partition, if there is no _key. Rows of "
        "tables (delta, iceberg) are inserted, updated and deleted by them.",
        LIST,
        applies=WRITE,
    ),
    Option(
        "producer.change.column",
        "Column with the kind of each change (insert, update_before, update_after, "
        "delete), for streams of messages: a delete becomes a tombstone of its key, "
        "update_before is not written, and the column itself neither.",
        applies=WRITE,
        example="_change",
    ),
    Option(
        "batch.rows",
        "Maximum rows of a batch.",
        INTEGER,
        default="65536",
        minimum=1,
    ),
    Option(
        "batch.bytes",
        "Maximum bytes of a batch; a larger message is a batch of its own.",
        SIZE,
        default="8M",
        minimum=1,
    ),
    Option(
        "max.rows.per.second",
        "Maximum rows that a reader, a copy or a Spark query, where it is offsets, "
        "reads per second.",
        INTEGER,
        minimum=1,
        applies=READ,
    ),
    Option(
        "max.bytes.per.second",
        "The same in bytes; not on Spark.",
        SIZE,
        minimum=1,
        applies=frozenset({"read"}),
    ),
    Option(
        "fresh.within.millis",
        "How old the next message of a partition may be when `copy --follow` reads it. "
        "A partition that is later continues where messages are half as old; "
        "`streamfactory backfill` reads the ones between. 0: none is skipped.",
        PERIOD,
        minimum=0,
        applies=frozenset({"read"}),
        example="10m",
    ),
    Option(
        "fresh.within.rows",
        "The same in messages behind the latest.",
        INTEGER,
        minimum=1,
        applies=frozenset({"read"}),
    ),
    Option(
        "fresh.max.ranges",
        "Maximum number of ranges that were skipped and that no backfill has read yet; "
        "then nothing is skipped, and the lag grows.",
        INTEGER,
        default="100",
        minimum=1,
        maximum=1000,
        applies=frozenset({"read"}),
    ),
    # Pinot's thresholds
    Option(
        "realtime.segment.flush.threshold.rows",
        "End an epoch of publish or copy after so many rows.",
        INTEGER,
        minimum=0,
        aliases=(
            "realtime.segment.flush.threshold.size",
            "realtime.segment.flush.threshold.size.llc",
        ),
        applies=WRITE,
    ),
    Option(
        "realtime.segment.flush.threshold.segment.rows",
        "The same; in Pinot, rows per segment rather than per server.",
        INTEGER,
        minimum=0,
        applies=WRITE,
    ),
    Option(
        "realtime.segment.flush.threshold.time",
        "End an epoch of publish or copy after so long.",
        PERIOD,
        minimum=1,
        aliases=("realtime.segment.flush.threshold.time.llc",),
        applies=WRITE,
    ),
    Option(
        "realtime.segment.flush.threshold.segment.size",
        "End an epoch of publish or copy at about this size.",
        SIZE,
        minimum=0,
        aliases=("realtime.segment.flush.desired.size",),
        applies=WRITE,
    ),
    # Spark
    Option(
        "maxOffsetsPerTrigger",
        "Maximum offsets of one trigger, shared in proportion to the backlog.",
        INTEGER,
        minimum=1,
        applies=SPARK,
    ),
    Option(
        "minOffsetsPerTrigger",
        "Wait until so many offsets are available.",
        INTEGER,
        minimum=1,
        applies=SPARK,
    ),
    Option(
        "maxTriggerDelay",
        "With minOffsetsPerTrigger: maximum wait.",
        PERIOD,
        default="15m",
        applies=SPARK,
    ),
    Option(
        "minPartitions",
        "Split ranges into about so many tasks.",
        INTEGER,
        minimum=1,
        applies=SPARK,
    ),
    Option(
        "maxRecordsPerPartition",
        "Maximum offsets of a task: longer ranges are split.",
        INTEGER,
        minimum=1,
        applies=SPARK,
    ),
    Option(
        "progress.group",
        "Group to which a query on Spark, or `copy`, commits its position after each "
        "batch, for tools that show lag, where the stream type has groups; nothing is "
        "read back from it.",
        applies=READ,
    ),
    AUDIT,
    MASK_COLUMNS,
    MASK_KEY,
    # spool
    *SPOOL_OPTIONS,
)

FRAMEWORK_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {option.key: option for option in _FRAMEWORK}
)
