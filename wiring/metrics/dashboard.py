"""A Grafana dashboard over the metrics of the framework."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from streamfactory.spi import Metric

_WIDTH: Final = 12
_HEIGHT: Final = 8
_COLUMNS: Final = 24 // _WIDTH
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_RATE: Final = "[$__rate_interval]"
_SPOOL_HELD: Final = v.SPOOL_HELD.prometheus_name
_SPOOL_LIMIT: Final = v.SPOOL_LIMIT.prometheus_name


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot."""

    title: str
    unit: str
    """As Grafana names it: ``short``, ``Bps``, ``s``, ``percentunit``."""
    queries: tuple[tuple[str, str], ...]
    """PromQL, and how its lines are named."""


def _rate(metric: Metric, by: str) -> str:
    return f"sum by ({by}) (rate({metric.prometheus_name}{_RATE}))"


def _mean(seconds: Metric, count: Metric, by: str) -> str:
    return f"{_rate(seconds, by)} / {_rate(count, by)}"


def _sum(metric: Metric, by: str) -> str:
    return f"sum by ({by}) ({metric.prometheus_name})"


def _each(by: str, *metrics: tuple[Metric, str]) -> tuple[tuple[str, str], ...]:
    return tuple((_rate(one, by), f"{{{{{by}}}}} {word}") for one, word in metrics)


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Pipelines",
        (
            Panel(
                "Rows read per second",
                "short",
                ((_rate(v.PIPELINE_ROWS, "pipeline"), "{{pipeline}}"),),
            ),
            Panel(
                "Lag in offsets",
                "short",
                ((_sum(v.PIPELINE_LAG, "pipeline"), "{{pipeline}}"),),
            ),
            Panel(
                "Duration of a batch",
                "s",
                tuple(
                    (
                        _mean(metric, v.PIPELINE_BATCHES, "pipeline"),
                        f"{{{{pipeline}}}} {word}",
                    )
                    for metric, word in (
                        (v.PIPELINE_BATCH_SECONDS, "batch"),
                        (v.PIPELINE_PLAN_SECONDS, "plan"),
                        (v.PIPELINE_WRITE_SECONDS, "write"),
                        (v.PIPELINE_CHECKPOINT_SECONDS, "checkpoint"),
                    )
                ),
            ),
            Panel(
                "Age of the checkpoint and of the watermark",
                "s",
                (
                    (
                        f"time() - {v.PIPELINE_LAST_TRIGGER.prometheus_name}",
                        "{{pipeline}} last trigger",
                    ),
                    (
                        f"time() - {v.PIPELINE_WATERMARK.prometheus_name}",
                        "{{pipeline}} watermark",
                    ),
                ),
            ),
            Panel(
                "Late rows and dead letters per second, and failures",
                "short",
                _each(
                    "pipeline",
                    (v.PIPELINE_LATE_ROWS, "late rows"),
                    (v.PIPELINE_DEAD_LETTERS, "dead letters"),
                    (v.PIPELINE_FAILURES, "failures"),
                ),
            ),
            Panel(
                "Rows of state",
                "short",
                ((_sum(v.PIPELINE_STATE_ROWS, "pipeline"), "{{pipeline}}"),),
            ),
        ),
    ),
    (
        "Reading",
        (
            Panel(
                "Rows per second",
                "short",
                ((_rate(v.READ_ROWS, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Bytes per second",
                "Bps",
                ((_rate(v.READ_BYTES, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Lag in offsets", "short", ((_sum(v.READ_LAG, "stream"), "{{stream}}"),)
            ),
            Panel(
                "Age of the lag",
                "s",
                (
                    (
                        f"max by (stream) ({v.READ_LAG_SECONDS.prometheus_name})",
                        "{{stream}}",
                    ),
                ),
            ),
            Panel(
                "Time in fetches and in decoding, per second",
                "percentunit",
                _each(
                    "stream",
                    (v.READ_FETCH_SECONDS, "fetch"),
                    (v.READ_DECODE_SECONDS, "decode"),
                ),
            ),
            Panel(
                "Losses, bad messages and retries per second",
                "short",
                _each(
                    "stream",
                    (v.READ_LOSSES, "losses"),
                    (v.READ_BAD_MESSAGES, "bad messages"),
                    (v.READ_RETRIES, "retries"),
                    (v.READ_RECREATED, "recreated consumers"),
                ),
            ),
        ),
    ),
    (
        "Writing",
        (
            Panel(
                "Rows per second",
                "short",
                ((_rate(v.WRITE_ROWS, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Bytes per second",
                "Bps",
                ((_rate(v.WRITE_BYTES, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Duration of a commit",
                "s",
                ((_mean(v.COMMIT_SECONDS, v.COMMITS, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Commits per second",
                "short",
                _each(
                    "stream",
                    (v.COMMITS, "epochs"),
                    (v.COMMITS_REPEATED, "repeated"),
                    (v.COMMITS_FAILED, "failed"),
                    (v.COMMIT_MISMATCHES, "mismatches"),
                ),
            ),
        ),
    ),
    (
        "Spools",
        (
            Panel(
                "Rows stored per second",
                "short",
                ((_rate(v.SPOOL_ROWS, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Share of the bound that is used",
                "percentunit",
                (
                    (
                        f"{_SPOOL_HELD} / {_SPOOL_LIMIT}",
                        "{{stream}} {{partition}}",
                    ),
                ),
            ),
            Panel(
                "Losses per second",
                "short",
                ((_rate(v.SPOOL_LOSSES, "stream"), "{{stream}}"),),
            ),
            Panel(
                "Time since the last commit",
                "s",
                ((v.SPOOL_IDLE.prometheus_name, "{{stream}} {{partition}}"),),
            ),
        ),
    ),
)
"""Titles of rows, and their panels."""


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it, with a choice of the data source."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, plots in ROWS:
        panels.append(_row(len(panels) + 1, title, top))
        top += 1
        for index, plot in enumerate(plots):
            place = {
                "h": _HEIGHT,
                "w": _WIDTH,
                "x": index % _COLUMNS * _WIDTH,
                "y": top + index // _COLUMNS * _HEIGHT,
            }
            panels.append(_plot(len(panels) + 1, plot, place))
        top += -(-len(plots) // _COLUMNS) * _HEIGHT
    return {
        "uid": "streamfactory",
        "title": "streamfactory",
        "tags": ["streamfactory"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": panels,
    }


def dashboard_text() -> str:
    """The dashboard as JSON."""
    return json.dumps(dashboard(), indent=2) + "\n"


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": 24, "x": 0, "y": top}
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": place,
        "panels": [],
    }


def _plot(number: int, plot: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": plot.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": plot.unit, "min": 0},
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (expression, legend) in enumerate(plot.queries)
        ],
    }
