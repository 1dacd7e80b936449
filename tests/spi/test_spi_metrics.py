"""The vocabulary of metrics: what a declaration may say, and how counters are kept."""

from __future__ import annotations

from typing import Any

import pytest

from streamfactory.spi import Metric, MetricKind, Recorder, Sample

ROWS = Metric("read.rows", "Rows.", MetricKind.COUNTER, "rows", ("topic",))
ERRORS = Metric("read.errors", "Errors.", MetricKind.COUNTER)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Read.Rows"}, "not a dotted name"),
        ({"name": "read_rows"}, "not a dotted name"),
        ({"name": "rows.read"}, "does not end with its unit"),
        ({"doc": "Rows"}, "one line ending in"),
        ({"doc": "Rows.\nMore."}, "one line ending in"),
        ({"labels": ("topic", "client")}, "unknown label 'client'"),
        ({"labels": ("writer",)}, "unknown label 'writer'"),
    ],
)
def test_a_declaration_outside_of_the_vocabulary_is_refused(
    given: dict[str, Any], message: str
) -> None:
    declared: dict[str, Any] = {
        "name": "read.rows",
        "doc": "Rows.",
        "kind": MetricKind.COUNTER,
        "unit": "rows",
    }
    Metric(**declared)
    with pytest.raises(ValueError, match=message):
        Metric(**{**declared, **given})


def test_prometheus_names_follow_from_the_declaration() -> None:
    assert ROWS.prometheus_name == "streamfactory_read_rows_total"
    gauge = Metric("staged.bytes", "Bytes.", MetricKind.GAUGE, "bytes")
    assert gauge.prometheus_name == "streamfactory_staged_bytes"


def test_counters_are_kept_by_label_until_the_label_is_dropped() -> None:
    recorder = Recorder([ROWS, ERRORS])
    assert recorder.samples() == [Sample(ERRORS, (), 0)]
    recorder.add(ROWS, "a", amount=3)
    recorder.add(ROWS, "a")
    recorder.add(ROWS, "b")
    recorder.add(ERRORS)
    assert recorder.samples() == [
        Sample(ERRORS, (), 1),
        Sample(ROWS, ("a",), 4),
        Sample(ROWS, ("b",), 1),
    ]
    recorder.keep("topic", {"b"})
    assert recorder.samples() == [Sample(ERRORS, (), 1), Sample(ROWS, ("b",), 1)]
