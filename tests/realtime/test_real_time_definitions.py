"""Files of pipelines with trigger = "real-time": what they may have, and options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.cli.validating import _read_sql
from streamfactory.spark.checkpoints import Place, read_query
from streamfactory.spark.checkpoints.begins import save_begin
from streamfactory.spark.checkpoints.pipeline import Engine
from streamfactory.spark.pipelines.checking import check_draft, pipeline_verdict
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.options import TRIGGER
from streamfactory.spark.realtime import starting
from streamfactory.spark.realtime.clients import client_options
from streamfactory.spi import Guarantee, Partition, Position, PositionRefused
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.model import Draft
    from streamfactory.spi import StreamConfig

KAFKA = {
    "streamType": "kafka",
    "stream.kafka.broker.list": "localhost:1",
    "stream.kafka.decoder.class.name": "json",
}
WHOLE = """
[source]
stream = "in"
[[steps]]
id = "s"
sql = "select * from input"
[[sinks]]
stream = "out"
"""
CONSUMER = "stream.kafka.consumer.prop."


@pytest.fixture
def drafted(tmp_path: Path) -> Callable[..., Draft]:
    """Reads a pipeline over streams whose properties are given."""

    def draft(text: str = WHOLE, top: str = "", **streams: dict[str, str]) -> Draft:
        folder = tmp_path / "configs" / "streams"
        folder.mkdir(parents=True, exist_ok=True)
        found = {"in": {"schema": "a bigint"}, "out": {}, **streams}
        for name, more in found.items():
            body = {**KAFKA, "stream.kafka.topic.name": name, **more}
            if more.get("streamType") == "file":
                body = more
            given = {key: value for key, value in body.items() if value}
            document = {"name": name, "properties": given}
            (folder / f"{name}.json").write_text(json.dumps(document))
        path = tmp_path / "p.toml"
        path.write_text(f'trigger = "real-time"\ncheckpoint = "c"\n{top}\n{text}')
        return read_pipeline(path, Catalogue(folder).snapshot())

    return draft


def errors_of(draft: Draft) -> list[str]:
    return [str(one) for one in check_draft(draft) if one.level == "error"]


def test_a_pipeline_from_kafka_to_kafka_is_at_least_once(
    drafted: Callable[..., Draft],
) -> None:
    draft = drafted()
    assert errors_of(draft) == []
    assert draft.pipeline is not None
    trigger = draft.pipeline.trigger
    assert (trigger.real_time, trigger.millis) == (True, 20_000)
    verdict = pipeline_verdict(draft.pipeline)
    assert verdict.guarantee is Guarantee.AT_LEAST_ONCE
    assert "in real time rows are written before" in str(verdict)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("real-time 2s", "take at least 5s"),
        ("real-time soon", "has no period such as 20s"),
        ("realtime", "is none of available-now, back-to-back, a period"),
    ],
)
def test_the_length_of_a_batch_is_checked(text: str, said: str) -> None:
    assert TRIGGER.parse("real-time 1m").millis == 60_000
    with pytest.raises(ValueError, match=said):
        TRIGGER.parse(text)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"text": WHOLE + '[[sinks]]\nstream = "in"\nname = "b"\n'}, "writes one sink"),
        ({"text": WHOLE + '[dead-letters]\nstream = "out"\n'}, "dead letters would be"),
        (
            {"text": WHOLE + '[[tables]]\nname="t"\nformat="delta"\npath="x"\n'},
            "writes no table",
        ),
        ({"top": '"output.mode" = "complete"'}, "complete requires state"),
        ({"top": 'engine = "datafusion"'}, "real-time has no effect with datafusion"),
        (
            {"text": WHOLE.replace("input", 'input"\n"distinct.by" = "a')},
            "has no state before PySpark 4.3",
        ),
        (
            {"in": {"schema": "a int", "maxOffsetsPerTrigger": "5"}},
            "maxOffsetsPerTrigger: has no equal in Spark's Kafka connector",
        ),
        (
            {"in": {"schema": "a int", "out.of.range": "earliest"}},
            "out.of.range: has no",
        ),
        (
            {"in": {"schema": "a int", "decode.on.error": "skip"}},
            "on.error: has no equal",
        ),
        (
            {
                "in": {
                    "schema": "a int",
                    "stream.kafka.decoder.prop.missing.fields": "error",
                }
            },
            "missing.fields: has no equal",
        ),
        (
            {"in": {"schema": "a int", "guarantee": "exactly-once"}},
            "exactly-once is required, but",
        ),
        (
            {"out": {"stream.kafka.producer.prop.max.in.flight": "1"}},
            "max.in.flight",
        ),
        (
            {"out": {"stream.kafka.producer.prop.queue.buffering.max.ms": "1"}},
            "is not passed to Spark's Kafka connector",
        ),
        (
            {"in": {"stream.kafka.decoder.class.name": "avro", "schema": "a int"}},
            "'avro' is not compared with the functions of spark-avro",
        ),
        (
            {"in": {"stream.kafka.decoder.class.name": "csv", "schema": "a int"}},
            "'csv' has no equal among Spark's functions",
        ),
    ],
)
def test_what_the_mode_does_not_have_is_refused(
    drafted: Callable[..., Draft], changed: dict[str, Any], said: str
) -> None:
    assert [one for one in errors_of(drafted(**changed)) if said in one]


def test_validate_reads_the_columns_and_requires_a_pyspark_with_the_mode(
    drafted: Callable[..., Draft], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = WHOLE.replace("select *", "select 'x' as _topic, cast(1 as timestamp) as at")
    draft = drafted(text, **{"in": {"schema": "a decimal(9,2)"}})
    monkeypatch.setattr(starting, "AVAILABLE", False)
    found = [str(one) for one in _read_sql(spark, draft, sound=True)]
    for said in ("requires PySpark 4.2", "'a' is decimal", "_topic has no", "'at' is"):
        assert [one for one in found if said in one], (said, found)
    monkeypatch.setattr(starting, "AVAILABLE", True)
    grouped = WHOLE.replace("from input", "from input group by all")
    [one] = _read_sql(spark, drafted(grouped), sound=True)
    assert "has no state before PySpark 4.3" in one.what
    assert _read_sql(spark, drafted(), sound=True) == []


def test_other_types_say_why_they_have_no_such_mode(
    drafted: Callable[..., Draft], tmp_path: Path
) -> None:
    options = {
        "streamType": "file",
        "stream.file.topic.name": "x",
        "stream.file.path": str(tmp_path),
    }
    found = errors_of(drafted(**{"in": options}))
    assert [one for one in found if "a Python data source has no such mode" in one]


def test_options_of_the_other_end_and_defaults_are_no_errors(
    drafted: Callable[..., Draft],
) -> None:
    streams = {
        "in": {"schema": "a int", "out.of.range": "fail", "epoch.mismatch": "fail"},
        "out": {"startingOffsets": "earliest", "stream.kafka.commit.mode": "task"},
    }
    assert errors_of(drafted(**streams)) == []


# --- options of the client -------------------------------------------------------


def configured(**given: str) -> StreamConfig:
    properties = {**KAFKA, "stream.kafka.topic.name": "t", "schema": "a int"}
    properties |= {f"{CONSUMER}{k.replace('_', '.')}": v for k, v in given.items()}
    return configure(from_mapping(properties), default_manager(), use="spark").config


def test_references_to_secrets_are_passed_on_as_references(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret")
    found = client_options(
        configured(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="${env:WHO}",
            sasl_password=f"${{file:{password}}}",
            ssl_ca_location="/etc/ca.pem",
            ssl_certificate_location="/etc/client.pem",
            ssl_key_location="/etc/client.key",
            ssl_endpoint_identification_algorithm="none",
        ),
        "consumer",
    )
    assert found.problems == []
    provider = "org.apache.kafka.common.config.provider"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    login += f' username="${{env:WHO}}" password="${{dir:{tmp_path}:password}}";'
    assert found.options == {
        "kafka.bootstrap.servers": "localhost:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.certificates": "${dir:/etc:ca.pem}",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "${dir:/etc:client.pem}",
        "kafka.ssl.keystore.key": "${dir:/etc:client.key}",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.config.providers": "env,dir",
        "kafka.config.providers.env.class": f"{provider}.EnvVarConfigProvider",
        "kafka.config.providers.dir.class": f"{provider}.DirectoryConfigProvider",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl_password": 'a"${env:X}'}, "contains a quote"),
        ({"sasl_password": "${env:X}$${"}, "contains $${"),
        ({"sasl_mechanism": "GSSAPI"}, "'GSSAPI' is none of PLAIN"),
        ({"ssl_ca_location": "/a:b/ca.pem"}, "without colons and braces"),
        ({"socket_keepalive_enable": "true"}, "is not passed to Spark's"),
    ],
)
def test_what_java_would_not_read_alike_is_refused(
    given: dict[str, str], said: str
) -> None:
    properties = {"sasl_mechanism": "PLAIN", "sasl_username": "me", **given}
    properties.setdefault("sasl_password", "${env:X}")
    problems = client_options(configured(**properties), "consumer").problems
    assert len(problems) == 1
    assert said in problems[0].what


@pytest.mark.parametrize(
    ("content", "said"),
    [("s3cret\n", "ends with a line end"), ('s3"cret', "contains a quote")],
)
def test_a_password_that_java_would_read_otherwise_is_refused(
    tmp_path: Path, content: str, said: str
) -> None:
    password = tmp_path / "password"
    password.write_text(content)
    config = configured(
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password=f"${{file:{password}}}",
    )
    [problem] = client_options(config, "consumer").problems
    assert said in problem.what
    assert "cret" not in str(problem)


# --- positions -------------------------------------------------------------------


def write_query(folder: Path, line: str) -> None:
    """A checkpoint of Spark whose only batch ended there."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    body = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
    (folder / "offsets" / "0").write_text(f"v1\n{body}\n{line}")
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "metadata").write_text('{"id":"q"}')


def test_offsets_of_sparks_connector_are_positions_of_pipelines(
    tmp_path: Path,
) -> None:
    write_query(tmp_path / "1", '{"in":{"0":10,"1":5}}')
    place = Place.of(str(tmp_path / "1"))
    [position] = read_query(place, of_pipeline=True).positions() or ()
    assert {str(one): offset for one, offset in position.items()} == {
        "in-0": 10,
        "in-1": 5,
    }
    with pytest.raises(PositionRefused, match="not a source of streamfactory"):
        read_query(place).positions()


def test_the_first_batch_begins_where_the_generation_does(tmp_path: Path) -> None:
    write_query(tmp_path, '{"in":{"0":10,"1":5}}')
    place = Place.of(str(tmp_path))
    zero, one = Partition("in", 0), Partition("in", 1)
    begin = Position({zero: 3, one: 0}, {zero: "a", one: "a"})
    save_begin(place, begin)
    reached = Position({zero: 10, one: 5}, begin.incarnations)
    assert read_query(place, of_pipeline=True).positions() == (reached,)
    (tmp_path / "commits" / "0").unlink()
    # Planned, not committed: Spark writes both at the end of a batch.
    assert read_query(place, of_pipeline=True).positions() == (begin,)


@pytest.mark.parametrize("content", [b"\xff", b"{}", b'{"offsets":{},"version":99}'])
def test_a_begin_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    write_query(tmp_path, '{"in":{"0":10}}')
    (tmp_path / "begin.json").write_bytes(content)
    query = read_query(Place.of(str(tmp_path)), of_pipeline=True)
    with pytest.raises(PositionRefused, match=r"begin\.json") as refused:
        query.positions()
    assert "--reset" in str(refused.value.remedy)


@pytest.mark.parametrize(
    ("line", "engine", "remedy"),
    [
        ('{"in":{"0":1}}', Engine.SPARK, 'trigger = "real-time"'),
        (
            '{"offsets":{"in":{"0":1}},"version":1}',
            Engine.REAL_TIME,
            "another trigger than real-time",
        ),
    ],
)
def test_a_checkpoint_of_the_other_mode_is_refused(
    tmp_path: Path, line: str, engine: Engine, remedy: str
) -> None:
    from streamfactory.spark.checkpoints.pipeline import _check_engine
    from streamfactory.spark.checkpoints.record import Record

    write_query(tmp_path / "1", line)
    record = Record("p", ("kafka in",), 1, True, ({},), None, None, ())
    with pytest.raises(PositionRefused, match="was written by the engine spark") as one:
        _check_engine(Place.of(str(tmp_path)), record, engine)
    assert remedy in str(one.value.remedy)
    other = Engine.REAL_TIME if engine is Engine.SPARK else Engine.SPARK
    _check_engine(Place.of(str(tmp_path)), record, other)
