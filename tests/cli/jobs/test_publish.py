"""`publish`: what goes in, what it becomes, and how it goes on."""

from __future__ import annotations

import gzip
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from streamfactory.backends.memory import store

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.jobs.conftest import Memory, Place
    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]

ROWS = [{"id": n, "name": f"n{n}"} for n in range(10)]
TABLE = pa.Table.from_pylist(ROWS)
SMALL = ("--set", "batch.bytes=40", "--set", "realtime.segment.flush.threshold.rows=3")


def csv(rows: list[dict[str, Any]] = ROWS) -> str:
    return "id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in rows)


def flat(memory: Memory, topic: str = "t") -> list[dict[str, Any]]:
    return [row for partition in memory.rows(topic) for row in partition]


def write_csv(path: Path, rows: pa.Table = TABLE) -> None:
    path.write_text(csv(rows.to_pylist()))


def write_json(path: Path, rows: pa.Table = TABLE) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))


def write_parquet(path: Path, rows: pa.Table = TABLE) -> None:
    parquet.write_table(rows, path, row_group_size=4)


def write_arrow_file(path: Path, rows: pa.Table = TABLE) -> None:
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=3)


def write_arrow_stream(path: Path, rows: pa.Table = TABLE) -> None:
    with pa.ipc.new_stream(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=3)


def write_gzip(path: Path, rows: pa.Table = TABLE) -> None:
    path.write_bytes(gzip.compress(csv(rows.to_pylist()).encode()))


WRITERS: dict[str, Callable[..., None]] = {
    "a.csv": write_csv,
    "a.jsonl": write_json,
    "a.parquet": write_parquet,
    "a.arrow": write_arrow_file,
    "a.arrows": write_arrow_stream,
    "a.csv.gz": write_gzip,
}


# --- formats --------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_published(
    name: str, memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path / name)
    done = streamfactory("publish", memory.stream("t"), tmp_path / name, "--json")
    assert done.status == 0, done.err
    assert flat(memory) == ROWS
    assert (done.json["rows"], done.json["complete"], done.json["created"]) == (
        10,
        True,
        True,
    )
    assert done.json["schema"] == "id bigint, name string"


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_continues_at_its_position(
    name: str, memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    """A second input, damaged, ends the first run; mended, only it is published."""
    WRITERS[name](tmp_path / name)
    bad = tmp_path / "bad.csv"
    bad.write_text("id,name\nx,y\n")
    line = ("publish", memory.stream("t"), tmp_path / name, bad, "--writer", "w")
    failed = streamfactory(*line, *SMALL, "--json")
    assert failed.status == 1
    assert failed.error["error"] == "decode"
    assert flat(memory) == ROWS
    bad.write_text("id,name\n10,y\n")
    done = streamfactory(*line, "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 1
    assert done.json["skipped"] > 0
    assert flat(memory) == [*ROWS, {"id": 10, "name": "y"}]


def test_values_may_hold_newlines_quotes_and_delimiters(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    rows = [
        {"id": n, "name": f'a "quoted";\nline {n}'.replace("\\", "")} for n in range(50)
    ]
    lines = [
        '{id};"{name}"'.format(id=row["id"], name=str(row["name"]).replace('"', '""'))
        for row in rows
    ]
    (tmp_path / "a.csv").write_text("id;name\n" + "\n".join(lines))
    done = streamfactory(
        "publish", memory.stream("t"), tmp_path / "a.csv", "--delimiter", ";", *SMALL
    )
    assert done.status == 0, done.err
    assert flat(memory) == rows


def test_quote_within_a_bare_value_quotes_nothing(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('id,name\n1,5" pipe\n2,b\n3,c\n4,d\n5,e\n6,f\n')
    done = streamfactory("publish", memory.stream("t"), tmp_path / "a.csv", *SMALL)
    assert done.status == 0, done.err
    assert [row["name"] for row in flat(memory)] == ['5" pipe', "b", "c", "d", "e", "f"]


def test_csv_without_header_takes_its_names_from_the_schema(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\n2\ty\n")
    line = ("publish", memory.stream("t"), tmp_path / "a.tsv", "--no-header")
    refused = streamfactory(*line, "--json")
    assert refused.status == 2
    assert refused.error["remedy"] == "declare them with --schema"
    done = streamfactory(*line, "--schema", "id bigint not null, name string")
    assert done.status == 0, done.err
    assert flat(memory) == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    assert memory.log("t").schema.field("id").nullable is False


def test_schema_reports_what_the_columns_are(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,price\n1,2.50\n")
    schema = "id string, price decimal(9,2), note string"
    done = streamfactory(
        "publish", memory.stream("t"), tmp_path / "a.csv", "--schema", schema
    )
    assert done.status == 0, done.err
    (row,) = flat(memory)
    assert (row["id"], str(row["price"]), row["note"]) == ("1", "2.50", None)
    assert f"note: schema: {schema}" in done.err


def test_types_of_the_stream_hold_over_guesses(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    memory.create("t", schema)
    (tmp_path / "a.csv").write_text("id,at\n007,2024-01-02T03:04:05Z\n")
    (tmp_path / "a.json").write_text('{"id": "8", "at": "2024-01-02T03:04:05Z"}\n')
    done = streamfactory(
        "publish", memory.stream("t"), tmp_path / "a.csv", tmp_path / "a.json"
    )
    assert done.status == 0, done.err
    assert [row["id"] for row in flat(memory)] == ["007", "8"]
    assert {row["at"].hour for row in flat(memory)} == {3}


def test_messages_keep_key_and_timestamp(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    stream = memory.stream("t", stream__memory__decoder__class__name="raw")
    (tmp_path / "a.csv").write_text(
        "value,_key,_timestamp\nhello,k,2024-01-01T00:00:00Z\n"
    )
    done = streamfactory("publish", stream, tmp_path / "a.csv")
    assert done.status == 0, done.err
    (row,) = flat(memory)
    assert (row["key"], row["value"], row["timestamp"].year) == (b"k", b"hello", 2024)


# --- topics ---------------------------------------------------------------------------


def test_rows_without_a_key_are_spread_over_the_partitions(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    write_csv(tmp_path / "a.csv")
    done = streamfactory(
        *("publish", memory.stream("t"), tmp_path / "a.csv", "--partitions", 3),
        *("--set", "batch.rows=2"),
    )
    assert done.status == 0, done.err
    partitions = [[row["id"] for row in partition] for partition in memory.rows("t")]
    assert partitions == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5]]


def test_rows_with_a_key_go_where_the_key_says(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(csv(ROWS + ROWS))
    stream = memory.stream("t", producer__key__columns="id")
    done = streamfactory("publish", stream, tmp_path / "a.csv", "--partitions", 3)
    assert done.status == 0, done.err
    partitions = [{row["id"] for row in partition} for partition in memory.rows("t")]
    assert sum(len(partition) for partition in partitions) == 10


def test_topic_is_not_created_against_ones_will(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    write_csv(tmp_path / "a.csv")
    done = streamfactory(
        "publish", memory.stream("t"), tmp_path / "a.csv", "--no-create", "--json"
    )
    assert done.status == 1
    assert done.error["error"] == "topic_not_found"
    assert done.error["remedy"] == "omit --no-create"
    memory.create("t", TABLE.schema)
    done = streamfactory(
        "publish", memory.stream("t"), tmp_path / "a.csv", "--no-create"
    )
    assert done.status == 0, done.err


# --- what does not fit ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["a", "a"], "a.arrow: the schema has several columns named 'a'"),
        ([], "the rows have no columns"),
    ],
)
def test_unreadable_rows_leave_no_topic(
    memory: Memory,
    streamfactory: Command,
    tmp_path: Path,
    names: list[str],
    what: str,
) -> None:
    table = pa.Table.from_arrays([pa.array([1]) for _ in names], names=names)
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    done = streamfactory("publish", memory.stream("t"), path)
    assert done.status == 1
    assert what in done.err
    assert "t" not in store(memory.name).names()


def test_column_that_does_not_fit_is_named_before_a_row_is_written(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    memory.create("t", pa.schema([("id", pa.int64())]))
    write_csv(tmp_path / "a.csv")
    done = streamfactory("publish", memory.stream("t"), tmp_path / "a.csv", "--json")
    assert done.status == 1
    assert done.error["error"] == "schema_mismatch"
    assert done.error["what"] == (
        "the columns do not fit the topic 't': unknown: 'name'"
    )
    assert flat(memory) == []


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_input_of_other_types_names_the_topic_and_its_columns(
    memory: Memory, streamfactory: Command, tmp_path: Path, name: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    memory.create("t", schema)
    path = tmp_path / name
    texts = {"a.csv": "id,at\nx,\n", "a.jsonl": '{"id": "x", "at": null}\n'}
    if name in texts:
        path.write_text(texts[name])
    else:
        parquet.write_table(pa.table({"id": ["x"]}), path)
    done = streamfactory("publish", memory.stream("t"), path, "--json")
    assert done.status == 1
    assert "topic 't'" in done.error["remedy"]
    assert done.error["remedy"].endswith("id bigint, at timestamp_ntz")
    assert flat(memory) == []


def test_all_columns_that_do_not_fit_are_named_with_those_of_the_topic(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    fields = [pa.field("id", pa.int64()), pa.field("at", pa.int64(), nullable=False)]
    memory.create("t", pa.schema(fields))
    (tmp_path / "a.csv").write_text("id,user,page\n1,ann,2\n")
    done = streamfactory("publish", memory.stream("t"), tmp_path / "a.csv", "--json")
    assert done.status == 1
    assert done.error["what"] == (
        "the columns do not fit the topic 't': unknown: 'user', 'page'; missing: 'at'"
    )
    assert done.error["remedy"] == (
        "rename the columns, or publish to another topic; this one has id bigint, "
        "at bigint"
    )
    (tmp_path / "a.csv").write_text("id\n1\n")
    done = streamfactory("publish", memory.stream("t"), tmp_path / "a.csv", "--json")
    assert done.error["what"].endswith("the topic 't': missing: 'at'")
    assert flat(memory) == []


@pytest.mark.parametrize("content", ['[{"id": 1}]', '[\n  {"id": 1}\n]\n'])
@pytest.mark.parametrize("given", [(), ("--schema", "id bigint")])
def test_json_array_is_refused_with_what_is_expected(
    content: str,
    given: tuple[str, ...],
    memory: Memory,
    streamfactory: Command,
    tmp_path: Path,
) -> None:
    (tmp_path / "a.json").write_text(content)
    line = ("publish", memory.stream("t"), tmp_path / "a.json", *given, "--json")
    done = streamfactory(*line)
    assert done.status == 1
    assert done.error["what"].endswith(
        "one JSON object a line is expected, not an array"
    )
    assert done.error["remedy"] == (
        "write each object of the array on one line, as `jq -c '.[]'` does"
    )


@pytest.mark.parametrize(
    ("name", "amount"), [("a.csv", "58 bytes"), ("a.parquet", "10 rows")]
)
def test_run_that_finds_everything_published_reports_it(
    name: str, amount: str, memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path / name)
    line = ("publish", memory.stream("t"), tmp_path / name, "--writer", "w")
    first, again = streamfactory(*line), streamfactory(*line)
    assert "before" not in first.err
    assert again.out.startswith("t: 0 rows in 0 epochs")
    assert f"note: {amount} of the inputs were published before by writer 'w'" in (
        again.err
    )


def test_bad_value_names_the_place_and_keeps_earlier_rows(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv() + "x,y\n")
    done = streamfactory(
        "publish", memory.stream("t"), path, "--writer", "w", *SMALL, "--json"
    )
    assert done.status == 1
    assert done.error["error"] == "decode"
    place = f"{path}, line 12, row 11, bytes 58 to 62"
    what = f"{place}: column 'id' does not contain a valid bigint"
    assert done.error["what"] == what
    assert done.error["remedy"].startswith(
        "the types were guessed: pass --schema 'id string, name string', which fits "
        "these rows"
    )
    kept = flat(memory)
    assert kept == ROWS[: len(kept)]
    assert kept
    path.write_text(csv() + "10,y\n")
    done = streamfactory("publish", memory.stream("t"), path, "--writer", "w")
    assert done.status == 0, done.err
    assert flat(memory) == [*ROWS, {"id": 10, "name": "y"}]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.csv", b"", "format_refused"),
        ("a.csv", b"a,a\n1,2\n", "format_refused"),
        ("a.json", b"", "schema_unknown"),
        ("a.json", b"[1, 2]\n", "format_refused"),
        ("a.parquet", b"PAR1 and no more", "format_refused"),
        ("a.arrow", b"ARROW1\0\0 and no more", "format_refused"),
        ("a.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f", "format_refused"),
        ("a.csv.gz", b"not packed at all", "storage_failed"),
        ("a.txt", b"x", "misuse"),
    ],
)
def test_input_that_is_none_is_refused(
    name: str,
    content: bytes,
    code: str,
    memory: Memory,
    streamfactory: Command,
    tmp_path: Path,
) -> None:
    (tmp_path / name).write_bytes(content)
    done = streamfactory("publish", memory.stream("t"), tmp_path / name, "--json")
    assert done.status in (1, 2), done.err
    assert done.error["error"] == code, done.err
    assert str(tmp_path / name) in done.error["what"]


def test_arrow_file_cut_off_anywhere_gives_whole_batches_only(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    write_arrow_file(tmp_path / "whole.arrow")
    whole = (tmp_path / "whole.arrow").read_bytes()
    for number, length in enumerate(range(9, len(whole), 97)):
        topic = f"t{number}"
        (tmp_path / "a.arrow").write_bytes(whole[:length])
        done = streamfactory("publish", memory.stream(topic), tmp_path / "a.arrow")
        assert done.status in (0, 1), done.err
        found = flat(memory, topic) if done.status == 0 or "created" in done.err else []
        assert found == ROWS[: len(found)]
        assert len(found) in (0, 3, 6, 9, 10)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["nowhere.csv"], "nowhere.csv cannot be read: No such file or directory"),
        (["-"], "the format of standard input is unknown"),
        (["-", "-", "--format", "csv"], "standard input is given twice"),
        (["-", "--format", "parquet"], "Parquet cannot be read from standard input"),
        (["a.csv", "--schema", "id nothing"], "is not a schema: found 'nothing'"),
        (["a.csv", "--delimiter", "ab"], "wanted one ASCII character"),
    ],
)
def test_mistake_on_the_line_is_reported(
    line: list[str],
    message: str,
    memory: Memory,
    streamfactory: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv")
    done = streamfactory("publish", memory.stream("t"), *line)
    assert done.status in (1, 2)
    assert message in done.err


# --- going on -------------------------------------------------------------------------


def test_input_that_only_grew_is_continued(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv(ROWS[:4]))
    line = ("publish", memory.stream("t"), path, "--writer", "w")
    assert streamfactory(*line).status == 0
    path.write_text(csv())
    done = streamfactory(*line, "--json")
    assert done.json["rows"] == 6
    assert flat(memory) == ROWS
    assert streamfactory(*line, "--json").json["rows"] == 0


@pytest.mark.parametrize("name", WRITERS)
def test_input_that_changed_is_refused(
    name: str, memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    line = ("publish", memory.stream("t"), path, "--writer", "w", "--json")
    assert streamfactory(*line).status == 0
    WRITERS[name](path, TABLE.set_column(0, "id", pa.array(range(1, 11))))
    done = streamfactory(*line)
    assert done.status == 1
    assert done.error["error"] == "position_refused"
    assert (
        f"{path} is not the input that was published with this writer id"
        in done.error["what"]
    )
    assert flat(memory) == ROWS


def test_input_that_became_shorter_is_refused(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv())
    line = ("publish", memory.stream("t"), path, "--writer", "w", "--json")
    assert streamfactory(*line).status == 0
    path.write_text(csv(ROWS[:2]))
    assert "it has 18 bytes, not 58" in streamfactory(*line).error["what"]


def test_line_that_was_not_finished_is_published_when_it_is(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,name\n1,a\n2,b")
    line = ("publish", memory.stream("t"), path, "--writer", "w")
    first = streamfactory(*line)
    assert first.status == 0
    assert "a.csv: the line of 3 bytes at its end has no line end" in first.err
    assert flat(memory) == [{"id": 1, "name": "a"}]
    path.write_text("id,name\n1,a\n2,bcd\n3")
    assert streamfactory(*line).status == 0
    path.write_text("id,name\n1,a\n2,bcd\n3,e\n")
    assert streamfactory(*line, "--json").json["rows"] == 1
    names = [(row["id"], row["name"]) for row in flat(memory)]
    assert names == [(1, "a"), (2, "bcd"), (3, "e")]


@pytest.mark.parametrize("text", ["id,na", "id,name\n", "id,name\n1"])
def test_types_are_not_guessed_from_a_line_that_was_not_finished(
    memory: Memory, streamfactory: Command, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    line = ("publish", memory.stream("t"), path, "--writer", "w", "--json")
    if not text.endswith("\n"):
        assert "no complete" in streamfactory(*line).error["what"]
        path.write_text("id,name\n12,a\n")
        assert streamfactory(*line).json["rows"] == 1
        assert flat(memory) == [{"id": 12, "name": "a"}]


def test_line_at_the_end_of_a_file_that_is_written_is_not_published(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    with path.open("w") as written:
        written.write("id\n1\n2")
        written.flush()
        open_file = streamfactory("publish", memory.stream("t"), path)
        assert "has no line end" in open_file.err
        written.write("3")
    closed = streamfactory("publish", memory.stream("u"), path)
    assert "has no line end" not in closed.err
    assert flat(memory) == [{"id": 1}]
    assert flat(memory, "u") == [{"id": 1}, {"id": 23}]


def test_published_line_that_went_on_growing_is_refused(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}')
    line = ("publish", memory.stream("t"), path, "--writer", "w", "--json")
    assert streamfactory(*line).status == 0
    path.write_text('{"id": 1}\n{"id": 2}\n')
    assert streamfactory(*line).json["rows"] == 1
    path.write_text('{"id": 1}')
    other = ("publish", memory.stream("u"), path, "--writer", "w", "--json")
    assert streamfactory(*other).status == 0
    path.write_text('{"id": 1} {"id": 2}\n')
    assert "has grown" in streamfactory(*other).error["what"]
    assert flat(memory, "u") == [{"id": 1}]


def test_writer_of_something_else_is_refused(
    memory: Memory, streamfactory: Command, tmp_path: Path
) -> None:
    write_csv(tmp_path / "a.csv")
    write_csv(tmp_path / "b.csv")
    line = ("publish", memory.stream("t"))
    both = (tmp_path / "a.csv", tmp_path / "b.csv")
    assert streamfactory(*line, *both, "--writer", "w").status == 0
    fewer = streamfactory(*line, tmp_path / "a.csv", "--writer", "w", "--json")
    assert fewer.error["what"] == (
        "2 inputs were published with writer id 'w', but 1 were passed"
    )
    copied = streamfactory(
        "copy", memory.stream("t"), memory.stream("u"), "--writer", "c"
    )
    assert copied.status == 0, copied.err
    foreign = streamfactory(
        "publish", memory.stream("u"), tmp_path / "a.csv", "--writer", "c", "--json"
    )
    assert (
        foreign.error["what"] == "writer id 'c' was used by a writer other than publish"
    )


def test_guarantee_is_reported_and_held_to(
    place: Place, program: Command, tmp_path: Path
) -> None:
    stream = place.stream("t")
    (tmp_path / "a.csv").write_text("number\n1\n2\n")
    line = ("publish", stream, "a.csv", "--json")
    wanted = ("--set", "guarantee=exactly-once")
    refused = program(*line, *wanted)
    assert refused.status == 2
    assert refused.error["error"] == "guarantee_refused"
    weak = program(*line).json
    assert weak["guarantee"] == "at-least-once"
    assert weak["reasons"] == [
        "there is no writer id, so a repeated epoch cannot be recognised"
    ]
    strong = program(*line, "--writer", "w", *wanted).json
    assert (strong["guarantee"], strong["reasons"]) == ("exactly-once", [])
    assert place.numbers("t") == [[1, 2, 1, 2]]


# --- standard input -------------------------------------------------------------------


def wait_for(place: Place, numbers: list[int], child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            found = place.numbers("t")
        except LookupError:
            found = []
        if found == [numbers]:
            return
        assert child.poll() is None
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_idle_standard_input_is_flushed_by_time(
    place: Place, start: Callable[..., subprocess.Popen[str]]
) -> None:
    short = "realtime.segment.flush.threshold.time=100ms"
    line = ("publish", place.stream("t"), "-", "--format", "json", "--json")
    child = start(*line, "--set", short)
    assert child.stdin is not None
    for number in range(3):
        child.stdin.write(f'{{"number": {number}}}\n')
        child.stdin.flush()
        wait_for(place, list(range(number + 1)), child)
    child.stdin.write('{"number": 3}')  # no newline: the end of the input ends it
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    assert json.loads(out)["rows"] == 4
    assert place.numbers("t") == [[0, 1, 2, 3]]


def test_standard_input_continues_when_it_repeats_its_rows(
    place: Place, program: Command
) -> None:
    line = ("publish", place.stream("t"), "-", "--format", "csv", "--writer", "w")
    assert program(*line, text="number\n1\n2\n").status == 0
    done = program(*line, "--json", text="number\n1\n2\n3\n")
    assert done.json["rows"] == 1
    assert done.json["reasons"] == [
        "provided that standard input has the same bytes again"
    ]
    refused = program(*line, "--json", text="number\n1\n4\n3\n")
    assert refused.error["error"] == "position_refused"
    assert place.numbers("t") == [[1, 2, 3]]


# --- size -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1000, 30_000, 65_536, 100_000, 300_000])
def test_batches_of_every_size_arrive_whole(
    size: int, place: Place, program: Command, tmp_path: Path
) -> None:
    table = pa.table({"number": pa.arange(0, 300_000)})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=size)
    rows = ("--set", "batch.rows=1000000")
    done = program("publish", place.stream("t"), "a.arrow", "--json", *rows)
    assert done.json["rows"] == 300_000
    assert place.numbers("t") == [list(range(300_000))]
