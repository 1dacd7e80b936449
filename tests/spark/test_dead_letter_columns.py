"""The columns of dead letters, made by Spark and made by us."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.conversion.conform import conform
from streamfactory.spark.deadletters import dead_letter_expressions
from streamfactory.spark.types import arrow_schema, spark_schema
from streamfactory.spi import headers_type
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.decoding.deadletters import (
    DEAD_LETTER_SCHEMA,
    EVIDENCE,
    Origin,
    split_rows,
)
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("word", pa.string()),
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("_key", pa.binary()),
        pa.field("_headers", headers_type()),
        *EVIDENCE,
    ]
)


KEYS = [b"a", b"b", b"c"]


def create(properties: dict[str, str]) -> None:
    """Make a topic of messages."""
    raw = from_mapping(properties | {"stream.file.decoder.class.name": "raw"})
    configured = configure(raw, default_manager(), use="write")
    assert configured.backend.topic_admin is not None
    with closing(configured.backend.topic_admin(configured.config)) as admin:
        admin.create("clicks", None, 1)


def test_dead_letters_are_equal_for_all_producers(spark: SparkSession) -> None:
    place = {"_topic": "it's", "_partition": 3}
    given = [
        {"word": "a", **place, "_offset": 0},
        {
            "_offset": 1,
            "_key": b"k",
            "_timestamp": 1_700_000_000_000_000,
            "_headers": [{"key": "h", "value": None}],
            "_error": {"code": "malformed", "message": "no word"},
            "_raw": b"\x00!",
            **place,
        },
    ]
    rows = pa.RecordBatch.from_pylist(given, schema=SCHEMA)
    for schema in (SCHEMA, pa.schema(list(SCHEMA)[:4] + list(SCHEMA)[-2:])):
        origin = Origin("it's\\mine", "words", None)
        some = rows.select(schema.names)
        good, ours = split_rows(some, origin)
        assert good.num_rows == 1
        frame = spark.createDataFrame(
            pa.Table.from_batches([some]), spark_schema(schema)
        )
        bad = frame.where("_error IS NOT NULL")
        table = bad.selectExpr(*dead_letter_expressions(schema, origin)).toArrow()
        (theirs,) = table.combine_chunks().to_batches()
        theirs = conform(theirs, DEAD_LETTER_SCHEMA)
        assert len(theirs.column("failed_at")[0].as_py()) == 27
        for letters in (ours, theirs):
            assert letters.column("failed_at")[0].as_py().endswith("Z")
        names = [name for name in DEAD_LETTER_SCHEMA.names if name != "failed_at"]
        assert theirs.select(names).to_pylist() == ours.select(names).to_pylist()


def test_bad_messages_leave_as_rows_with_evidence(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "clicks",
        "stream.file.fsync": "never",
    }
    create(properties)
    with open_sink(properties | {"stream.file.decoder.class.name": "raw"}) as sink:
        sink.put(pa.table({"value": [b'{"id":1}', b"{", b'{"id":3}'], "_key": KEYS}))
    frame = (
        spark.read.format("streamfactory")
        .options(**properties)
        .option("stream.file.decoder.class.name", "json")
        .option("schema", "id bigint")
        .option("decode.on.error", "dead-letter")
        .option("metadata.columns", "true")
        .load()
    )
    types = dict(frame.dtypes)
    assert types["_error"] == "struct<code:string,message:string>"
    assert types["_raw"] == "binary"
    good = frame.where("_error IS NULL").orderBy("_offset").collect()
    assert [(row.id, row._raw) for row in good] == [(1, None), (3, None)]
    source = arrow_schema(frame.schema)
    letters = frame.where("_error IS NOT NULL").selectExpr(
        *dead_letter_expressions(source, Origin("clicks", "json", "1"))
    )
    (letter,) = letters.collect()
    assert (letter.value, letter.key, letter.offset) == (b"{", b"b", 1)
    assert (letter.error_code, letter.stream) == ("malformed", "clicks")
