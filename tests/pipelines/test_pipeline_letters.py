"""Bad messages of a pipeline, each once in a stream of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.pipelines.conftest import SINK

from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

LETTERS = '[dead-letters]\nstream = "bad"\n'


class Messages:
    """A topic of undecoded messages, that pipelines read as JSON."""

    def __init__(self, works: Works, name: str = "in") -> None:
        messages = {"stream.file.messages": "true"}
        decoder = {"stream.file.decoder.class.name": "json", "schema": "id bigint"}
        topic = works.topic(name, 1, messages | decoder)
        raw = {"stream.file.decoder.class.name": "raw"}
        others = {k: v for k, v in topic.options.items() if k != "schema"}
        self._options = {**others, **raw}
        self._epoch = 0

    def write(self, *values: bytes) -> None:
        keys = [b"k%d" % at for at in range(len(values))]
        with open_sink(self._options) as sink:
            sink.put(
                pa.table({"value": [*values], "_key": keys}),
                writer_id="test",
                epoch=self._epoch,
            )
        self._epoch += 1


@pytest.fixture
def messages(works: Works) -> Messages:
    return Messages(works)


def letters(works: Works) -> list[dict[str, Any]]:
    found = works.topic("bad").rows()
    return sorted(found, key=lambda row: row["offset"])


@pytest.mark.long("a pipeline with several sinks")
def test_bad_messages_go_around_the_steps(
    spark: SparkSession, works: Works, messages: Messages
) -> None:
    out = works.topic("out")
    works.topic("bad")
    messages.write(b'{"id": 1}', b"{", b'{"id": "x"}', b'{"id": 2}')
    path = works.pipeline(
        '[[steps]]\nid = "all"\nsql = "select *, id + 1 as next from input"\n'
        + SINK
        + LETTERS
    )
    works.succeed(spark, path)
    messages.write(b"}", b'{"id": 3}')
    works.succeed(spark, path)
    works.forget_commit()
    works.succeed(spark, path)
    rows = sorted(out.rows(), key=lambda row: row["id"])
    assert rows == [{"id": n, "next": n + 1} for n in (1, 2, 3)]
    found = letters(works)
    assert [(row["offset"], row["value"], row["key"]) for row in found] == [
        (1, b"{", b"k1"),
        (2, b'{"id": "x"}', b"k2"),
        (4, b"}", b"k0"),
    ]
    assert {row["stream"] for row in found} == {"in"}
    assert {row["decoder"] for row in found} == {"json"}
    assert all(row["error_code"] and row["error_message"] for row in found)


@pytest.mark.long("a stateful query")
def test_bad_messages_travel_beside_a_state(
    spark: SparkSession, works: Works, messages: Messages
) -> None:
    out = works.topic("out")
    works.topic("bad")
    messages.write(b'{"id": 1}', b"{", b'{"id": 2}')
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    path = works.pipeline(
        source + '"metadata.columns" = true\n'
        '[[steps]]\nid = "counts"\n'
        'sql = "select _partition, count(*) as n from input group by _partition"\n'
        + SINK
        + LETTERS,
        output_mode="update",
    )
    first = works.succeed(spark, path)
    assert first.rows == 3
    messages.write(b'{"id": 3}', b"}")
    works.succeed(spark, path)
    assert sorted((row["n"]) for row in out.rows()) == [2, 3]
    assert [row["offset"] for row in letters(works)] == [1, 4]


def test_rows_without_a_decoder_have_no_dead_letters(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in").write(id=[1])
    works.topic("out")
    works.topic("bad")
    with pytest.raises(ConfigError) as caught:
        Pipelines([works.pipeline(SINK + LETTERS)]).run(spark)
    message = str(caught.value)
    assert "decode.on.error" in message or "[dead-letters]" in message
