"""Prometheus alert rules over the metrics of the framework."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Metric

_READERS_STALLED: Final = "streamfactory_server_readers_stalled"
_CHECKPOINT_LAG: Final = "streamfactory_server_checkpoint_lag_rows"
"""Metrics of the Flight server, which declares them."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule."""

    name: str
    """In Prometheus, and the heading of its section in docs/alerts.md."""
    expression: str
    """PromQL; has a sample for each thing that is wrong."""
    lasting: str
    """How long it must be so before the alert fires: ``10m``."""
    severity: str
    """``critical``: rows are lost or not processed; ``warning``: they soon may be."""
    summary: str
    """One line; ``{{ $labels.stream }}`` is replaced."""


def _name(metric: Metric) -> str:
    return metric.prometheus_name


def _rose(metric: Metric, window: str) -> str:
    name = _name(metric)
    # A counter whose first sample is above 0 has no increase for Prometheus.
    new = f"({name} > 0 unless {name} offset {window})"
    return f"(increase({name}[{window}]) > 0 or {new})"


def _growing(name: str, labels: str) -> str:
    now = f"sum by ({labels}) ({name})"
    before = f"sum by ({labels}) ({name} offset 15m)"
    return f"({now} > 1.2 * {before} and {now} > 1000)"


_WHERE: Final = "{{ $labels.pipeline }}{{ $labels.stream }}{{ $labels.topic }}"

ALERTS: Final = (
    Alert(
        "StreamfactoryStalled",
        f"({_name(v.READ_LAG)} > 0"
        f" and rate({_name(v.READ_ROWS)}[10m]) == 0"
        f" and rate({_name(v.READ_MESSAGES)}[10m]) == 0)"
        f" or {_READERS_STALLED} > 0",
        "5m",
        "critical",
        f"{_WHERE}: messages are available, and none was read for 10 minutes",
    ),
    Alert(
        "StreamfactoryLagGrowing",
        " or ".join(
            (
                _growing(_name(v.PIPELINE_LAG), "pipeline"),
                _growing(_name(v.READ_LAG), "stream"),
                _growing(_CHECKPOINT_LAG, "group, topic"),
            )
        ),
        "15m",
        "warning",
        f"{_WHERE}: the lag grows; it is {{{{ $value }}}} offsets",
    ),
    Alert(
        "StreamfactoryLoss",
        f"{_rose(v.READ_LOSSES, '15m')} or {_rose(v.SPOOL_LOSSES, '15m')}",
        "0m",
        "critical",
        "{{ $labels.stream }}, partition {{ $labels.partition }}: messages were lost",
    ),
    Alert(
        "StreamfactoryDeadLetterBudget",
        f"sum by (stream) (rate({_name(v.READ_BAD_MESSAGES)}[15m]))"
        f" / sum by (stream) (rate({_name(v.READ_MESSAGES)}[15m])) > 0.01"
        f" or rate({_name(v.PIPELINE_DEAD_LETTERS)}[15m])"
        f" / rate({_name(v.PIPELINE_ROWS)}[15m]) > 0.01",
        "5m",
        "warning",
        "{{ $labels.pipeline }}{{ $labels.stream }}: "
        "{{ $value | humanizePercentage }} of the messages cannot be decoded",
    ),
    Alert(
        "StreamfactoryCommitFailing",
        f"{_rose(v.COMMITS_FAILED, '10m')} or {_rose(v.PIPELINE_FAILURES, '10m')}",
        "0m",
        "critical",
        f"{_WHERE}: commits fail",
    ),
    Alert(
        "StreamfactoryTransactionOpen",
        f"{_name(v.READ_WAITING)} > 0",
        "10m",
        "warning",
        "{{ $labels.stream }}, partition {{ $labels.partition }}: {{ $value }} offsets "
        "wait for an open transaction",
    ),
    Alert(
        "StreamfactoryEpochMismatch",
        _rose(v.COMMIT_MISMATCHES, "15m"),
        "0m",
        "warning",
        "{{ $labels.stream }}: an epoch was repeated with other rows",
    ),
    Alert(
        "StreamfactorySpoolNearlyFull",
        f"{_name(v.SPOOL_HELD)} / {_name(v.SPOOL_LIMIT)} > 0.85",
        "5m",
        "warning",
        "{{ $labels.stream }}, partition {{ $labels.partition }}: the spool is "
        "{{ $value | humanizePercentage }} full",
    ),
    Alert(
        "StreamfactorySpoolStopped",
        f"{_name(v.SPOOL_BLOCKED)} == 1 or {_name(v.SPOOL_FAILED)} == 1",
        "2m",
        "critical",
        "{{ $labels.stream }}, partition {{ $labels.partition }}: nothing is received",
    ),
    Alert(
        "StreamfactoryCheckpointStale",
        f"(time() - {_name(v.PIPELINE_LAST_TRIGGER)}) > 900"
        f" and {_name(v.PIPELINE_RUNNING)} == 1",
        "0m",
        "critical",
        "{{ $labels.pipeline }}: no trigger has ended for {{ $value | "
        "humanizeDuration }}, so the checkpoint does not advance",
    ),
    Alert(
        "StreamfactoryPaused",
        f"{_name(v.JOB_PAUSED)} == 1",
        "1h",
        "warning",
        "{{ $labels.job }}: it has been paused for an hour",
    ),
    Alert(
        "StreamfactorySkipped",
        f"{_name(v.SKIPPED_OPEN_OFFSETS)} > 0",
        "1h",
        "warning",
        "{{ $labels.job }}: {{ $value }} offsets that were skipped to be on time wait "
        "for a backfill",
    ),
    Alert(
        "StreamfactorySkippingStopped",
        f"{_name(v.SKIPPING_STOPPED)} == 1",
        "5m",
        "warning",
        "{{ $labels.job }}: it is late, and skips no more because too many ranges "
        "wait for a backfill",
    ),
)
"""All alert rules, in the order of docs/alerts.md."""


def rules_text(alerts: Sequence[Alert] = ALERTS) -> str:
    """The rules as a file for Prometheus: YAML."""
    lines = ["groups:", "  - name: streamfactory", "    rules:"]
    for one in alerts:
        page = f"docs/alerts.md#{one.name.lower()}"
        # A JSON string is a YAML string too, with the same escapes.
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {json.dumps(one.expression)}",
            f"        for: {one.lasting}",
            "        labels:",
            f"          severity: {one.severity}",
            "        annotations:",
            f"          summary: {json.dumps(one.summary)}",
            f"          runbook: {page}",
        ]
    return "\n".join(lines) + "\n"
