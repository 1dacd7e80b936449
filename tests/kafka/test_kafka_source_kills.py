"""Spark reads Kafka: drivers are killed, topics change, and secrets stay secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.conftest import stream_of
from tests.kafka.spark_source_proving import hunt
from tests.proving.drivers import Driver
from tests.proving.sessions import LOGGING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics

pytestmark = pytest.mark.usefixtures("own_spark")

SECURITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": "${env:KAFKA_PASSWORD}",
}


@pytest.mark.long("drivers of Spark are killed, and read a topic that changes")
@pytest.mark.timeout(1800)
def test_a_query_survives_kills_and_refuses_what_it_cannot_read_exactly(
    kafka: Addresses, tmp_path: Path
) -> None:
    verdict = hunt(1, 5, tmp_path, kafka.bootstrap)
    assert verdict.good, str(verdict)
    assert verdict.kills >= 1


@pytest.mark.long("starts a driver of Spark with an event log")
def test_a_password_is_in_no_log_plan_or_checkpoint_of_spark(
    kafka: Addresses,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kafka.sasl is None:
        pytest.skip("KAFKA_BOOTSTRAP names a broker that was not started here")
    topics.send(topic, [b"1", b"2"])
    events, logging = tmp_path / "events", tmp_path / "log4j2.properties"
    events.mkdir()
    log = tmp_path / "spark.log"
    logging.write_text(LOGGING.format(log).replace("= off", "= info", 1))
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    flags = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{flags} pyspark-shell")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    given = [f"stream.kafka.consumer.prop.{k}={v}" for k, v in SECURITY.items()]
    line = (tmp_path, kafka.sasl, topic, "explained", *given)
    driver = Driver(tmp_path, "tests.kafka.spark_source_driver", *line)
    driver.succeed()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept = {str(path): path.read_bytes() for path in files}
    assert any(b"SparkListenerSQLExecutionStart" in text for text in kept.values())
    assert "== Physical Plan ==" in driver.log
    assert "Streaming query made progress" in log.read_text()
    assert [name for name, text in kept.items() if PASSWORD.encode() in text] == []


def test_a_password_given_in_clear_is_refused_and_not_shown(
    kafka: Addresses, topic: str
) -> None:
    from streamfactory.spark.failures import StreamFactoryError
    from streamfactory.spark.source import StreamFactorySource

    given = {f"stream.kafka.consumer.prop.{k}": v for k, v in SECURITY.items()}
    given["stream.kafka.consumer.prop.sasl.password"] = PASSWORD
    with pytest.raises(StreamFactoryError) as caught:
        StreamFactorySource({**stream_of(kafka.bootstrap, topic), **given})
    assert "sasl.password" in str(caught.value)
    assert PASSWORD not in str(caught.value)
