"""The registry of a process: what is tracked, what remains, and its bounds."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import MisuseError, Sample
from streamfactory.wiring.metrics import registry as registries
from streamfactory.wiring.metrics.registry import OTHER, Registry, registry
from streamfactory.wiring.metrics.snapshot import MetricsSnapshot, metrics
from streamfactory.wiring.metrics.vocabulary import (
    ATTRIBUTES,
    CONVENTIONS,
    METRICS,
    PROCESS_STARTED,
    READ_LAG,
    READ_ROWS,
    WRITE_ROWS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Counting:
    """A tally whose numbers a test sets."""

    def __init__(self, rows: float, lag: float | None = None, *where: str) -> None:
        self.rows, self.lag = rows, lag
        self.labels = where or ("s", "t", "0")

    def counters(self) -> Iterable[Sample]:
        return [Sample(READ_ROWS, self.labels, self.rows)]

    def gauges(self) -> Iterable[Sample]:
        return [] if self.lag is None else [Sample(READ_LAG, self.labels, self.lag)]


class Owner:
    """What counts."""


def found(one: Registry) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name, *sample.labels): sample.value
        for sample in one.samples()
        if sample.metric != PROCESS_STARTED
    }


def test_counters_add_up_and_of_gauges_the_largest_is_shown() -> None:
    one, owners = Registry(), [Owner(), Owner()]
    one.track(owners[0], Counting(3, 5))
    one.track(owners[1], Counting(4, 2))
    assert found(one) == {
        ("read.rows", "s", "t", "0"): 7,
        ("read.lag.offsets", "s", "t", "0"): 5,
    }


def test_counters_of_what_has_ended_remain_and_its_gauges_do_not() -> None:
    one, owner = Registry(), Owner()
    end = one.track(owner, Counting(3, 5))
    end()
    end()
    assert found(one) == {("read.rows", "s", "t", "0"): 3}
    assert found(one) == {("read.rows", "s", "t", "0"): 3}


def test_an_owner_that_was_not_closed_counts_until_it_is_collected() -> None:
    one = Registry()
    one.track(Owner(), Counting(3, 5))
    gc.collect()
    assert found(one) == {("read.rows", "s", "t", "0"): 3}


def test_series_are_bounded_and_what_is_beyond_is_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registries, "MOST_SERIES", 2)
    one, owners = Registry(), [Owner() for _ in range(6)]
    for number in range(4):
        one.track(owners[number], Counting(1, number, "s", "t", str(number)))
    one.track(owners[4], Counting(1, None, "s2", "t", "0"))
    one.track(owners[5], Counting(1, None, "s3", "t", "0"))
    assert found(one) == {
        ("read.rows", "s", "t", "0"): 1,
        ("read.rows", "s", "t", "1"): 1,
        ("read.rows", "s", OTHER, OTHER): 2,
        ("read.rows", "s2", "t", "0"): 1,
        ("read.rows", OTHER, OTHER, OTHER): 1,
        ("read.lag.offsets", "s", "t", "0"): 0,
        ("read.lag.offsets", "s", "t", "1"): 1,
        ("read.lag.offsets", "s", OTHER, OTHER): 3,
    }


def test_threads_that_begin_and_end_while_it_is_read_are_each_counted_once() -> None:
    one, stop = Registry(), threading.Event()
    seen: list[float] = []

    def look() -> None:
        while not stop.is_set():
            seen.append(found(one).get(("read.rows", "s", "t", "0"), 0))

    def count() -> None:
        for _ in range(500):
            one.track(Owner(), Counting(1))()

    looking = threading.Thread(target=look)
    looking.start()
    counting = [threading.Thread(target=count) for _ in range(4)]
    for thread in counting:
        thread.start()
    for thread in counting:
        thread.join()
    stop.set()
    looking.join()
    assert found(one) == {("read.rows", "s", "t", "0"): 2000}
    assert seen == sorted(seen)  # a counter never falls


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_at_zero() -> None:
    owner = Owner()
    registry.track(owner, Counting(3))
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        os.write(sender, repr(found(registry)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receiver, 1000) == b"{}"
    os.close(receiver)
    os.close(sender)
    assert found(registry) == {("read.rows", "s", "t", "0"): 3}


def test_a_snapshot_answers_by_name_and_label() -> None:
    owners = [Owner(), Owner()]
    registry.track(owners[0], Counting(3, 5))
    registry.track(owners[1], Counting(4, 2, "s", "t", "1"))
    shot = metrics()
    assert shot.value("read.rows", stream="s") == 7
    assert shot.value("streamfactory_read_rows_total", partition="1") == 4
    assert shot.value("read.lag.offsets") == 5
    assert shot.value("read.rows", stream="other") == 0
    assert shot.value("read.lag.offsets", stream="other") is None
    assert [sample.labels for sample in shot.select("read.rows", topic="t")] == [
        ("s", "t", "0"),
        ("s", "t", "1"),
    ]


@pytest.mark.parametrize(
    ("name", "labels", "message", "remedy"),
    [
        ("read.row", {}, "there is no metric 'read.row'", "did you mean 'read.rows'?"),
        ("?", {}, "there is no metric '?'", "docs/metrics.md lists them"),
        (
            "write.rows",
            {"topic": "t"},
            "the metric 'write.rows' has no label 'topic'",
            "its labels are: stream",
        ),
    ],
)
def test_unknown_metrics_and_labels_are_refused(
    name: str, labels: dict[str, str], message: str, remedy: str
) -> None:
    with pytest.raises(MisuseError) as caught:
        MetricsSnapshot(METRICS, []).value(name, **labels)
    assert message in str(caught.value)
    assert caught.value.remedy == remedy


def test_names_are_unique_also_in_prometheus() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    names = [metric.prometheus_name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert {READ_ROWS, WRITE_ROWS} < set(METRICS)


def test_conventions_name_metrics_and_labels_that_exist() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    assert CONVENTIONS.keys() <= {metric.name for metric in METRICS}
    own = {"stream", "pipeline", "sink", "expectation", "job"}
    assert labels - ATTRIBUTES.keys() == own
