"""Contexts of messages: links of a batch's span, bounded, and of sound values only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import streamfactory
from streamfactory.spi import headers_type
from streamfactory.wiring.metrics.traceparents import Traceparents, parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def context(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def rows(
    *headers: Sequence[tuple[str, bytes | None]] | None, name: str = "_headers"
) -> pa.RecordBatch:
    maps = [
        None if one is None else [{"key": k, "value": v} for k, v in one]
        for one in headers
    ]
    return pa.record_batch({name: pa.array(maps, headers_type())})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        context(1)[:-1],
        context(1).replace("00-", "ff-", 1),
        context(1).upper().replace("0", "A"),
        context(1) + "-more",
        f"00-{0:032x}-{1:016x}-01",
        f"00-{1:032x}-{0:016x}-01",
        context(1) + "\n",
        " " + context(1),
    ],
)
def test_what_is_no_context_is_left_out(text: str) -> None:
    assert parse_traceparent(text) is None
    found = Traceparents()
    found.add(rows([("traceparent", text.encode())], [("traceparent", None)]))
    assert found.take() == []


def test_context_has_ids_and_flags() -> None:
    assert parse_traceparent(context(7)) == (7, 7, 1)
    later = "01" + context(7)[2:] + "-more"
    assert parse_traceparent(later) == (7, 7, 1)


@pytest.mark.parametrize("name", ["_headers", "headers"])
def test_contexts_of_a_batch_are_taken_once(name: str) -> None:
    one, two = (context(n).encode() for n in (1, 2))
    found = Traceparents()
    batch = rows(
        [("other", two), ("traceparent", one)],
        None,
        [],
        [("traceparent", one), ("traceparent", two)],
        [("Traceparent", context(3).encode())],
        name=name,
    )
    found.add(batch.slice(1))
    assert found.take() == [context(1), context(2)]
    assert found.take() == []
    found.add(pa.record_batch({"_headers": ["a text"], "id": [1]}))
    assert found.take() == []


def test_contexts_are_bounded() -> None:
    found = Traceparents()
    many = [[("traceparent", context(n).encode())] for n in range(1, 300)]
    found.add(rows(*many))
    found.add(rows(*many[::-1]))
    assert found.take() == [context(n) for n in range(1, 129)]
    later = "01" + context(7)[2:]
    found.add(rows(*[[("traceparent", f"{later}-{n}".encode())] for n in range(9)]))
    assert found.take() == [later]


def test_copy_links_to_the_contexts_that_its_messages_carry(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    source, sink = (
        {
            "streamType": "file",
            "stream.file.path": str(tmp_path),
            "stream.file.topic.name": name,
            "stream.file.fsync": "never",
        }
        for name in ("from", "to")
    )
    with streamfactory.open_sink(source) as opened:
        opened.put(
            rows(
                [("traceparent", context(5).encode())],
                [("traceparent", context(6).encode())],
                name="headers",
            )
        )
    with streamfactory.export_opentelemetry(tracer_provider=tracers):
        streamfactory.copy(source, sink)
    (root,) = [one for one in spans.get_finished_spans() if one.parent is None]
    linked = [(one.context.trace_id, one.context.span_id) for one in root.links]
    assert linked == [(5, 5), (6, 6)]
    assert all(one.context.is_remote for one in root.links)
