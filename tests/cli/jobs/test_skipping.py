"""Being on time: what a copy skips is read by its backfill, each row once over both."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.cli.jobs.test_copy import SCHEMA, copied, ids, properties, rows

import streamfactory
from streamfactory.spi import (
    MisuseError,
    OffsetOutOfRange,
    Partition,
    PositionRefused,
    Skipped,
    WriterFenced,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.writing.epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.cli.jobs.conftest import Memory
    from tests.proving.commands import Outcome

    from streamfactory.spi import Position
    from streamfactory.transfer.copying import Copied, Copy

    Command = Callable[..., Outcome]

WRITER = "copy/from/to"
REPEATED = pytest.mark.repeated(
    "every commit instead of some",
    shown_by="tests/cli/jobs/test_skipping.py::"
    "test_end_of_the_process_around_any_commit_loses_and_repeats_nothing[before-0-4]",
)


@pytest.fixture
def late(memory: Memory) -> Path:
    """Ids 0 to 999 in partition 0, 1000 to 1009 in partition 1."""
    memory.create("from", SCHEMA, partitions=2)
    memory.write("from", rows(*range(1000)))
    memory.write("from", rows(*range(1000, 1010)), partition=1)
    memory.create("to", SCHEMA, partitions=2)
    return memory.stream("from", fresh__within__rows="100")


@pytest.fixture
def sink(memory: Memory) -> Path:
    return memory.stream("to")


def following(source: Path, sink: Path, until: Callable[[int], bool]) -> Copied:
    """A run that follows until a number of rows."""
    stop = threading.Event()

    deadline = time.monotonic() + 60

    def look(number: int) -> None:
        assert time.monotonic() < deadline
        if until(number):
            stop.set()

    with open_copy(properties(source), properties(sink), writer_id=WRITER) as copy:
        return copy.run(stop, follow=True, on_progress=look)


def backfilled(source: Path, sink: Path, **options: str) -> Copied:
    with opened_backfill(source, sink, **options) as copy:
        return copy.run(threading.Event())


def opened_backfill(source: Path, sink: Path, **options: str) -> Copy:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return open_copy(
        properties(source) | given, properties(sink), writer_id=WRITER, backfill=True
    )


def each_once(memory: Memory, wanted: Sequence[int]) -> bool:
    found = Counter(one for part in ids(memory, "to") for one in part)
    return found == Counter(wanted)


def range_of(start: int, end: int, position: Position) -> Skipped:
    partition = Partition("from", 0)
    return Skipped(partition, start, end, position.incarnations.get(partition))


def test_late_partition_continues_near_its_end_and_the_rest_is_read_later(
    memory: Memory, late: Path, sink: Path
) -> None:
    done = following(late, sink, lambda n: n == 60)
    assert done.rows == 60
    assert done.skipped == (range_of(0, 950, done.position),)
    assert done.position.skipped == done.skipped
    assert done.losses == ()
    assert ids(memory, "to") == [[*range(950, 1000)], [*range(1000, 1010)]]
    filled = backfilled(late, sink)
    assert (filled.rows, filled.complete, filled.losses) == (950, True, ())
    assert each_once(memory, range(1010))
    assert backfilled(late, sink).rows == 0


def test_python_reads_what_was_skipped_as_the_command_does(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    ends = properties(late), properties(sink)
    done = streamfactory.backfill(*ends, writer_id=WRITER, where="id < 900")
    assert (done.rows, done.complete) == (900, True)
    assert streamfactory.backfill(*ends, writer_id=WRITER).rows == 0
    with pytest.raises(MisuseError, match="no copy has committed as writer id 'w'"):
        streamfactory.backfill(*ends, writer_id="w")


def test_next_run_of_the_copy_forgets_what_was_read(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    backfilled(late, sink)
    memory.write("from", rows(2000))
    done = following(late, sink, lambda n: n == 1)
    assert (done.skipped, done.position.skipped) == ((), ())
    # The backfill stands where it was: nothing is read again.
    assert backfilled(late, sink).rows == 0
    assert each_once(memory, [*range(1010), 2000])


def test_second_jump_is_read_by_a_backfill_that_had_ended(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    backfilled(late, sink)
    memory.write("from", rows(*range(2000, 2500)))
    done = following(late, sink, lambda n: n == 50)
    assert done.position.skipped == (range_of(1000, 1450, done.position),)
    assert backfilled(late, sink).rows == 450
    assert each_once(memory, [*range(1010), *range(2000, 2500)])


def test_rows_that_are_old_are_skipped_by_time(memory: Memory, sink: Path) -> None:
    memory.create("from", SCHEMA)
    memory.create("to", SCHEMA)
    memory.write("from", rows(*range(100)))
    time.sleep(0.4)
    memory.write("from", rows(*range(100, 105)))
    source = memory.stream("from", fresh__within__millis="400ms")
    done = following(source, sink, lambda n: True)
    [one] = done.position.skipped
    # On a slow machine the later rows are old as well.
    assert one.start == 0
    assert one.end in (100, 105)
    backfilled(source, sink)
    following(source, sink, lambda n: sum(map(len, ids(memory, "to"))) + n >= 105)
    assert each_once(memory, range(105))


def test_no_more_ranges_are_skipped_than_may_be_open(
    memory: Memory, late: Path, sink: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = memory.stream("from", fresh__within__rows="100", fresh__max__ranges="1")
    following(source, sink, lambda n: n == 60)
    memory.write("from", rows(*range(2000, 2500)))
    done = following(source, sink, lambda n: n == 500)
    assert (done.rows, done.skipped) == (500, ())
    assert "no more are, until a backfill has read some" in caplog.text
    backfilled(source, sink)
    memory.write("from", rows(*range(3000, 3500)))
    assert following(source, sink, lambda n: n == 50).skipped != ()
    backfilled(source, sink)
    assert each_once(memory, [*range(1010), *range(2000, 2500), *range(3000, 3500)])


def test_skipping_can_be_switched_off(memory: Memory, late: Path, sink: Path) -> None:
    following(late, sink, lambda n: n == 60)
    memory.write("from", rows(*range(2000, 2500)))
    plain = memory.stream("from", fresh__within__millis="0")
    done = following(plain, sink, lambda n: n == 500)
    # What was skipped before is still known.
    assert done.position.skipped == (range_of(0, 950, done.position),)
    backfilled(plain, sink)
    assert each_once(memory, [*range(1010), *range(2000, 2500)])


def test_backfill_continues_within_a_range(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    few = {"batch__rows": "100"}
    stop = threading.Event()
    with opened_backfill(late, sink, **few) as copy:
        first = copy.run(stop, on_progress=lambda n: stop.set() if n else None)
    assert (first.rows, first.complete) == (100, False)
    assert backfilled(late, sink).rows == 850
    assert each_once(memory, range(1010))


def test_partitions_that_are_added_are_read(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    memory.log("from").grow(3)
    memory.write("from", rows(*range(5000, 5400)), partition=2)
    done = following(late, sink, lambda n: n == 50)
    assert [one.partition.id for one in done.position.skipped] == [0, 2]
    assert backfilled(late, sink).rows == 950 + 350
    assert each_once(memory, [*range(1010), *range(5000, 5400)])


def test_range_that_retention_removed_is_a_loss(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    memory.log("from").truncate({0: 900})
    with pytest.raises(OffsetOutOfRange):
        backfilled(late, sink)
    done = backfilled(late, sink, out__of__range="earliest")
    [loss] = done.losses
    assert (loss.start, loss.end, loss.cause) == (0, 900, "retention")
    assert done.rows == 50
    assert each_once(memory, range(900, 1010))
    assert backfilled(late, sink).losses == ()


def test_range_of_a_topic_that_was_recreated_is_a_loss(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    recreate(memory)
    memory.write("from", rows(*range(7000, 7020)))
    earliest = memory.stream(
        "from", fresh__within__rows="100", out__of__range="earliest"
    )
    done = following(earliest, sink, lambda n: n == 20)
    assert done.rows == 20
    filled = backfilled(earliest, sink)
    assert (filled.rows, filled.complete) == (0, True)
    [loss] = filled.losses
    assert (loss.start, loss.end, loss.cause) == (0, 950, "incarnation")
    # Ranges of the topic as it is now follow.
    memory.write("from", rows(*range(8000, 8500)))
    following(earliest, sink, lambda n: n == 50)
    assert backfilled(earliest, sink).rows == 450
    wanted = [*range(950, 1010), *range(7000, 7020), *range(8000, 8500)]
    assert each_once(memory, wanted)


def test_ranges_of_another_stream_are_refused(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    memory.create("else", SCHEMA)
    with pytest.raises(PositionRefused, match="what was skipped has partition from-0"):
        backfilled(memory.stream("else"), sink)


def test_copy_is_refused_as_the_writer_of_a_backfill(
    memory: Memory, late: Path, sink: Path
) -> None:
    with pytest.raises(MisuseError, match="'w/backfill' is that of a backfill"):
        copied(late, sink, writer_id="w/backfill")


def recreate(memory: Memory) -> None:
    from streamfactory.backends.memory import store

    store(memory.name).delete("from")
    memory.create("from", SCHEMA, partitions=2)


def test_commands_show_what_was_skipped_and_read_it(
    memory: Memory, late: Path, sink: Path, streamfactory: Command
) -> None:
    following(late, sink, lambda n: n == 60)
    listed = streamfactory("backfill", late, sink, "--list")
    assert listed.out == "skipped: from-0, 0 to 950\nto read: 950 offsets\n"
    assert streamfactory("backfill", late, sink, "--list", "--json").json["ranges"]
    done = streamfactory("backfill", late, sink, "--json")
    assert (done.status, done.json["rows"]) == (0, 950)
    assert done.json["writer"] == f"{WRITER}/backfill"
    assert streamfactory("backfill", late, sink, "--list").out == "to read: 0 offsets\n"
    unknown = streamfactory("backfill", late, sink, "--writer", "other")
    assert unknown.status == 2
    assert "no copy has committed as writer id 'other'" in unknown.err


class Crash(BaseException):
    """The end of the process, at one commit."""


@pytest.mark.parametrize(
    ("when", "first", "step"),
    [
        ("before", 0, 4),
        ("after", 2, 4),
        pytest.param("before", 0, 1, marks=REPEATED),
        pytest.param("after", 0, 1, marks=REPEATED),
    ],
)
def test_end_of_the_process_around_any_commit_loses_and_repeats_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, when: str, first: int, step: int
) -> None:
    commit, left = Epochs.commit, [0]

    def crashing(epochs: Epochs, position: Position) -> None:
        left[0] -= 1
        if left[0] == -1 and when == "before":
            raise Crash
        commit(epochs, position)
        if left[0] == -1:
            raise Crash

    monkeypatch.setattr(Epochs, "commit", crashing)
    skipped = 0
    for number in range(first, 100, step):
        left[0] = number
        skipped += skip_and_fill(memory, f"from{number}", f"to{number}")
        if left[0] >= 0:
            break
    # The first run that has fewer commits than that is the last one.
    assert 8 < number < 40
    assert skipped > number / step


def a_while() -> Callable[[int], bool]:
    turns = iter(range(2))
    return lambda number: number >= 20 or next(turns, None) is None


def skip_and_fill(memory: Memory, from_: str, to: str) -> int:
    """Copy and backfill by turns, again after each crash; how many ranges skipped."""
    memory.create(from_, SCHEMA)
    memory.create(to, SCHEMA)
    source = memory.stream(from_, fresh__within__rows="40", batch__rows="20")
    few = {"realtime__segment__flush__threshold__rows": "20"}
    sink, written, skipped = memory.stream(to, **few), 0, 0
    for job in ("copy", "copy", "backfill", "copy", "backfill", "last"):
        memory.write(from_, rows(*range(written, written + 80)))
        written += 80
        while True:
            try:
                if job == "backfill":
                    backfilled(source, sink)
                elif job == "last":
                    copied(source, sink, writer_id=WRITER)
                    backfilled(source, sink)
                else:
                    skipped += len(following(source, sink, a_while()).skipped)
            except Crash:
                continue
            break
    found = Counter(one for part in ids(memory, to) for one in part)
    assert found == Counter(range(written))
    return skipped


def test_of_two_backfills_the_earlier_one_is_fenced(
    memory: Memory, late: Path, sink: Path
) -> None:
    following(late, sink, lambda n: n == 60)
    with opened_backfill(late, sink, batch__rows="100") as first:
        begun, stop = threading.Event(), threading.Event()

        def wait(_: int) -> None:
            if not begun.is_set():
                begun.set()
                assert backfilled(late, sink).rows == 950

        with pytest.raises(WriterFenced):
            first.run(stop, on_progress=wait)
    assert begun.is_set()
    assert each_once(memory, range(1010))
