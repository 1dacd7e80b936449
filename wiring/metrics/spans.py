"""The trace of a finished batch: its spans, attributes and links.

Attributes follow OpenTelemetry's conventions for messaging where they have one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from streamfactory.wiring.metrics.traceparents import parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Tracer

    from streamfactory.wiring.metrics.batches import (
        FinishedBatch,
        OffsetRange,
        StreamEnd,
    )

_TOPIC: Final = "messaging.destination.name"
_PARTITION: Final = "messaging.destination.partition.id"
_OPERATION: Final = "messaging.operation.name"
_TYPE: Final = "messaging.operation.type"

_MOST_SPANS: Final = 128
"""Spans of source ranges in one trace, and links of a commit: the SDK's own limit."""
_MOST_RANGES: Final = 1000
"""Partitions in the attribute with all ranges."""

Attributes = dict[str, str | int | float | bool]


@final
class BatchTracer:
    """Makes one trace of each batch. Thread-safe; does not block.

    The root span has the source range and the epoch, and links to the contexts that
    messages of the batch carry. Its children are one span per
    partition that was read, and one per sink, which links to those spans.

    Args:
        tracer: Of the provider.
    """

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import trace

        self._api = trace
        self._tracer = tracer

    def __call__(self, batch: FinishedBatch) -> None:
        """Make the trace of a batch."""
        common = _common(batch)
        begin, committing, end = map(_nanos, (batch.begin, batch.committing, batch.end))
        root = self._tracer.start_span(
            f"process {_place(batch.source)}",
            kind=self._api.SpanKind.CONSUMER,
            attributes=common
            | _end_attributes(batch.source)
            | {_OPERATION: "process", _TYPE: "process"},
            links=list(self._parents(batch)),
            start_time=begin,
        )
        context = self._api.set_span_in_context(root)
        links = self._read(batch, context, common)
        for sink in batch.sinks:
            self._tracer.start_span(
                f"commit {_place(sink)}",
                context,
                kind=self._api.SpanKind.PRODUCER,
                attributes=common
                | _end_attributes(sink)
                | {_OPERATION: "commit", _TYPE: "send"},
                links=links,
                start_time=committing,
            ).end(end)
        if batch.error is not None:
            failed = self._api.StatusCode.ERROR
            root.set_status(self._api.Status(failed, batch.error))
            root.set_attribute("error.type", batch.code or "_OTHER")
        root.end(end)

    def _parents(self, batch: FinishedBatch) -> Iterator[Link]:
        """Links to the contexts of messages."""
        for text in batch.parents:
            parsed = parse_traceparent(text)
            if parsed is not None:
                trace, span, flags = parsed
                context = self._api.SpanContext(
                    trace, span, is_remote=True, trace_flags=self._api.TraceFlags(flags)
                )
                yield self._api.Link(context)

    def _read(
        self, batch: FinishedBatch, context: Context, common: Attributes
    ) -> list[Link]:
        """The spans of the source ranges; returns links to them."""
        links = []
        for one in batch.ranges[:_MOST_SPANS]:
            attributes = _range_attributes(one)
            span = self._tracer.start_span(
                f"read {one.partition.topic}",
                context,
                kind=self._api.SpanKind.CLIENT,
                attributes=common
                | _end_attributes(batch.source)
                | attributes
                | {_OPERATION: "read", _TYPE: "receive"},
                start_time=_nanos(batch.begin),
            )
            span.end(_nanos(batch.committing))
            links.append(self._api.Link(span.get_span_context(), attributes))
        return links


def _common(batch: FinishedBatch) -> Attributes:
    found: Attributes = {
        "streamfactory.job": batch.job,
        "streamfactory.job.name": batch.name,
        "streamfactory.source.ranges": _ranges_text(batch.ranges),
    }
    if batch.epoch is not None:
        found["streamfactory.epoch"] = batch.epoch
    if batch.rows is not None:
        found["streamfactory.rows"] = batch.rows
    if batch.writer_id is not None:
        found["streamfactory.writer.id"] = batch.writer_id
    return found


def _end_attributes(end: StreamEnd) -> Attributes:
    found: Attributes = {"streamfactory.stream": end.stream}
    if end.system is not None:
        found["messaging.system"] = end.system
    if end.topic is not None:
        found[_TOPIC] = end.topic
    return found


def _range_attributes(one: OffsetRange) -> Attributes:
    found: Attributes = {
        _TOPIC: one.partition.topic,
        _PARTITION: str(one.partition.id),
        "streamfactory.offset.end": one.end,
    }
    if one.start is not None:
        found["streamfactory.offset.start"] = one.start
    return found


def _ranges_text(ranges: Sequence[OffsetRange]) -> str:
    """As JSON: ``{"clicks": {"0": [0, 23]}}``, of the first partitions."""
    found: dict[str, dict[str, list[int | None]]] = {}
    for one in ranges[:_MOST_RANGES]:
        by_id = found.setdefault(one.partition.topic, {})
        by_id[str(one.partition.id)] = [one.start, one.end]
    return json.dumps(found, separators=(",", ":"))


def _place(end: StreamEnd) -> str:
    return end.topic or end.stream


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)
