"""Batches on Spark: names, columns, messages, starts and ends; and what is refused."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.proving.triggers import needs_admission, start_available_now

from streamfactory.spark.definition import configured_by
from streamfactory.spark.failures import reason

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.proving.sessions import Topic

SECRET = "c0ntinental-drift"
SHIM = """
import sys
sys.modules[sys.argv[1]] = None
import pyspark_streamfactory as shim
if hasattr(shim, "DefaultSource"):
    try:
        shim.DefaultSource({})
    except ImportError as error:
        print(shim.DefaultSource.name(), error)
"""
LOOKUP = """
import io, sys
from pyspark.sql.worker.lookup_data_sources import _main
found = io.BytesIO()
_main(io.BytesIO(), found)
sys.stdout.buffer.write(found.getvalue())
"""
"""What PySpark's own search for data sources does in its Python process."""


def loaded(
    spark: SparkSession, topic: Topic, schema: str | None = None, **options: str
) -> DataFrame:
    reader = spark.read.format("streamfactory").options(**{**topic.options, **options})
    return (reader if schema is None else reader.schema(schema)).load()


def refused(call: Callable[[], object]) -> str:
    """What the user reads last: our words, without any of Java's."""
    with pytest.raises(Exception) as caught:
        call()
    words = str(caught.value).rpartition("StreamFactoryError: ")[2]
    assert re.match(r"\[[a-z_]+\] ", words), str(caught.value)
    assert "org.apache" not in words
    assert len(words.splitlines()) < 8
    assert (reason(caught.value) or "").splitlines() == [
        line for line in words.splitlines() if line.strip() and "SQLSTATE" not in line
    ]
    return words


@needs_admission
def test_pyspark_finds_the_source_without_registration() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOKUP],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    count = int.from_bytes(found[:4], "big")
    size = int.from_bytes(found[4:8], "big")
    assert (count, found[8 : 8 + size]) == (1, b"streamfactory")


def test_columns_are_the_stream_s_own_those_asked_for_and_metadata(
    spark: SparkSession, topic: Topic
) -> None:
    topic.put(
        pa.table(
            {"id": [1, 2, 3], "tags": [["a"], None, []], "_partition": [0, 0, 2]},
            schema=pa.schema(
                [
                    pa.field("id", pa.int64(), nullable=False),
                    pa.field("tags", pa.list_(pa.string())),
                    pa.field("_partition", pa.int64()),
                ]
            ),
        )
    )
    with_metadata = {"metadata.columns": "true"}
    frame = loaded(spark, topic, **with_metadata)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,tags:array<string>,_topic:string,_partition:int,_offset:bigint>"
    )
    assert not frame.schema["id"].nullable
    rows = sorted(frame.collect())
    assert [(r.id, r._partition, r._offset) for r in rows] == [
        (1, 0, 0),
        (2, 0, 1),
        (3, 2, 0),
    ]
    # Fewer columns, in another order, are read alone; nulls are Spark's to allow.
    some = loaded(spark, topic, "_offset bigint, id bigint", **with_metadata)
    assert sorted(some.collect()) == [(0, 1), (0, 3), (1, 2)]
    no_such = "id bigint, name string"
    assert "the stream has no column 'name', which the query reads; it has id, " in (
        refused(loaded(spark, topic, no_such).count)
    )
    metadata = refused(loaded(spark, topic, "id bigint, _offset bigint").count)
    assert "metadata.columns=true adds _topic, _partition, _offset" in metadata
    assert "column 'id' has the type bigint in the stream and string in the query" in (
        refused(loaded(spark, topic, "id string").count)
    )


def test_a_failed_task_names_column_and_place(
    spark: SparkSession, topic: Topic
) -> None:
    times = pa.array([1_000, 2_001], pa.timestamp("ns"))
    topic.put(pa.table({"at": times, "_partition": [1, 1]}))
    message = refused(loaded(spark, topic).collect)
    assert "[schema_mismatch] column 'at' is timestamp[ns]" in message
    assert "partition clicks-1, offset 0" in message
    assert reason(ValueError("something else")) is None


def test_a_batch_begins_and_ends_by_option(
    spark: SparkSession, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    topic.write(id=[*range(10, 16)], _partition=[1] * 6)

    def offsets(zero: int, one: int, two: int) -> str:
        return json.dumps({"clicks": {"0": zero, "1": one, "2": two}})

    span = {"startingOffsets": offsets(3, -2, 0), "endingOffsets": offsets(5, -1, 0)}
    frame = loaded(spark, topic, **span, minPartitions="4", MAXRECORDSPERPARTITION="2")
    assert sorted(row.id for row in frame.collect()) == [3, 4, *range(10, 16)]
    assert frame.rdd.getNumPartitions() == 4
    for options, message in (
        (
            {"endingOffsets": offsets(11, 6, 0)},
            "ends at 11, beyond the latest offset 10",
        ),
        ({"endingOffsets": offsets(-2, 6, 0)}, "ends at earliest has no rows"),
        ({"startingOffsets": "latest"}, "starts at latest has no rows"),
        ({"startingOffsets": '{"clicks": {"0": 1}}'}, "lacks clicks-1"),
        (
            {"startingOffsets": offsets(9, 0, 0), "endingOffsets": offsets(8, 6, 0)},
            "ends at 8, before its start 9",
        ),
    ):
        assert message in refused(loaded(spark, topic, **options).count), message
    assert caplog.text == ""


def test_streams_have_names_in_a_catalogue(
    spark: SparkSession, topic: Topic, catalogue: Path
) -> None:
    topic.write(id=[1, 2])
    lines = [f'"{key}" = "{value}"' for key, value in topic.options.items()]
    text = "\n".join(["[properties]", *lines])
    (catalogue / "named.toml").write_text(text, encoding="utf-8")
    reader = spark.read.format("streamfactory")
    assert reader.load("named").count() == 2
    by_option = spark.read.format("streamfactory").option("stream", "named")
    assert by_option.option("metadata.columns", "true").load().columns[-1] == "_offset"
    assert "the options name two streams: 'named' and 'other'" in refused(
        lambda: by_option.load("other")
    )
    assert "did you mean 'named'?" in refused(
        lambda: spark.read.format("streamfactory").load("nmed")
    )


def test_messages_are_decoded_with_their_envelope_columns(
    spark: SparkSession, topic: Topic
) -> None:
    raw = {"stream.file.decoder.class.name": "raw"}
    messages = topic.another("bytes", **{"stream.file.messages": "true"}, **raw)
    messages.put(pa.table({"value": [b"v", None], "_key": [b"k", b"l"]}))
    frame = loaded(spark, messages)
    rows = frame.select("key", "value", "offset").collect()
    assert [(bytes(r.key), r.value and bytes(r.value)) for r in sorted(rows)] == [
        (b"k", b"v"),
        (b"l", None),
    ]
    del messages.options["stream.file.decoder.class.name"]
    missing = refused(lambda: loaded(spark, messages))
    assert "this stream has undecoded messages, but no decoder is configured" in missing
    assert (
        "set stream.file.decoder.class.name; use raw to read them undecoded" in missing
    )


def test_a_stream_that_tasks_cannot_share_is_refused_with_the_way_round(
    spark: SparkSession,
) -> None:
    reader = spark.read.format("streamfactory").option("streamType", "memory")
    reader = reader.option("stream.memory.topic.name", "t").schema("id bigint")
    message = refused(reader.load().count)
    assert "[unsupported]" in message
    assert "not shared between processes" in message
    assert "`streamfactory copy` it into a stream of type file" in message


def test_no_secret_leaves_the_process_that_uses_it(
    spark: SparkSession,
    topic: Topic,
    tmp_path: Path,
    spark_log: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic.write(id=[1, 2])
    key = "stream.file.storage.secret.key"
    literal = refused(lambda: loaded(spark, topic, **{key: SECRET}))
    assert SECRET not in literal
    by_reference = {key: "${env:STREAMFACTORY_TEST_SECRET}"}
    spark.sparkContext.setLogLevel("INFO")
    try:
        frame = loaded(spark, topic, **by_reference)
        assert frame.count() == 2
        query = start_available_now(
            spark.readStream.format("streamfactory")
            .options(**topic.options, **by_reference, startingOffsets="earliest")
            .load()
            .writeStream.format("streamfactory")
            .options(**topic.another().options, **by_reference)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        assert query.awaitTermination(400)
        message = refused(loaded(spark, topic, "id string", **by_reference).count)
    finally:
        spark.sparkContext.setLogLevel("OFF")
    frame.explain("extended")
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    logged = spark_log.read_text(encoding="utf-8")
    assert "Streaming query made progress" in logged
    for text in (capsys.readouterr().out, logged, message, str(query.lastProgress)):
        assert "streamfactory" in text or "clicks" in text
        assert SECRET not in text
    assert b'"clicks"' in kept
    assert SECRET.encode() not in kept
    pickled = pickle.dumps(configured_by({**topic.options, **by_reference})[0].config)
    assert b"STREAMFACTORY_TEST_SECRET" in pickled
    assert SECRET.encode() not in pickled


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("streamfactory.spark.source", "streamfactory cannot be used: "),
        ("pyspark.sql.datasource", ""),
    ],
)
def test_a_broken_install_stops_no_session_and_is_reported_on_use(
    broken: str, message: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SHIM, broken],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert message in ran.stdout
    assert bool(ran.stdout) is bool(message)
