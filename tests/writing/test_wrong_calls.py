"""Public functions say what they take, whatever is passed as each argument."""

from __future__ import annotations

import datetime as dt
import inspect
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import streamfactory
from streamfactory import ConfigError, MisuseError, PluginError, engines
from streamfactory.engines.arrow import StreamDataset

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = [
    *(None, True, 3, -1, 2.5, "nonsense", Path("nonsense.toml"), object()),
    *({}, {"a": 1}, [], [3], ["a"]),
    *(dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.timedelta(1)),
    *(np.int64(3), np.float32(2.5), np.datetime64("2026-01-01"), np.array([1, 2])),
]

CONSUMING = {
    pl.LazyFrame: "collect",
    duckdb.DuckDBPyRelation: "fetchall",
    StreamDataset: "to_table",
}


def _topic() -> dict[str, str]:
    return {"streamType": "memory", "stream.memory.topic.name": uuid.uuid4().hex}


@pytest.fixture
def clicks(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for signal in ("METRICS", "TRACES"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    where = _topic()
    with streamfactory.open_sink(where) as sink:
        sink.put(pa.table({"id": [1, 2, 3]}), writer_id="w", epoch=0)
    return where


def _consume(result: Any) -> None:
    """Use what a call returned, and close it."""
    if inspect.isgenerator(result):
        list(result)
    for kind, method in CONSUMING.items():
        if isinstance(result, kind):
            getattr(result, method)()
    if hasattr(result, "close"):
        result.close()


def _sink_calls(sink: Any, schema: pa.Schema) -> dict[str, Callable[..., Any]]:
    def commit(**how: Any) -> None:
        with sink.committer() as committer:
            writer = sink.writer(schema)
            message = writer.commit()
            writer.close()
            committer.commit(**{"epoch": 0, "messages": [message], **how})

    def abort(**how: Any) -> None:
        with sink.committer() as committer:
            committer.abort(**{"epoch": 0, "messages": [], **how})

    def write(**how: Any) -> None:
        writer = sink.writer(schema)
        try:
            writer.write(**how)
        finally:
            writer.close()

    return {
        "put": lambda **how: sink.put(**{"rows": [{"id": 1}], **how}),
        "write": lambda **how: write(**{"rows": [{"id": 1}], **how}),
        "writer": lambda **how: sink.writer(**{"schema": schema, **how}).close(),
        "committer": lambda **how: sink.committer(**how).close(),
        "commit": commit,
        "abort": abort,
        "guarantee": lambda **how: sink.guarantee(**{"writer_id": "w", **how}),
        "last_epoch": lambda **how: sink.last_epoch(**{"writer_id": "w", **how}),
        "check": lambda **how: sink.check(**{"schema": schema, **how}),
        "canonical": lambda **how: sink.canonical(**{"schema": schema, **how}),
        "partition_count": sink.partition_count,
    }


_SCAN = "stream start columns options unbounded allow_class_paths"
_OPEN = "stream options allow_class_paths plugins faults"
_JOB = "writer_id stop allow_class_paths plugins"
CALLS = {
    "open": f"{_OPEN} start follow columns",
    "open_sink": _OPEN,
    "copy": f"{_JOB} source sink source_options sink_options follow",
    "publish": f"{_JOB} stream inputs options format schema",
    "export": "stream output start end format by_partition force options "
    "allow_class_paths plugins",
    "push_table": "schema capacity_bytes capacity_batches lanes merge cast keep name "
    "write_timeout read_timeout",
    "serve_metrics": "address allow_remote problems",
    "export_opentelemetry": "meter_provider tracer_provider monitored",
    "serve": "kind address memory path nonsense",
    "metrics.value": "name stream",
    "Partition": "topic id",
    "Position": "offsets incarnations",
    "Faults": "seed fail drop duplicate tear throttle delay clock injected",
    "hookimpl": "function",
    "ConfigError": "what stream partition offset remedy problems",
    "engines.arrow": _SCAN,
    "engines.polars": _SCAN,
    "engines.pandas": f"{_SCAN} rows filter arrow_types",
    "engines.relation": "stream start options unbounded connection",
    "engines.register": "stream start options unbounded connection name",
    "next_batch": "timeout",
    "preview": "rows",
    "push.write": "rows timeout",
    "push.lane": "number",
    "put": "rows writer_id epoch source_position",
    "write": "rows",
    "writer": "schema writer_id epoch task kind committer shared",
    "committer": "writer_id kind",
    "commit": "epoch messages source_position replace_all",
    "abort": "epoch messages",
    "guarantee": "writer_id",
    "last_epoch": "writer_id",
    "check": "schema",
    "canonical": "schema",
    "partition_count": "topic",
}
"""The arguments of each call; those of a job end it at once."""


def _calls(where: dict[str, str], tmp_path: Path) -> dict[str, Callable[..., Any]]:
    """Public functions, with arguments that they take, but for those given."""
    schema = pa.schema([("id", pa.int64())])
    done = threading.Event()
    done.set()
    output = tmp_path / f"{uuid.uuid4().hex}.parquet"
    one = streamfactory.Partition("t", 0)
    table = {"connection": duckdb.connect(), "name": "clicks"}

    def on(function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
        return lambda **how: function(**{**given, **how})

    def publish(stream: Any = where, inputs: Any = tmp_path / "rows.csv", **how: Any):  # type: ignore[no-untyped-def]
        return streamfactory.publish(stream, inputs, **how)

    def faults(**how: Any) -> None:
        streamfactory.open(where, faults=streamfactory.Faults(**how)).close()

    def opened(method: str) -> Callable[..., Any]:
        def call(**how: Any) -> None:
            with streamfactory.open(where) as stream:
                getattr(stream, method)(**how)

        return call

    def serve(**how: Any) -> Any:  # an unknown setting: no server is started
        return streamfactory.serve(**{"memory": True, "nonsense": 1, **how})

    sink, table_of_sink = streamfactory.push_table(schema, write_timeout=0)
    return {
        "open": on(streamfactory.open, stream=where),
        "open_sink": on(streamfactory.open_sink, stream=where),
        "copy": on(streamfactory.copy, source=where, sink=_topic(), stop=done),
        "publish": publish,
        "export": on(streamfactory.export, stream=where, output=output),
        "push_table": on(streamfactory.push_table, schema=schema),
        "serve": serve,
        "serve_metrics": on(streamfactory.serve_metrics, address="127.0.0.1:0"),
        "export_opentelemetry": streamfactory.export_opentelemetry,
        "metrics.value": on(streamfactory.metrics().value, name="read.rows"),
        "Partition": on(streamfactory.Partition, topic="t", id=0),
        "Position": on(streamfactory.Position, offsets={one: 1}),
        "Faults": faults,
        "hookimpl": streamfactory.hookimpl,
        "ConfigError": on(streamfactory.ConfigError, what="x"),
        "engines.arrow": on(engines.arrow.dataset, stream=where),
        "engines.polars": on(engines.polars.scan, stream=where),
        "engines.pandas": on(engines.pandas.chunks, stream=where),
        "engines.relation": on(engines.duckdb.relation, stream=where),
        "engines.register": on(engines.duckdb.register, stream=where, **table),
        "next_batch": opened("next_batch"),
        "preview": opened("preview"),
        "push.write": on(sink.write, rows=pa.table({"id": [1]})),
        "push.table": table_of_sink.to_reader,
        "push.lane": sink.lane,
    }


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name, arguments in CALLS.items()
        for argument in arguments.split()
    ],
)
def test_a_value_of_another_kind_is_taken_or_refused_with_what_is_taken(
    clicks: dict[str, str], tmp_path: Path, name: str, argument: str
) -> None:
    (tmp_path / "rows.csv").write_text("id\n4\n")
    schema = pa.schema([("id", pa.int64())])
    with streamfactory.open_sink(clicks) as sink:
        calls = _calls(clicks, tmp_path) | _sink_calls(sink, schema)
        refused = [_refusal(calls[name], {argument: value}) for value in VALUES]
    assert [text for text in refused if text.startswith("wrong")] == []
    if argument not in ("seed", "what", "remedy", "offset", "stream", "partition"):
        assert any(refused), "takes everything"


def _refusal(call: Callable[..., Any], how: dict[str, Any]) -> str:
    """Return why a call was refused; empty if it succeeded."""
    try:
        _consume(call(**how))
    except (MisuseError, ConfigError, PluginError, TypeError, ValueError) as error:
        return str(error) or f"wrong: {how} is refused without a word"
    except Exception as error:
        return f"wrong: {how}: {type(error).__name__}: {error}"
    return ""
