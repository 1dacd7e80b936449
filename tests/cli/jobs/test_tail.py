"""`tail`: which rows, how they look, and that nothing is committed."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.cli.jobs.conftest import Memory, Place
    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*ids: int) -> pa.RecordBatch:
    columns = {"id": list(ids), "name": [f"n{n}" for n in ids]}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


@pytest.fixture
def clicks(memory: Memory) -> Memory:
    """Ids 0 to 9 in partition 0, and 10, 11 in partition 1."""
    memory.create("clicks", SCHEMA, partitions=2)
    memory.write("clicks", rows(*range(10)))
    memory.write("clicks", rows(10, 11), partition=1)
    return memory


def shown(done: Outcome) -> list[int]:
    assert done.status == 0, done.err
    return [json.loads(line)["id"] for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), [*range(12)]),
        (("-n", 1), [11]),
        (("-n", 3), [9, 10, 11]),
        (("--where", "id % 5 = 1"), [1, 6, 11]),
        (("--where", "_partition = 0 and id > 3", "-n", 2), [8, 9]),
        (("-n", 0), []),
        (("--partition", 1), [10, 11]),
        (("--partition", 1, "-n", 1), [11]),
        (("--from", "latest"), []),
        (("--from", "earliest"), [*range(12)]),
        (("--from", '{"clicks": {"0": 7, "1": 2}}'), [7, 8, 9]),
        (("--from", "1h"), [*range(12)]),
        (("--from", "2100-01-01T00:00:00Z"), []),
        (("--from", "2001-01-01T00:00:00Z"), [*range(12)]),
    ],
)
def test_rows_are_chosen(
    options: tuple[object, ...],
    ids: list[int],
    clicks: Memory,
    streamfactory: Command,
) -> None:
    line = ("tail", clicks.stream("clicks"), "--no-follow", "--json")
    assert sorted(shown(streamfactory(*line, *options))) == ids


def test_table_is_for_people(clicks: Memory, streamfactory: Command) -> None:
    done = streamfactory("tail", clicks.stream("clicks"), "--no-follow", "-n", 3)
    assert done.out == "id  name\n9   n9\n10  n10\n11  n11\n"


def test_columns_are_chosen(clicks: Memory, streamfactory: Command) -> None:
    line = ("tail", clicks.stream("clicks"), "--no-follow", "--partition", 1)
    done = streamfactory(*line, "--columns", "name, id", "--json")
    assert done.out.splitlines()[0] == '{"name": "n10", "id": 10}'
    wrong = streamfactory(*line, "--columns", "nome", "--json")
    assert wrong.status == 2
    assert "column 'nome' does not exist" in wrong.error["what"]


def test_values_of_every_kind_are_shown(memory: Memory, streamfactory: Command) -> None:
    given: dict[str, Any] = {
        "text": "a\x1b[31m\nb",
        "octets": b"\xffA",
        "number": float("nan"),
        "at": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "nested": [{"x": b"\x00", "y": float("inf")}],
        "nothing": None,
    }
    batch = pa.RecordBatch.from_pylist([given])
    nano = pa.array([1], pa.timestamp("ns"))
    batch = batch.append_column("nano", nano)
    memory.create("t", batch.schema)
    memory.write("t", batch)
    line = ("tail", memory.stream("t"), "--no-follow")
    (row,) = [
        json.loads(text) for text in streamfactory(*line, "--json").out.splitlines()
    ]
    assert row == {
        "text": "a\x1b[31m\nb",
        "octets": "/0E=",
        "number": "NaN",
        "at": "2024-01-02T03:04:05.000006Z",
        "nested": [{"x": "AA==", "y": "Infinity"}],
        "nothing": None,
        "nano": "1970-01-01T00:00:00.000000001",
    }
    table = streamfactory(*line).out
    assert len(table.splitlines()) == 2
    assert "a\\x1b[31m\\nb" in table
    assert "\x1b" not in table


def test_values_that_python_has_none_for_are_shown(
    memory: Memory, streamfactory: Command
) -> None:
    twins = [pa.array([1]), pa.array(["x"])]
    columns: dict[str, pa.Array] = {
        "clock": pa.array([1], pa.int64()).view(pa.time64("ns")),
        "day": pa.array([2_932_897], pa.int32()).view(pa.date32()),
        "at": pa.array([2**62], pa.int64()).view(pa.timestamp("s", "Mars/Olympus")),
        "lapse": pa.array([2**63 - 1], pa.int64()).view(pa.duration("s")),
        "twins": pa.StructArray.from_arrays(twins, names=["a", "a"]),
    }
    batch = pa.record_batch(columns)
    memory.create("t", batch.schema)
    memory.write("t", batch)
    line = ("tail", memory.stream("t"), "--no-follow")
    done = streamfactory(*line, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out) == {
        "clock": "00:00:00.000000001",
        "day": "+10000-01-01",
        "at": "+146138514283-06-19T07:45:04Z",
        "lapse": "P106751991167300DT15H30M7S",
        "twins": [["a", 1], ["a", "x"]],
    }
    table = streamfactory(*line)
    assert table.status == 0, table.err
    assert "+10000-01-01" in table.out


def test_loss_is_reported_on_standard_error(
    clicks: Memory, streamfactory: Command
) -> None:
    clicks.log("clicks").truncate({0: 8})
    stream = clicks.stream("clicks", out__of__range="earliest")
    line = ("tail", stream, "--no-follow", "--from", '{"clicks": {"0": 3, "1": 2}}')
    done = streamfactory(*line, "--json")
    assert shown(done) == [8, 9]
    assert "partition clicks-0: lost 3 to 8 (retention)" in done.err
    strict = streamfactory(*line, "--set", "out.of.range=fail", "--json")
    assert strict.status == 1
    assert strict.error["error"] == "offset_out_of_range"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from", "yesterday"), "'yesterday' is none of smallest"),
        (("--from", "{"), "is not JSON"),
        (("--from", '{"other": {"0": 1}}'), "which is not of this stream"),
        (("--from", "latest", "-n", 1), "--from and -n exclude each other"),
        (("--partition", 7), "name one of 0, 1"),
        (("--columns", "a,,b"), "wanted names separated by commas"),
    ],
)
def test_mistake_on_the_line_is_reported(
    options: tuple[object, ...], message: str, clicks: Memory, streamfactory: Command
) -> None:
    done = streamfactory("tail", clicks.stream("clicks"), "--no-follow", *options)
    assert done.status in (1, 2)
    assert message in done.err
    assert done.out == ""


def test_following_prints_new_rows_until_a_signal(
    place: Place, start: Callable[..., subprocess.Popen[str]]
) -> None:
    stream = place.stream("t")
    place.write("t", [1, 2, 3])
    child = start("tail", stream, "-n", 1, "--json")
    assert child.stdout is not None
    assert json.loads(child.stdout.readline()) == {"number": 3}
    for number in (4, 5):
        place.write("t", [number])
        assert json.loads(child.stdout.readline()) == {"number": number}
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out, err) == (0, "", "")


def test_reader_that_has_enough_is_no_error(
    place: Place, start: Callable[..., subprocess.Popen[str]]
) -> None:
    stream = place.stream("t")
    for begin in range(0, 100_000, 10_000):
        place.write("t", range(begin, begin + 10_000))
    child = start("tail", stream, "--no-follow", "--json")
    assert child.stdout is not None
    assert child.stdout.readline() == '{"number": 0}\n'
    child.stdout.close()
    assert child.wait(120) == 0
    assert child.stderr is not None
    assert child.stderr.read() == ""
