"""``streamfactory topics`` on a stream with a spool: the log of the spool."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from tests.proving.commands import command_of
from tests.spool.receiving import DEADLINE, quick_spool, receiving

import streamfactory
from streamfactory.backends.zeromq.harness import ZeromqHarness
from streamfactory.spi import TopicNotFound, Unsupported
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proving.commands import Outcome


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    return command_of(capsys)


@pytest.fixture
def spooled(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A stream of two partitions whose receiver runs and has its endpoints."""
    harness = ZeromqHarness(tmp_path)
    harness.create(2)
    given = {
        **harness.properties(),
        **quick_spool(tmp_path),
        "spool.retention.rows": "1000",
        "schema": "number bigint",
    }
    receiver = receiving(given)
    try:
        harness.write(0, range(100))
        harness.write(1, range(100, 140))
        deadline = time.monotonic() + DEADLINE
        while sum(report.rows for report in receiver.reports()) < 140:
            assert time.monotonic() < deadline, receiver.reports()
            time.sleep(0.01)
        yield given
        assert receiver.error is None
    finally:
        receiver.close()
        harness.close()


@pytest.fixture
def file(spooled: dict[str, str], tmp_path: Path) -> Path:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"name": "numbers", "properties": spooled}))
    return path


def test_topics_show_what_the_spool_holds_while_a_receiver_runs(
    file: Path, command: Callable[..., Outcome]
) -> None:
    assert "numbers" in command("topics", "list", file).out
    shown = command("topics", "show", file, "--json").json
    bounds = {p["partition"]: (p["earliest"], p["latest"]) for p in shown["partitions"]}
    assert bounds == {0: (0, 100), 1: (0, 40)}
    # The columns that the receiver stores beside the rows are not the stream's.
    columns = shown["schema"]["columns"]
    assert [column["name"] for column in columns] == ["number"]
    assert shown["facts"]["remembered writer ids"] == 2
    assert command("topics", "verify", file).status == 0


def test_truncating_releases_rows_of_the_spool_alone(
    spooled: dict[str, str], file: Path, command: Callable[..., Outcome]
) -> None:
    done = command("topics", "truncate", file, "--before", "0=60", "--yes")
    assert done.status == 0, done.err
    with open_admin(spooled) as admin:
        assert [info.earliest for info in admin.partitions()] == [60, 0]
        admin.retain({})
    with streamfactory.open(spooled) as stream:
        numbers = stream.to_reader().read_all()["number"].to_pylist()
    assert sorted(numbers) == [*range(60, 140)]


def test_topics_of_a_spool_are_made_by_its_receiver_alone(
    spooled: dict[str, str],
) -> None:
    with open_admin(spooled) as admin:
        with pytest.raises(Unsupported, match=r"by its receiver only.*spool"):
            admin.grow(3)
        with pytest.raises(Unsupported, match="by its receiver only"):
            admin.create(None)


def test_a_spool_that_nothing_was_received_into_reports_it(tmp_path: Path) -> None:
    properties = {
        "streamType": "zeromq",
        "stream.zeromq.topic.name": "numbers",
        "stream.zeromq.pattern": "push-pull",
        "stream.zeromq.bind": f"ipc://{tmp_path}/wire",
        **quick_spool(tmp_path),
    }
    with (
        open_admin(properties) as admin,
        pytest.raises(TopicNotFound, match="the spool is empty"),
    ):
        admin.partitions()
    assert not (tmp_path / "wire").exists()  # the transport was not opened
