"""Limits of rows and bytes per second, by a simulated clock."""

from __future__ import annotations

import pytest

from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.throttle import Rate, Throttle


class ByHand(Clock):
    """Stands still unless it is advanced."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [
        (Rate(rows=10), 100.0),
        (Rate(bytes=4000), 25.0),
        (Rate(rows=10, bytes=4000), 100.0),
        (Rate(rows=100, bytes=4000), 25.0),
        (Rate(), 0.0),
    ],
)
def test_rate_is_kept_on_average(rate: Rate, seconds: float) -> None:
    clock = ByHand()
    throttle, began = Throttle(lambda: rate, clock), clock.now()
    for _ in range(100):
        throttle.took(10, 1000)
        clock.advance(throttle.delay())
        assert throttle.delay() == pytest.approx(0, abs=1e-9)
    assert clock.now() - began == pytest.approx(seconds)


def test_pause_saves_nothing_up_and_changes_apply_at_once() -> None:
    clock = ByHand()
    rate = Rate(rows=10)
    throttle = Throttle(lambda: rate, clock)
    clock.advance(3600)
    assert throttle.delay() == 0
    throttle.took(100, 0)
    assert throttle.delay() == pytest.approx(10)
    rate = Rate(rows=1000)
    assert throttle.delay() == pytest.approx(0.1)
    rate = Rate()
    assert throttle.delay() == 0
    rate = Rate(rows=1)
    assert throttle.delay() == 0
