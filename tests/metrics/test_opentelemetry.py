"""Metrics and traces by OpenTelemetry: to the SDK's exporters, and to a collector."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import streamfactory
from streamfactory.spi import (
    ConfigError,
    MisuseError,
    NotInstalled,
    Partition,
    StorageFailed,
)
from streamfactory.wiring.metrics.batches import (
    FinishedBatch,
    OffsetRange,
    StreamEnd,
    batches,
    reported,
)
from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """The metrics of one test only."""
    registry.clear()
    yield
    assert not batches.watched
    registry.clear()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracers(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


def stream(folder: Path, name: str, **more: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(folder / name),
        "stream.file.topic.name": name,
        **more,
    }


def points(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], float]]:
    """By metric and values of the attributes, in the order of their names."""
    data: Any = reader.get_metrics_data()
    return {
        metric.name: {
            tuple(
                point.attributes[key] for key in sorted(point.attributes)
            ): point.value
            for point in metric.data.data_points
        }
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def put(properties: dict[str, str], numbers: range) -> None:
    with streamfactory.open_sink(properties) as sink:
        sink.put(pa.table({"id": list(numbers)}))


def test_instruments_read_the_registry(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    with streamfactory.export_opentelemetry(meter_provider=MeterProvider([reader])):
        put(stream(tmp_path, "clicks"), range(3))
        found = points(reader)
        assert found["messaging.client.sent.messages"] == {("file:clicks",): 3}
        assert found["streamfactory.commit.failures"] == {("file:clicks",): 0}
        put(stream(tmp_path, "clicks"), range(2))
        again = points(reader)
        assert again["messaging.client.sent.messages"] == {("file:clicks",): 5}
    samples = registry.samples()
    assert len(samples) == sum(len(by_labels) for by_labels in again.values())


def test_instruments_have_kind_unit_and_attributes_of_the_conventions(
    tmp_path: Path,
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with streamfactory.export_opentelemetry(meter_provider=provider):
        put(stream(tmp_path, "clicks"), range(3))
        with streamfactory.open(stream(tmp_path, "clicks")) as opened:
            assert sum(batch.num_rows for batch in opened) == 3
            data: Any = reader.get_metrics_data()
    (scope,) = data.resource_metrics[0].scope_metrics
    assert scope.scope.name == "streamfactory"
    metrics = {metric.name: metric for metric in scope.metrics}
    rows = metrics["streamfactory.read.rows"]
    assert (rows.unit, rows.data.is_monotonic) == ("{rows}", True)
    (point,) = rows.data.data_points
    assert dict(point.attributes) == {
        "streamfactory.stream": "file:clicks",
        TOPIC: "clicks",
        PARTITION: "0",
    }
    assert metrics["streamfactory.read.fetch.seconds"].unit == "s"
    assert metrics["streamfactory.write.bytes"].unit == "By"
    started = metrics["streamfactory.process.started.seconds"]
    assert not hasattr(started.data, "is_monotonic")  # a gauge


def test_nothing_is_exported_after_the_end(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    with streamfactory.export_opentelemetry(meter_provider=MeterProvider([reader])):
        put(stream(tmp_path, "clicks"), range(3))
    assert reader.get_metrics_data() is None


def test_a_process_exports_once(tracers: TracerProvider) -> None:
    with streamfactory.export_opentelemetry(tracer_provider=tracers) as export:
        with pytest.raises(MisuseError, match="exports to OpenTelemetry already"):
            streamfactory.export_opentelemetry(tracer_provider=tracers)
        assert batches.watched
        export.close()
    streamfactory.export_opentelemetry(tracer_provider=tracers).close()


def by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def test_each_epoch_of_a_copy_is_a_trace(
    tmp_path: Path, spans: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    source = stream(tmp_path, "in")
    sink = stream(tmp_path, "out")
    put(source, range(7))
    before = time.time_ns()
    with streamfactory.export_opentelemetry(tracer_provider=tracers):
        streamfactory.copy(source, sink, writer_id="w")
        streamfactory.copy(source, sink, writer_id="w")  # without new rows: no trace
    found = by_name(spans)
    assert set(found) == {"process in", "read in", "commit out"}
    root, read, commit = found["process in"], found["read in"], found["commit out"]
    kinds = (root.kind, read.kind, commit.kind)
    assert kinds == (SpanKind.CONSUMER, SpanKind.CLIENT, SpanKind.PRODUCER)
    assert root.parent is None
    for child in (read, commit):
        assert child.parent is not None
        assert child.parent.span_id == root.context.span_id
    assert root.attributes is not None
    assert dict(root.attributes) == {
        "streamfactory.job": "copy",
        "streamfactory.job.name": "w",
        "streamfactory.writer.id": "w",
        "streamfactory.source.ranges": '{"in":{"0":[0,7]}}',
        "streamfactory.epoch": json.loads(str(root.attributes["streamfactory.epoch"])),
        "streamfactory.rows": 7,
        "streamfactory.stream": "file:in",
        "messaging.system": "file",
        TOPIC: "in",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
    }
    where = {
        TOPIC: "in",
        PARTITION: "0",
        "streamfactory.offset.start": 0,
        "streamfactory.offset.end": 7,
    }
    (link,) = commit.links
    assert link.context.span_id == read.context.span_id
    assert dict(link.attributes or {}) == where
    assert (read.attributes or {}).items() >= where.items()
    assert (commit.attributes or {})[TOPIC] == "out"
    assert before <= (root.start_time or 0) <= (commit.start_time or 0)
    assert (commit.start_time or 0) <= (root.end_time or 0) <= time.time_ns()


def batch(**more: Any) -> FinishedBatch:
    ends = StreamEnd("in", "kafka", "clicks"), [StreamEnd("out")]
    return FinishedBatch("copy", "w", 1.0, 2.0, 3.0, *ends, **more)


def test_a_commit_that_fails_is_an_error_span(
    spans: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    def fail() -> None:
        with reported(batch()):
            msg = "the disk is full"
            raise StorageFailed(msg)

    with (
        streamfactory.export_opentelemetry(tracer_provider=tracers),
        pytest.raises(StorageFailed),
    ):
        fail()
    root = by_name(spans)["process clicks"]
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "the disk is full"
    assert (root.attributes or {})["error.type"] == StorageFailed.code


def test_spans_and_links_of_many_partitions_are_bounded(
    spans: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    ranges = [OffsetRange(Partition("clicks", n), None, 9) for n in range(5000)]
    with streamfactory.export_opentelemetry(tracer_provider=tracers):
        batches.report(batch(ranges=ranges, epoch=3))
    finished = spans.get_finished_spans()
    assert len(finished) == 128 + 2
    commit = by_name(spans)["commit out"]
    assert len(commit.links) == 128
    text = str((commit.attributes or {})["streamfactory.source.ranges"])
    assert len(json.loads(text)["clicks"]) == 1000


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("OTEL_METRICS_EXPORTER", "prometheus", "set it to one of otlp, console, none"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "set it to one of otlp, console, none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is supported"),
    ],
)
def test_variables_that_are_not_supported_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, what: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name) as caught:
        streamfactory.export_opentelemetry()
    assert what in str(caught.value)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(NotInstalled, match=r"streamfactory\[opentelemetry\]"):
        streamfactory.export_opentelemetry()


def test_nothing_of_opentelemetry_is_imported_without_an_export(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow as pa, streamfactory\n"
        f"properties = {stream(tmp_path, 'clicks')!r}\n"
        "with streamfactory.open_sink(properties) as sink:\n"
        "    sink.put(pa.table({'id': [1]}))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


class Collector:
    """An endpoint of OTLP over HTTP that parses what it gets."""

    def __init__(self) -> None:
        self.metrics: list[Any] = []
        self.spans: list[Any] = []
        self.resources: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.location = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            request: Any = ExportMetricsServiceRequest.FromString(body)
            for group in request.resource_metrics:
                self._note(group.resource)
                for scope in group.scope_metrics:
                    self.metrics += scope.metrics
        else:
            assert path == "/v1/traces"
            request = ExportTraceServiceRequest.FromString(body)
            for group in request.resource_spans:
                self._note(group.resource)
                for scope in group.scope_spans:
                    self.spans += scope.spans

    def _note(self, resource: Any) -> None:
        names = {one.key: one.value.string_value for one in resource.attributes}
        self.resources.add(names["service.name"])


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def copied(tmp_path: Path, endpoint: str, **environment: str) -> tuple[int, str]:
    put(stream(tmp_path, "in"), range(5))
    for name in ("in", "out"):
        body = {"name": name, "properties": stream(tmp_path, name)}
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    words = ["copy", str(tmp_path / "in.json"), str(tmp_path / "out.json")]
    done = subprocess.run(
        [sys.executable, "-m", "streamfactory", *words, "--opentelemetry"],
        env={
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=h4rd-to-guess",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "h4rd-to-guess" not in done.stdout + done.stderr
    return done.returncode, done.stderr


def test_a_command_exports_by_otlp_to_a_collector(
    tmp_path: Path, collector: Collector
) -> None:
    status, err = copied(tmp_path, collector.location)
    assert status == 0, err
    assert collector.resources == {"streamfactory"}
    values = {
        metric.name: [
            point.as_int or point.as_double for point in metric.sum.data_points
        ]
        for metric in collector.metrics
    }
    assert values["streamfactory.read.rows"] == [5]
    assert values["streamfactory.commit.epochs"][0] >= 1
    names = {span.name for span in collector.spans}
    assert names == {"process in", "read in", "commit out"}
    assert len({span.trace_id for span in collector.spans}) == 1


def test_signals_are_chosen_by_variables(tmp_path: Path, collector: Collector) -> None:
    variables = {"OTEL_SERVICE_NAME": "nightly", "OTEL_METRICS_EXPORTER": "none"}
    status, err = copied(tmp_path, collector.location, **variables)
    assert status == 0, err
    assert (collector.resources, collector.metrics) == ({"nightly"}, [])
    assert collector.spans


SILENT = """
import atexit, logging, sys, time
begin = time.monotonic()
atexit.register(lambda: print(time.monotonic() - begin))  # called last
import pyarrow as pa
import streamfactory
from streamfactory.wiring.metrics import opentelemetry
opentelemetry._END_SECONDS = 0.5
logging.basicConfig(format="%(name)s: %(message)s")
export = streamfactory.export_opentelemetry()
properties = {"streamType": "file", "stream.file.path": sys.argv[1]}
properties["stream.file.topic.name"] = "out"
with streamfactory.open_sink(properties) as sink:
    sink.put(pa.table({"id": [1]}))
begin = time.monotonic()
export.close()
export.close()
"""


def test_the_end_waits_for_a_silent_collector_until_one_deadline(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        location = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SILENT, str(tmp_path)],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": location},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    (line,) = done.stderr.splitlines()
    assert line.startswith("streamfactory.metrics: the collector of OpenTelemetry did")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in line
    assert 0.5 <= float(done.stdout) < 4  # the SDK alone: 5 s and more


@pytest.mark.long("waits until the exporters give up")
def test_a_collector_that_does_not_answer_fails_nothing(tmp_path: Path) -> None:
    begin = time.monotonic()
    status, err = copied(tmp_path, "http://127.0.0.1:9")
    assert status == 0, err
    assert time.monotonic() - begin < 120
