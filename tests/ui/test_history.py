"""Plots, the history behind them, and jobs."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.ui.conftest import SCRIPT

from streamfactory.spi import MisuseError
from streamfactory.ui.jobs import MOST_JOBS, MOST_RUNNING, Job, Jobs
from streamfactory.ui.plots import line_plot
from streamfactory.ui.recording import Point, rates

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ui.conftest import Browser, World


def test_a_plot_is_read_without_seeing_it() -> None:
    plot = line_plot(SCRIPT, [(0.0, 0.0), (60.0, 1500.0), (120.0, 500.0)], "offsets/s")
    assert "<script" not in plot
    assert "From 00:00:00 to 00:02:00 UTC; highest 1.5k, last 500 offsets/s." in plot
    assert 'role="img"' in plot
    assert "style=" not in plot


def test_an_unknown_value_interrupts_the_line() -> None:
    values = [1.0, 2.0, None, 3.0, None, 4.0, 5.0]
    plot = line_plot("lag", list(enumerate(values)), "offsets")
    lines = re.findall(r'<polyline class="line" points="([^"]*)"', plot)
    assert [len(line.split()) for line in lines] == [2, 2, 2]


@pytest.mark.parametrize("values", [[], [1.0], [None, None], [None, 7.0]])
def test_too_few_values_are_no_plot(values: list[float | None]) -> None:
    assert "no history yet" in line_plot("lag", list(enumerate(values)), "offsets")


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.3, 9.0, 10.0, 1e30])
def test_a_line_stays_within_its_plot(value: float) -> None:
    plot = line_plot("lag", [(1.0, 0.0), (1.0, value)], "offsets")
    (line,) = re.findall(r'points="([^"]*)"', plot)
    for pair in line.split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= 640
        assert 0 <= y <= 170


def test_a_rate_is_unknown_where_a_sum_falls() -> None:
    points = [Point(0, 0, 10), Point(2, 0, 30), Point(3, 0, 5), Point(3, 0, None)]
    assert rates(points) == [(2, 10.0), (3, None), (3, None)]


def test_the_lag_of_a_group_is_plotted_over_time(
    world: World, serve: Callable[..., Browser]
) -> None:
    browser = serve(every=0.1)
    deadline = time.monotonic() + 60
    while (
        "highest 10, last 10 offsets"
        not in browser.get("/group", stream="clicks", group="billing").text
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_job_runs_once_at_a_time_and_can_be_stopped() -> None:
    jobs = Jobs()

    def work(job: Job) -> dict[str, object]:
        job.stop.wait(60)
        return {"complete": False}

    first = jobs.start("replay", work)
    with pytest.raises(MisuseError, match="running already"):
        jobs.start("replay", work)
    other = jobs.start("another", work)
    jobs.stop()
    deadline = time.monotonic() + 60
    while "running" in (first.state, other.state):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert first.state == "done"
    assert jobs.list() == [other, first]


def test_a_job_that_fails_shows_its_error_and_jobs_are_bounded() -> None:
    jobs, ended, go = Jobs(), threading.Event(), threading.Event()

    def wait(_: Job) -> dict[str, object]:
        go.wait(60)
        return {}

    def fail(job: Job) -> dict[str, object]:
        try:
            msg = f"not {job.number}"
            raise ValueError(msg)
        finally:
            ended.set()

    job = jobs.start("bad", fail)
    assert ended.wait(60)
    deadline = time.monotonic() + 60
    while job.error is None:
        assert time.monotonic() < deadline
    assert (job.state, job.error["what"]) == ("failed", "ValueError")
    running = [jobs.start(f"slow {number}", wait) for number in range(MOST_RUNNING - 1)]
    for number in range(MOST_JOBS + 5):
        short = jobs.start(str(number), lambda _: {})
        while short.state == "running":
            assert time.monotonic() < deadline
    assert len(jobs.list()) == MOST_JOBS
    assert jobs.get(job.number) is None
    assert all(jobs.get(one.number) is one for one in running)
    jobs.start("the last", wait)
    with pytest.raises(MisuseError, match="because 8 jobs are running"):
        jobs.start("too many", wait)
    go.set()
