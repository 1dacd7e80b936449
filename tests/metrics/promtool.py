"""Prometheus' own tool for rules, and unit tests of rules on recorded series."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.kafka.jars import Unavailable
from tests.proving.debian import environment_of
from tests.proving.skipping import skip_or_fail

from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streamfactory.spi import Sample

_TIMEOUT: Final = 300
_FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0'


def promtool() -> str:
    """The path of promtool: the machine's, or that of Debian's package ``prometheus``.

    Skips the test where there is neither, which is a failure under ``CI=true``.
    """
    try:
        environment = environment_of("promtool", ("prometheus",))
    except Unavailable as error:
        skip_or_fail(str(error))
    found = shutil.which("promtool", path=environment.get("PATH"))
    assert found is not None
    return found


def _run(folder: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )


@dataclass
class Recording:
    """The metrics of this process, a sample each minute of a compressed time."""

    name: str
    minutes: int = 0
    firing: dict[int, list[str]] = field(default_factory=dict)
    """Names of the alerts that must fire at a minute: these, and no others."""
    _series: dict[str, dict[int, float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The time of the next sample, as Prometheus sees it."""
        return self.minutes * 60.0

    def minute(self, samples: Iterable[Sample] | None = None) -> None:
        """Record all samples: those of this process, or others."""
        for sample in registry.samples() if samples is None else samples:
            names = zip(sample.metric.labels, sample.labels, strict=True)
            labels = ",".join(f"{key}={json.dumps(value)}" for key, value in names)
            series = f"{sample.metric.prometheus_name}{{{labels}}}"
            self._series.setdefault(series, {})[self.minutes] = float(sample.value)
        self.minutes += 1

    def expect(self, *alerts: str) -> None:
        """State the alerts that fire at the last sample; none: it is quiet."""
        self.firing[self.minutes - 1] = sorted(alerts)

    def plain(self) -> dict[str, Any]:
        """One test of a file for ``promtool test rules``."""
        return {
            "name": self.name,
            "interval": "1m",
            "input_series": [
                {
                    "series": series,
                    "values": " ".join(
                        f"{values[n]:.6f}" if n in values else "_"
                        for n in range(self.minutes)
                    ),
                }
                for series, values in self._series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": _FIRING,
                    "eval_time": f"{minute}m",
                    "exp_samples": [
                        {"labels": f'{{alertname="{alert}"}}', "value": 1}
                        for alert in alerts
                    ],
                }
                for minute, alerts in self.firing.items()
            ],
        }


def check_rules(folder: Path, rules: str, recordings: Iterable[Recording]) -> str:
    """Run promtool's unit tests; answers what it says, empty where all is right."""
    (folder / "rules.yml").write_text(rules)
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [recording.plain() for recording in recordings],
    }
    (folder / "tests.yml").write_text(json.dumps(tests))
    done = _run(str(folder), promtool(), "test", "rules", "tests.yml")
    return "" if not done.returncode else done.stdout + done.stderr
