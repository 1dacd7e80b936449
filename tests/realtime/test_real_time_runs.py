"""Pipelines in real time over a broker: for PySpark 4.2, in its cell of the matrix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

import pyspark
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.jars import Unavailable, jars
from tests.kafka.topics import Topics
from tests.proving.ports import free_port
from tests.proving.skipping import skip_or_fail

from streamfactory.spark.realtime.starting import AVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka.broker import Addresses

pytestmark = pytest.mark.skipif(
    not AVAILABLE or not pyspark.__version__.startswith("4.2."),
    reason="the connector that the tests have is for PySpark 4.2",
)
PATIENCE: Final = 240.0
STEPS: Final = """
[source]
stream = "in"
startingOffsets = "earliest"
"metadata.columns" = "true"
[[steps]]
id = "s"
sql = "select a + 1 as a, cast(_partition as string) as _key from input"
[[expectations]]
name = "small"
condition = "a < 1000"
[[sinks]]
stream = "out"
"""


class Pipeline:
    """A pipeline in a folder, run by the command line."""

    def __init__(self, folder: Path, broker: str, topics: Topics) -> None:
        self.folder, self.topics = folder, topics
        self.source = topics.create(partitions=2)
        self.sink = topics.create()
        self.security: dict[str, str] = {}
        self.environment = dict(os.environ)
        self.children: list[subprocess.Popen[str]] = []
        self._broker = broker

    def write(self, steps: str = STEPS, *, connector: bool = True) -> None:
        streams = self.folder / "configs" / "streams"
        streams.mkdir(parents=True)
        for name, topic in (("in", self.source), ("out", self.sink)):
            properties = {
                "streamType": "kafka",
                "stream.kafka.topic.name": topic,
                "stream.kafka.broker.list": self._broker,
                "stream.kafka.decoder.class.name": "json",
                "schema": "a bigint",
                **{
                    f"stream.kafka.consumer.prop.{k}": v
                    for k, v in self.security.items()
                },
            }
            body = {"name": name, "properties": properties}
            (streams / f"{name}.json").write_text(json.dumps(body))
        top = 'trigger = "real-time 5s"\ncheckpoint = "checkpoint"\n'
        spark = ""
        if connector:
            try:
                paths = ",".join(map(str, jars("oracle")))
            except Unavailable as missing:
                skip_or_fail(str(missing))
            spark = f'\n[spark]\njars = "{paths}"\n'
        (self.folder / "p.toml").write_text(top + steps + spark)

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "streamfactory", *arguments],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.children.append(child)
        return child

    def close(self) -> None:
        """End what runs still."""
        for child in self.children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()

    def start(self, cores: int = 3, *options: str) -> subprocess.Popen[str]:
        master = ("--master", f"local[{cores}]")
        return self.command("run", "p.toml", "--json", *master, *options)

    def answer(self, *arguments: str) -> Any:
        out, error = self.command(*arguments, "--json").communicate(timeout=PATIENCE)
        assert out, error
        return json.loads(out)

    def send(self, *numbers: int, partition: int = 0) -> None:
        values = [json.dumps({"a": number}).encode() for number in numbers]
        self.topics.send(self.source, values, partition=partition)

    def written(self, *numbers: int) -> list[tuple[bytes | None, int]]:
        """Key and number of all rows of the sink, once all these are there."""
        consumer = Consumer(
            {"bootstrap.servers": self.topics.bootstrap, "group.id": "test"}
        )
        sink = TopicPartition(self.sink, 0, 0)
        consumer.assign([sink])
        found: list[tuple[bytes | None, int]] = []
        deadline = time.monotonic() + PATIENCE
        try:
            # One row is one offset: Spark's connector has no transactions.
            while (
                set(numbers) - {one for _, one in found}
                or len(found) < consumer.get_watermark_offsets(sink, timeout=60)[1]
            ):
                assert time.monotonic() < deadline, found
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    body = json.loads(message.value() or b"")
                    found.append((message.key(), body["a"]))
        finally:
            consumer.close()
        return found


def batches(child: subprocess.Popen[str], enough: Callable[[Any], bool]) -> list[Any]:
    """The batches that a run reports, up to the first that is enough."""
    assert child.stdout is not None
    watchdog = threading.Timer(PATIENCE, os.killpg, (child.pid, signal.SIGKILL))
    watchdog.start()
    found = []
    try:
        for line in child.stdout:
            found.append(json.loads(line))
            if "batch" in found[-1] and enough(found[-1]):
                return found
    finally:
        watchdog.cancel()
    pytest.fail(f"{found}\n{child.stderr and child.stderr.read()}")


def fetched(port: int, path: str, wanted: str = "") -> str:
    """What a run serves there, once it contains a text."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            text = str(answer.read(), "utf-8")
        if wanted in text:
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def stopped(child: subprocess.Popen[str]) -> Any:
    """The result of a run that is ended by a signal."""
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, error
    [one] = json.loads(out.splitlines()[-1])["pipelines"]
    return one


@pytest.fixture
def pipeline(tmp_path: Path, kafka: Addresses) -> Iterator[Pipeline]:
    with closing(
        Pipeline(tmp_path, kafka.bootstrap, Topics(kafka.bootstrap))
    ) as pipeline:
        yield pipeline


def test_rows_are_written_before_their_batch_ends_and_a_kill_loses_none(
    pipeline: Pipeline,
) -> None:
    pipeline.write()
    pipeline.send(*range(10))
    pipeline.send(*range(10, 15), partition=1)
    child = pipeline.start()
    found = pipeline.written(*range(1, 16))
    assert sorted(number for _, number in found) == [*range(1, 16)]
    assert {key for key, number in found if number > 10} == {b"1"}
    whole = {"0": 10, "1": 5}
    done = batches(child, lambda b: b["offsets"][pipeline.source] == whole)
    assert sum(one["rows"] for one in done) == 15
    assert done[-1]["lag"] == {}

    # What the next batch wrote is not committed when the process is killed.
    pipeline.send(2000)
    assert len(pipeline.written(2001)) == 16
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    [lag] = pipeline.answer("lag", "p.toml")["lags"]
    assert lag["behind"] in (0, 1)

    child = pipeline.start()
    pipeline.send(300, partition=1)
    batches(child, lambda b: b["offsets"][pipeline.source] == {"0": 11, "1": 6})
    numbers = [number for _, number in pipeline.written(2001, 301)]
    one = stopped(child)
    assert one["guarantee"].startswith("at-least-once: in real time")
    assert one["began"] == "continues from the checkpoint"
    assert one["expectations"] == {"small": numbers.count(2001) - 1}
    assert one["written"] == {"out": "Spark's Kafka connector, in real time"}

    shown = pipeline.answer("checkpoint", "show", "p.toml")
    [source] = shown["query"]["sources"]
    assert [one["offset"] for one in source["offsets"]] == [11, 6]
    [lag] = pipeline.answer("lag", "p.toml")["lags"]
    assert lag["behind"] == 0


def test_a_kill_before_the_first_batch_does_not_move_the_start(
    pipeline: Pipeline,
) -> None:
    pipeline.write(STEPS.replace("earliest", "latest"))
    pipeline.send(1, 2, 3)
    child = pipeline.start()
    record = pipeline.folder / "checkpoint" / "pipeline.json"
    deadline = time.monotonic() + PATIENCE
    while not record.exists() or "startingOffsets" not in record.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    pipeline.send(4)
    child = pipeline.start()
    assert [number for _, number in pipeline.written(5)] == [5]
    stopped(child)


def test_a_pause_waits_for_the_batch_and_a_rewind_writes_its_rows_again(
    pipeline: Pipeline,
) -> None:
    pipeline.write()
    pipeline.send(1, 2, 3)
    metrics, pages = free_port(), free_port()
    served = ("--metrics", f"127.0.0.1:{metrics}", "--ui", f"127.0.0.1:{pages}")
    child = pipeline.start(3, *served)
    ended = {"0": 3, "1": 0}
    batches(child, lambda b: b["offsets"][pipeline.source] == ended)
    pipeline.answer("pause", "p.toml")
    text = fetched(metrics, "/metrics", 'pipeline_running{pipeline="p"} 0')
    assert 'pipeline_rows_total{pipeline="p"} 3' in text
    assert "at-least-once" in fetched(pages, "/pipeline?name=p")
    plain = json.loads(fetched(pages, "/api/v1/pipelines/p/checkpoint"))
    assert pipeline.source in json.dumps(plain)
    one = stopped(child)
    assert one["pause"] is not None
    pipeline.answer("resume", "p.toml")

    pipeline.answer("checkpoint", "rewind", "p.toml", "--batch", "0", "--yes")
    [lag] = pipeline.answer("lag", "p.toml")["lags"]
    assert lag["behind"] == 3

    child = pipeline.start()
    batches(child, lambda b: b["offsets"][pipeline.source] == ended)
    stopped(child)
    numbers = [number for _, number in pipeline.written(2, 3, 4)]
    assert all(numbers.count(number) >= 2 for number in (2, 3, 4))

    pipeline.topics.recreate(pipeline.source, partitions=2)
    pipeline.send(5, 6, 7, 8)
    out, error = pipeline.start().communicate(timeout=PATIENCE)
    assert "was recreated" in out + error
    assert "begin again with --reset" in out + error


def test_a_bad_message_ends_the_query_and_is_named(pipeline: Pipeline) -> None:
    pipeline.write()
    pipeline.topics.send(pipeline.source, [b'{"a":1}', b'{"a":"1"}'], partition=1)
    out, error = pipeline.start().communicate(timeout=PATIENCE)
    [one] = json.loads(out.splitlines()[-1])["pipelines"]
    what = f"topic {pipeline.source}, partition 1, offset 1: column a does not contain"
    assert what in one["error"], error


@pytest.mark.parametrize(
    ("steps", "connector", "cores", "said"),
    [
        (STEPS, False, 3, "spark-sql-kafka-0-10_2.13:4.2.0"),
        (STEPS, True, 1, "reads 2 partitions at once, each by a task, and Spark has 1"),
        (
            STEPS.replace("a + 1 as a", "a, cast(a as timestamp) as at"),
            True,
            3,
            "column 'at' is timestamp",
        ),
        (
            STEPS.replace("from input", "from input group by all"),
            True,
            3,
            "has no state before PySpark 4.3",
        ),
    ],
    ids=["connector", "slots", "types", "state"],
)
def test_what_the_query_lacks_is_refused_before_it_starts(
    pipeline: Pipeline, steps: str, connector: bool, cores: int, said: str
) -> None:
    pipeline.write(steps, connector=connector)
    child = pipeline.start(cores)
    out, error = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2, (out, error)
    assert said in out + error
    assert not (pipeline.folder / "checkpoint").exists()


def test_a_login_is_passed_by_reference(pipeline: Pipeline, kafka: Addresses) -> None:
    assert kafka.sasl_ssl is not None
    assert kafka.certificates is not None
    pipeline._broker = kafka.sasl_ssl
    password = pipeline.folder / "password"
    password.write_text(PASSWORD)
    pipeline.environment["WHO"] = USER
    pipeline.security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "${env:WHO}",
        "sasl.password": f"${{file:{password}}}",
        "ssl.ca.location": f"{kafka.certificates}/ca.pem",
    }
    pipeline.write()
    pipeline.send(1)
    child = pipeline.start()
    assert [number for _, number in pipeline.written(2)] == [2]
    batches(child, lambda b: b["offsets"][pipeline.source]["0"] == 1)
    stopped(child)
    files = (path for path in pipeline.folder.rglob("*") if path.is_file())
    having = [one.name for one in files if PASSWORD.encode() in one.read_bytes()]
    assert having == ["password"]
