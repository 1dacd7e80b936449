"""What each batch wrote: kept with the checkpoint, and shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.spark.checkpoints import (
    Ledger,
    PipelineCheckpoint,
    Place,
    read_commits,
)
from streamfactory.spi import Outgoing, PositionRefused
from streamfactory.wiring.writing.counting import Counting, PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.checkpoints.conftest import QueryFolder, Topic
    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]
    Ran = Callable[..., QueryFolder]


def counts(partition: int, writes: int, deletes: int = 0) -> PartitionCounts:
    return PartitionCounts(
        "out", partition, writes, writes - deletes, deletes, 10 * writes
    )


def test_show_has_what_the_last_batch_wrote_to_each_sink(
    checkpoint: Command, tmp_path: Path, topic: Topic, stack: ExitStack, ran: Ran
) -> None:
    folder, sources = str(tmp_path / "p"), {"input": topic.source(stack)}
    opened = PipelineCheckpoint.open(folder, "delays", sources)
    assert checkpoint("show", folder, "--json").json["commit"] is None
    ran(f"{folder}/1", topic.at(3, 1))
    assert checkpoint("show", folder, "--json").json["commit"] is None
    out = opened.ledger("out")
    out.record_failure(0)
    out.record(0, [counts(1, 4, deletes=1), counts(0, 2), counts(1, 1)])
    opened.ledger("bad", dead_letters=True).record(0, [counts(0, 3)])
    opened.ledger("none").record(0, [])
    out.record(1, [counts(0, 9)])  # planned, and not committed by Spark
    found = checkpoint("show", folder, "--json").json["commit"]
    assert (found["batch"], found["success_count"], found["failed_count"]) == (0, 7, 3)
    by_name = {one["sink"]: one for one in found["sinks"]}
    assert by_name["out"]["failed_attempts"] == 1
    assert by_name["out"]["partitions"] == [
        {
            "topic": "out",
            "partition": partition,
            "numWrites": writes,
            "numUpserts": writes - deletes,
            "numDeletes": deletes,
            "totalWriteBytes": 10 * writes,
        }
        for partition, writes, deletes in ((0, 2, 0), (1, 5, 1))
    ]
    assert by_name["none"]["partitions"] == []
    lines = checkpoint("show", folder).out.splitlines()
    at = lines.index("batch 0 wrote 7 rows, 3 dead letters:")
    assert lines[at + 1 :] == [
        "  SINK  TOPIC  PARTITION  WRITES  UPSERTS  DELETES  BYTES",
        "  bad   out    0          3       3        0        30",
        "  none",
        "  out   out    0          2       2        0        20",
        "  out   out    1          5       4        1        50",
        "  out: 1 failed attempts before",
    ]


def test_a_repeated_batch_replaces_its_record_and_old_ones_go(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "out")
    place = Place.of(str(tmp_path))
    ledger.record_failure(7)
    ledger.record(7, [counts(0, 5)])
    ledger.record(7, [counts(0, 6)])
    (commit,) = read_commits(place, 7)
    assert (commit.partitions[0].writes, commit.failed_attempts) == (6, 1)
    ledger.record_failure(107)
    assert read_commits(place, 7) == []
    assert [one.failed_attempts for one in read_commits(place, 107)] == [1]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is not JSON"),
        ('{"version": 1}', "is not the record of a batch"),
        ("[]", "is not the record of a batch"),
        ('{"version": 2}', "has version 2, this reads 1"),
    ],
)
def test_a_damaged_record_is_refused_and_the_next_batch_replaces_it(
    tmp_path: Path, content: str, what: str
) -> None:
    file = tmp_path / "out.3.json"
    file.write_text(content)
    place = Place.of(str(tmp_path))
    with pytest.raises(PositionRefused, match=f"out.3.json {what}"):
        read_commits(place, 3)
    Ledger(str(tmp_path), "out").record(3, [counts(0, 1)])
    assert len(read_commits(place, 3)) == 1
    assert json.loads(file.read_text())["version"] == 1


def test_messages_are_counted_as_upserts_and_deletes_by_their_keys() -> None:
    rows = pa.record_batch({"value": pa.array([b"a", None, b"c", None], pa.binary())})
    key = pa.array([b"1", b"2", None, None])
    messages, typed = Counting("t", messages=True), Counting("t", messages=False)
    for counting in (messages, typed):
        counting.add(Outgoing(rows, 1, key=key), rows.nbytes)
        counting.add(Outgoing(rows, 0, topic="other"), rows.nbytes)
    other, own = messages.total()
    assert (other.topic, other.partition, other.writes, other.upserts) == (
        "other",
        0,
        4,
        0,
    )
    assert (own.topic, own.writes, own.upserts, own.deletes) == ("t", 4, 1, 1)
    assert own.size == rows.nbytes + key.nbytes
    assert [one.upserts + one.deletes for one in typed.total()] == [0, 0]
