"""Alert rules and the dashboard: each rule fires when it should, and only then.

Real readers, sinks, receivers and the reports of a real query run with injected faults,
in a compressed time: a step of each is a minute of Prometheus.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.metrics.promtool import Recording, check_rules
from tests.specimens import PARTITION_0, Author, Words, envelopes, rows

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.backends.memory import store
from streamfactory.conformance.specimens import forgetful
from streamfactory.spark.checkpoints import SinkCommit
from streamfactory.spark.pipelines.counting import PipelineTally
from streamfactory.spark.pipelines.progress import Scan, batch_of
from streamfactory.spi import (
    Decoder,
    Fetched,
    Loss,
    PartitionInfo,
    Summary,
    envelope_schema,
    hookimpl,
)
from streamfactory.transfer.skipping import Skipping
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import Controls, JobState, Pause
from streamfactory.wiring.metrics.alerts import ALERTS, Alert, rules_text
from streamfactory.wiring.metrics.dashboard import dashboard
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.metrics.vocabulary import METRICS
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.reading.following import read_from
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.receiver import StreamReceiver
from streamfactory.wiring.writing.counting import PartitionCounts
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import Log
    from streamfactory.wiring.reading.reader import Reader

    Readers = Callable[..., Reader]

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0
TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
ALL_NAMES = {metric.prometheus_name for metric in METRICS}


class _Words:
    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        return Decoder(name="words", doc="Words.", spi_level=1, decoder=Words)


def keeping_up(start: int, end: int | None, limits: Any) -> Fetched:
    """Ten rows, and no more."""
    return rows(start, 10, latest=start + 10)


def record_losses(reader_of: Readers) -> Recording:
    """A reader that keeps up, then finds that retention was faster."""
    found = Recording("loss")
    author = Author()
    author.always = keeping_up
    reader = reader_of(author, out__of__range="earliest")
    at = 0
    for _ in range(30):
        at = reader.fetch(at).next_offset
        found.minute()
    found.expect()
    lost = Loss(PARTITION_0, at, at + 50, "retention")
    author.steps.append(Fetched(None, at + 50, losses=[lost]))
    at = reader.fetch(at).next_offset
    found.minute()
    found.expect("StreamfactoryLoss")
    for _ in range(20):
        at = reader.fetch(at).next_offset
        found.minute()
    found.expect()
    return found


def record_a_first_loss(reader_of: Readers) -> Recording:
    """A loss before the first scrape: the first sample of its counter is above 0."""
    found = Recording("first-loss")
    for _ in range(5):
        found.minute()
    found.expect()
    author = Author()
    author.always = keeping_up
    reader = reader_of(author, out__of__range="earliest")
    lost = Loss(PARTITION_0, 0, 50, "retention")
    author.steps.append(Fetched(None, 50, losses=[lost]))
    at = reader.fetch(0).next_offset
    found.minute()
    found.expect("StreamfactoryLoss")
    for _ in range(25):
        at = reader.fetch(at).next_offset
        found.minute()
    found.expect()
    return found


def record_a_stall(reader_of: Readers) -> Recording:
    """A reader that keeps up, then receives nothing although there is more."""
    found = Recording("stall")
    author = Author()
    author.always = keeping_up
    reader = reader_of(author)
    at = 0
    for _ in range(20):
        at = reader.fetch(at).next_offset
        found.minute()
    found.expect()
    author.always = lambda start, *_: Fetched(None, start, latest=at + 500)
    for _ in range(10):
        reader.fetch(at, timeout=0.001)
        found.minute()
    found.expect()  # a pause of minutes is no stall yet
    for _ in range(10):
        reader.fetch(at, timeout=0.001)
        found.minute()
    found.expect("StreamfactoryStalled")
    author.always = keeping_up
    for _ in range(5):
        at = reader.fetch(at).next_offset
        found.minute()
    found.expect()
    return found


def record_growing_lag(reader_of: Readers) -> Recording:
    """A reader that is slower than its source, and one that catches up."""
    found = Recording("lag")
    author = Author()
    reader = reader_of(author)
    at = latest = 0
    for minute in range(60):
        latest += 10 if minute < 20 else 300
        author.steps.append(rows(at, 10, latest=latest))
        at = reader.fetch(at).next_offset
        found.minute()
        if minute == 19:
            found.expect()
    found.expect("StreamfactoryLagGrowing")
    for _ in range(20):  # a large lag that shrinks
        author.steps.append(rows(at, 400, latest=latest))
        at = reader.fetch(at).next_offset
        found.minute()
    found.expect()
    return found


def record_bad_messages(reader_of: Readers) -> Recording:
    """One bad message in 300, then one in three."""
    found = Recording("bad messages")
    author = Author(schema=envelope_schema())
    reader = reader_of(
        author,
        plugins=[_Words()],
        stream__script__decoder__class__name="words",
        decode__on__error="skip",
    )
    at = 0
    for minute in range(60):
        good = 299 if minute < 30 else 2
        author.steps.append(envelopes(*[b"a"] * good, b"!", start=at))
        at = reader.fetch(at).next_offset
        found.minute()
        if minute == 29:
            found.expect()
    found.expect("StreamfactoryDeadLetterBudget")
    return found


def record_commits(folder: Path) -> Recording:
    """A sink whose commits succeed, then are refused, then mismatch."""
    found = Recording("commits")
    base = {
        "streamType": "file",
        "stream.file.topic.name": "out",
        "stream.file.path": str(folder),
        "stream.file.fsync": "never",
    }
    with streamfactory.open_sink(base) as sink:
        for epoch in range(20):
            sink.put(TABLE, writer_id="w", epoch=epoch)
            found.minute()
        found.expect()
        sink.put(TABLE, writer_id="w", epoch=19)  # a replay is no fault
        found.minute()
        found.expect()
        sink.put(TABLE.slice(1), writer_id="w", epoch=19)
        found.minute()
        found.expect("StreamfactoryEpochMismatch")
        for epoch in range(20, 40):
            sink.put(TABLE, writer_id="w", epoch=epoch)
            found.minute()
        found.expect()
        with (
            sink.committer(writer_id="w") as committer,
            pytest.raises(streamfactory.MisuseError),
        ):
            committer.commit(3, [])
        found.minute()
        found.expect("StreamfactoryCommitFailing")
    return found


def record_a_transaction() -> Recording:
    """A transaction that stays open, behind which messages wait."""
    found, author = Recording("transaction"), Author()
    author.infos = [PartitionInfo(PARTITION_0, 0, 5)]
    with author.open() as stream:
        found.minute()
        found.expect()
        author.infos = [PartitionInfo(PARTITION_0, 0, 5, written=9)]
        for minute in range(12):
            stream.lag()
            found.minute()
            if minute == 5:
                found.expect()  # a transaction of minutes is usual
        found.expect("StreamfactoryTransactionOpen")
    return found


def record_a_spool(folder: Path) -> Recording:
    """A spool with a bound, which fills, blocks its receiver and is released."""
    found = Recording("spool")
    plugins = PluginManager()
    plugins.register(forgetful)
    harness = forgetful.ForgetfulHarness(folder)
    harness.create(1)
    properties = {
        **harness.properties(),
        "spool.path": str(folder / "spool"),
        "spool.fsync": "never",
        "spool.full.bytes": "4000",
        "spool.full": "block",
        "retry.max.millis": "100",
        "batch.rows": "10",
    }
    made = configure(from_mapping(properties), plugins, use="read")
    receiver = StreamReceiver(made, plugins=plugins)
    receiver.start()
    try:

        def wait(condition: Callable[[], bool]) -> None:
            deadline = time.monotonic() + DEADLINE
            while not condition():
                assert time.monotonic() < deadline, receiver.reports()
                time.sleep(0.005)

        def receive(start: int) -> None:
            harness.write(0, range(start, start + 10))
            wait(lambda: sum(r.rows for r in receiver.reports()) >= start + 10)
            found.minute()

        for start in range(0, 100, 10):
            receive(start)
        found.expect()
        for _ in range(10):
            found.minute()
        found.expect()  # half full, for long
        start = 100
        while (streamfactory.metrics().value("spool.held.bytes") or 0) < 0.88 * 4000:
            receive(start)
            start += 10
        for _ in range(10):
            found.minute()
        found.expect("StreamfactorySpoolNearlyFull")
        harness.write(0, range(start, start + 50))
        wait(lambda: receiver.reports()[0].state == "blocked")
        for _ in range(5):
            found.minute()
        found.expect("StreamfactorySpoolNearlyFull", "StreamfactorySpoolStopped")
    finally:
        receiver.close()
        harness.close()
    return found


def record_a_pause(folder: Path) -> Recording:
    """A copy that is paused for an hour, and resumed."""
    found, controls = Recording("pause"), Controls(folder)
    control = Control("copy/a/b", controls)
    found.minute()
    found.expect()
    controls.change("copy/a/b", lambda _: JobState(Pause("2026-11-29", "ann", "")))
    wait_for(control, paused=True)
    for minute in range(62):
        found.minute()
        if minute == 30:
            found.expect()
    found.expect("StreamfactoryPaused")
    controls.change("copy/a/b", lambda _: JobState())
    wait_for(control, paused=False)
    found.minute()
    found.expect()
    return found


def record_skips() -> Recording:
    """A copy that skips once, and then is late with as many ranges as it may skip."""
    found, name = Recording("skips"), uuid.uuid4().hex
    log = store(name).create("in", TABLE.schema)
    options = {"fresh.within.rows": "4", "fresh.max.ranges": "1"}
    source = Source(load(memory(name, "in") | options, "read"))
    sink = Sink(load(memory(name, "out"), "write"))
    with closing(source), closing(sink):
        skipping = Skipping(source, sink, "copy/in/out", "copy/in/out")
        with closing(
            read_from(source, start=None, default="earliest", follow=True)
        ) as rotation:

            def look() -> None:
                skipping.begin(rotation.position)
                late, _ = skipping.look(rotation, follow=True)
                skipping.skip(rotation, late)
                found.minute()

            look()
            found.expect()
            append_rows(log, 9)
            for _ in range(62):
                look()
            found.expect("StreamfactorySkipped")
            assert rotation.next_batch(60) is not None
            append_rows(log, 9)
            for _ in range(7):
                look()
            found.expect("StreamfactorySkipped", "StreamfactorySkippingStopped")
            rotation.keep_skipped([])
            look()
            found.expect("StreamfactorySkipped")
    store(name).delete("in")
    return found


def memory(name: str, topic: str) -> dict[str, str]:
    return {
        "streamType": "memory",
        "stream.memory.store": name,
        "stream.memory.topic.name": topic,
    }


def append_rows(log: Log, number: int) -> None:
    stage = log.stage(uuid.uuid4().hex)
    stage.append(0, pa.record_batch([pa.array(range(number), pa.int64())], ["id"]))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))


def wait_for(control: Control, *, paused: bool) -> None:
    deadline = time.monotonic() + DEADLINE
    while (control.pause is not None) is not paused:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def report_of(batch: int) -> str:
    """The progress report of a real query, of another batch."""
    plain = json.loads((Path(__file__).parent / "progress.json").read_text("utf-8"))
    return json.dumps({**plain, "batchId": batch})


def dead_letters(batch: int, number: int) -> SinkCommit:
    """The record of a batch of which some messages could not be decoded."""
    counts = PartitionCounts("bad", 0, number)
    return SinkCommit("bad", batch, "", True, 0, (counts,))


def record_a_pipeline() -> Recording:
    """A query with dead letters and idle triggers, that then hangs, and fails."""
    found = Recording("pipeline")
    tally = PipelineTally("p", lambda: found.seconds)
    registry.track(found, tally)
    tally.started()
    for minute in range(30):
        if minute < 10:
            tally.add(batch_of("p", report_of(minute), [Scan("input")]))
            tally.wrote(dead_letters(minute, 1))
        else:
            tally.idle()
        found.minute()
        if minute == 9:
            found.expect("StreamfactoryDeadLetterBudget")
    found.expect()  # idle for 20 minutes, and well
    for _ in range(20):
        found.minute()
    found.expect("StreamfactoryCheckpointStale")
    tally.ended(failed=True)
    found.minute()
    found.expect("StreamfactoryCommitFailing")
    return found


@pytest.mark.network
def test_each_rule_fires_when_it_should_and_is_quiet_otherwise(
    reader_of: Readers, tmp_path: Path
) -> None:
    recordings = []
    records: list[Callable[[], Recording]] = [
        lambda: record_losses(reader_of),
        lambda: record_a_first_loss(reader_of),
        lambda: record_a_stall(reader_of),
        lambda: record_growing_lag(reader_of),
        lambda: record_bad_messages(reader_of),
        lambda: record_commits(tmp_path / "commits"),
        record_a_transaction,
        lambda: record_a_spool(tmp_path),
        record_a_pipeline,
        lambda: record_a_pause(tmp_path / "controls"),
        record_skips,
    ]
    for record in records:
        registry.clear()
        recordings.append(record())
    fired = {
        name for one in recordings for found in one.firing.values() for name in found
    }
    assert fired == {alert.name for alert in ALERTS}
    assert check_rules(tmp_path, rules_text(), recordings) == ""
    # The recordings need each rule: those that are not there are missed.
    missed = check_rules(tmp_path, rules_text(ALERTS[:1]), recordings)
    assert all(alert.name in missed for alert in ALERTS[1:])


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bstreamfactory_\w+", text))


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    server = default_manager().backend("flight").server
    assert server is not None
    known = ALL_NAMES | {metric.prometheus_name for metric in server.METRICS}
    expressions = [alert.expression for alert in ALERTS]
    expressions += [
        target["expr"]
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    used = names_in(" ".join(expressions))
    assert len(used) > 30
    assert used - known == set()


def test_labels_in_rules_and_dashboard_exist() -> None:
    used = set()
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            used |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for alert in ALERTS:
        used |= set(re.findall(r"\$labels\.(\w+)", alert.summary))
    labels = {label for metric in METRICS for label in metric.labels}
    assert used <= labels


def test_each_alert_has_a_section_that_names_the_remedy() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    by_name = {section.partition("\n")[0]: section for section in sections}
    assert [name for name in by_name if name.startswith("Streamfactory")] == [
        alert.name for alert in ALERTS
    ]
    for alert in ALERTS:
        assert "**What to do**" in by_name[alert.name]
        assert f"docs/alerts.md#{alert.name.lower()}" in rules_text()


def test_the_dashboard_has_places_for_all_panels() -> None:
    plain = dashboard()
    panels = plain["panels"]
    assert [panel["id"] for panel in panels] == [*range(1, len(panels) + 1)]
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    variable = plain["templating"]["list"][0]["name"]
    assert all(
        panel["datasource"]["uid"] == f"${{{variable}}}"
        for panel in panels
        if panel["type"] != "row"
    )


@pytest.mark.network
def test_a_rule_that_is_wrong_is_found(tmp_path: Path) -> None:
    wrong = Alert("Wrong", "sum(", "0m", "warning", "wrong")
    quiet = Recording("quiet")
    quiet.minute([])
    quiet.expect()
    assert "parse error" in check_rules(tmp_path, rules_text([wrong]), [quiet])
