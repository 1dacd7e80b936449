"""An open transaction hides messages: lag, check, topics and metrics show them."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.conftest import stream_of

import streamfactory
from streamfactory.spi import Position
from streamfactory.ui.streams import partitions
from streamfactory.wiring.metrics import vocabulary as v
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.reading import waiting
from streamfactory.wiring.reading.lag import measure_lag, waiting_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.topics import Topics

HELD = "11 offsets wait for an open transaction since 20"


@pytest.fixture
def hanging(topics: Topics) -> Iterator[dict[str, str]]:
    """One readable message, and 11 offsets from that of an open transaction on."""
    topic = topics.create()
    topics.send(topic, [b"a"])
    producer = topics.transaction()
    producer.produce(topic, b"open")
    assert producer.flush(20) == 0
    topics.send(topic, [b"b"] * 10)
    yield stream_of(topics.bootstrap, topic) | {"startingOffsets": "earliest"}
    producer.abort_transaction(20)


def catalogue(folder: Path, properties: dict[str, str]) -> None:
    streams = folder / "configs" / "streams"
    streams.mkdir(parents=True)
    lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in properties.items()]
    text = "\n".join(["[properties]", *lines, ""])
    (streams / "s.toml").write_text(text)


def output(*arguments: str) -> str:
    command = [sys.executable, "-m", "streamfactory", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_and_pages_show_what_waits(
    hanging: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(tmp_path, hanging)
    monkeypatch.chdir(tmp_path)
    assert HELD in output("check", "s")
    assert f"written up to 12: {HELD}" in output("topics", "show", "s")
    [shown] = json.loads(output("topics", "show", "s", "--json"))["partitions"]
    assert (shown["latest"], shown["written"], shown["waiting"]) == (1, 12, 11)
    [one] = partitions("s")["partitions"]
    assert one["waiting"].startswith(HELD)


def test_a_group_that_has_read_all_shows_what_waits(
    hanging: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"stream.kafka.consumer.type": "highlevel", "group.id": "g-hanging"}
    catalogue(tmp_path, hanging | group)
    monkeypatch.chdir(tmp_path)
    with streamfactory.open("s") as stream:
        while stream.next_batch(1) is None:
            pass
        stream.commit()
    assert HELD in output("lag", "s")
    assert HELD in output("lag", "s", "--partitions").splitlines()[-1]


@pytest.mark.parametrize("kind", ["follow", "group"])
def test_a_reader_logs_once_what_waits_and_has_a_metric(
    kind: str,
    hanging: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(waiting, "_LASTING", 0.3)
    options = hanging | {"metadata.refresh.millis": "200"}
    if kind == "group":
        options |= {"stream.kafka.consumer.type": "highlevel", "group.id": "g-logged"}
    caplog.set_level(logging.WARNING, "streamfactory")
    with streamfactory.open(options, follow=True) as stream:
        for _ in range(20):
            stream.next_batch(0.2)
        found = [one for one in registry.samples() if one.metric == v.READ_WAITING]
        topic = options["stream.kafka.topic.name"]
        assert [one.value for one in found if one.labels[1] == topic] == [11]
    lines = [r.getMessage() for r in caplog.records if HELD in r.getMessage()]
    assert len(lines) == 1


def test_nothing_waits_without_a_transaction(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"a"])
    topics.send_in_transaction(topic, [b"b"])
    with streamfactory.open(stream_of(topics.bootstrap, topic)) as stream:
        found: Any = measure_lag(Position(), stream._source)
    assert waiting_of(found) == ""
    assert [one.remarks for one in found] == ["new"]


def test_the_text_counts_and_has_the_time_if_it_is_known() -> None:
    assert waiting.waiting_text(0, None) == ""
    assert waiting.waiting_text(1, None) == "1 offset waits for an open transaction"
    text = waiting.waiting_text(2, waiting.time_text(0))
    assert re.fullmatch(r"2 offsets wait .* since 1970-01-01T00:00:00Z", text)
