"""`topics export`: which rows, in which files, whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.specimens import PARTITION_0, Author, rows

from streamfactory.spi import (
    BatchState,
    Fetched,
    Finished,
    IncarnationChanged,
    MisuseError,
    PartitionInfo,
    StorageFailed,
    StreamTimeout,
)
from streamfactory.transfer.exporting import open_export

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome
    from tests.topics.conftest import Place

    from streamfactory.spi import FetchLimits

    Command = Callable[..., Outcome]

DEADLINE = 180.0


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return parquet.read_table(path)
    opener = pa.ipc.open_stream if path.suffix == ".arrows" else pa.ipc.open_file
    with path.open("rb") as file:
        return opener(file).read_all()


def ids(path: Path) -> list[int]:
    found: list[int] = read(path).column("id").to_pylist()
    return found


def left(folder: Path) -> list[str]:
    """What there is beside streams and topics, hidden files too."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.name != "topics" and path.suffix != ".json"
    )


# --- which rows -----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_a_topic_becomes_a_plain_file(
    suffix: str, place: Place, topics: Command, tmp_path: Path
) -> None:
    stream = place.numbers("clicks", 3, 2)
    path = tmp_path / f"out.{suffix}"
    done = topics("export", stream, path, "--json")
    assert (done.status, done.err) == (0, "")
    assert ids(path) == [0, 1, 2, 0, 1]
    assert read(path).schema.names == ["id"]
    answer = done.json
    assert (answer["rows"], answer["files"]) == (5, [str(path)])
    assert answer["bytes"] == path.stat().st_size
    assert answer["position"]["offsets"] == {"clicks": {"0": 3, "1": 2}}
    assert answer["partitions"][1] == {"partition": 1, "start": 0, "end": 2, "rows": 2}
    assert left(tmp_path) == [f"out.{suffix}"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--from", "3"), [3, 4, 3]),
        (("--to", "1"), [0, 0]),
        (("--from", "1", "--to", "3"), [1, 2, 1, 2]),
        (("--from", "0=4"), [4, 0, 1, 2, 3]),
        (("--from", "0=4", "--from", "1=latest"), [4]),
        (("--partition", "1"), [0, 1, 2, 3]),
        (("--partition", "1", "--from", "2"), [2, 3]),
        (("--from", "latest"), []),
        (("--to", "earliest"), []),
        (("--from", "1h"), [0, 1, 2, 3, 4, 0, 1, 2, 3]),
        (("--to", "1h"), []),
        (("--from", "2100-01-01T00:00:00Z"), []),
        (("--from", '{"clicks": {"0": 4}}'), [4, 0, 1, 2, 3]),
        (("--to", '{"clicks": {"0": 2}}'), [0, 1]),
    ],
)
def test_a_range_is_exported(
    options: tuple[str, ...],
    expected: list[int],
    place: Place,
    topics: Command,
    tmp_path: Path,
) -> None:
    stream = place.numbers("clicks", 5, 4)
    done = topics("export", stream, "out.parquet", *options, "--json")
    assert done.status == 0, done.err
    assert ids(tmp_path / "out.parquet") == expected
    assert done.json["rows"] == len(expected)


def test_an_export_continues_at_the_end_of_the_last_one(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    stream = place.numbers("clicks", 3)
    first = topics("export", stream, "1.arrow", "--json").json
    place.write("clicks", {"id": [3, 4]})
    position = json.dumps(first["position"])
    topics("export", stream, "2.arrow", "--from", position)
    assert (ids(tmp_path / "1.arrow"), ids(tmp_path / "2.arrow")) == ([0, 1, 2], [3, 4])
    topics("delete", stream, "--yes")
    place.numbers("clicks", 9)
    done = topics("export", stream, "3.arrow", "--from", position, "--json")
    assert (done.status, done.error["error"]) == (1, "incarnation_changed")
    assert not (tmp_path / "3.arrow").exists()


def test_text_prints_rows_bytes_and_position(memory: Place, topics: Command) -> None:
    stream = memory.numbers("clicks", 3)
    done = topics("export", stream, "out.arrow")
    size = Path("out.arrow").stat().st_size
    first, second = done.out.splitlines()
    assert first.startswith(f"clicks: 3 rows, {size} bytes in 1 file, 0.")
    assert second == 'position: {"clicks": {"0": 3}}'


def test_rows_carry_their_place_on_request(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    stream = place.numbers("clicks", 2, 2)
    line = ("export", stream, "out.parquet", "--set", "metadata.columns=true")
    assert topics(*line, "--from", 1).status == 0
    assert read(tmp_path / "out.parquet").to_pylist() == [
        {"id": 1, "_topic": "clicks", "_partition": 0, "_offset": 1},
        {"id": 1, "_topic": "clicks", "_partition": 1, "_offset": 1},
    ]


def test_messages_are_decoded_as_the_stream_says(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    options = {
        f"stream__{place.type}__messages": "true",
        f"stream__{place.type}__decoder__class__name": "raw",
    }
    key = f"stream.{place.type}"
    place.write(
        "events",
        {"value": [b"a", b"b"], "_key": [b"k", None]},
        **{f"{key}.messages": "true", f"{key}.decoder.class.name": "raw"},
    )
    undecoded = topics("export", place.stream("events"), "out.parquet", "--json")
    assert (undecoded.status, undecoded.error["error"]) == (2, "config")
    assert left(tmp_path) == []
    assert (
        topics("export", place.stream("events", **options), "out.parquet").status == 0
    )
    assert read(tmp_path / "out.parquet").column("value").to_pylist() == [b"a", b"b"]


def test_each_partition_may_have_its_file(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    stream = place.numbers("clicks", 2, 3)
    line = ("export", stream, "out", "--by-partition", "--format", "parquet", "--json")
    done = topics(*line)
    assert done.status == 0, done.err
    names = ["clicks-0.parquet", "clicks-1.parquet"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    assert [Path(name).name for name in done.json["files"]] == names
    assert ids(tmp_path / "out" / names[1]) == [0, 1, 2]
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert done.json["bytes"] == sum(sizes)
    again = topics(*line)
    assert (again.status, again.error["what"]) == (2, "out exists already")
    assert left(tmp_path) == ["out"]


@pytest.mark.parametrize("topic", ["../up", ".hidden", "a/b", "für"])
def test_no_name_of_a_topic_leads_out_of_the_folder(
    topic: str, disk: Place, tmp_path: Path
) -> None:
    disk.write(topic, {"id": [1]})
    output = tmp_path / "out"
    properties = disk.properties(topic)
    with open_export(properties, output, format="arrow", by_partition=True) as export:
        done = export.run(threading.Event())
    assert done is not None
    (file,) = done.files
    assert file.parent == output
    assert not file.name.startswith(".")
    assert ids(file) == [1]


@pytest.mark.parametrize(
    ("options", "status", "code", "what"),
    [
        (
            ("--from", "6"),
            1,
            "offset_out_of_range",
            "offset 6 is beyond the latest offset 5",
        ),
        (
            ("--to", "6"),
            1,
            "offset_out_of_range",
            "offset 6 is beyond the latest offset 5",
        ),
        (
            ("--from", "1"),
            1,
            "offset_out_of_range",
            None,
        ),
        (
            ("--from", "4", "--to", "3"),
            2,
            "misuse",
            "the range ends at 3, before its start at 4",
        ),
        (
            ("--partition", "3"),
            1,
            "topic_not_found",
            "partition 3 does not exist; available are 0",
        ),
    ],
)
def test_a_range_that_is_not_there_is_refused(
    options: tuple[str, ...],
    status: int,
    code: str,
    what: str | None,
    place: Place,
    topics: Command,
    tmp_path: Path,
) -> None:
    stream = place.numbers("clicks", 5)
    topics("truncate", stream, "--before", 2, "--yes")
    done = topics("export", stream, "out.parquet", *options, "--json")
    assert (done.status, done.error["error"]) == (status, code)
    assert what in (None, done.error["what"])
    assert left(tmp_path) == []


def test_what_is_lost_is_reported_where_the_stream_allows_it(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    stream = place.numbers("clicks", 5)
    topics("truncate", stream, "--before", 2, "--yes")
    line = ("export", stream, "out.parquet", "--from", 1)
    done = topics(*line, "--set", "out.of.range=earliest", "--json")
    assert done.status == 0
    (loss,) = done.json["losses"]
    assert (loss["partition"], loss["from"], loss["to"]) == ("clicks-0", 1, 2)
    assert ids(tmp_path / "out.parquet") == [2, 3, 4]


# --- what files hold ------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_values_stand_for_dictionaries(
    suffix: str, disk: Place, topics: Command, tmp_path: Path
) -> None:
    for words in (["a", "b"], ["c", "a"], ["d", None]):
        column = pa.array(words).dictionary_encode()
        lists = pa.ListArray.from_arrays([0, 1, 2], column)
        disk.write("words", pa.record_batch({"word": column, "list": lists}))
    done = topics("export", disk.stream("words"), f"out.{suffix}", "--json")
    assert done.status == 0, done.err
    found = read(tmp_path / f"out.{suffix}")
    assert found.schema.field("word").type == pa.string()
    assert found.schema.field("list").type == pa.list_(pa.string())
    assert found.column("word").to_pylist() == ["a", "b", "c", "a", "d", None]
    assert found.column("list").to_pylist() == [
        ["a"],
        ["b"],
        ["c"],
        ["a"],
        ["d"],
        [None],
    ]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_small_batches_are_gathered(
    suffix: str, memory: Place, topics: Command, tmp_path: Path
) -> None:
    for number in range(200):
        memory.write("clicks", {"id": [number]})
    path = tmp_path / f"out.{suffix}"
    topics("export", memory.stream("clicks"), path)
    assert ids(path) == [*range(200)]
    if suffix == "parquet":
        assert parquet.ParquetFile(path).num_row_groups == 1
    else:
        with path.open("rb") as file:
            assert pa.ipc.open_file(file).num_record_batches == 1


@pytest.mark.parametrize("at_once", [1 << 20, 65_537, 40_000, 1_000])
def test_large_exports_have_the_same_parts_however_their_rows_come(
    at_once: int, tmp_path: Path
) -> None:
    author = endless(300_000, at_once=at_once)
    for suffix in ("parquet", "arrow"):
        path = tmp_path / f"out.{suffix}"
        patient = {"stream.script.fetch.timeout.millis": "30000"}
        assert exported(author, path, options=patient).rows == 300_000
        assert ids(path) == [*range(300_000)]
    with (tmp_path / "out.arrow").open("rb") as file:
        reader = pa.ipc.open_file(file)
        parts = [reader.get_batch(n).num_rows for n in range(reader.num_record_batches)]
    assert parts == [65_536] * 4 + [300_000 - 4 * 65_536]


def test_columns_that_parquet_has_not_are_reported(
    memory: Place, topics: Command, tmp_path: Path
) -> None:
    column = pa.array([None], pa.month_day_nano_interval())
    memory.write("odd", pa.record_batch({"i": column}))
    stream = memory.stream("odd")
    done = topics("export", stream, "out.parquet", "--json")
    assert (done.status, done.error["error"]) == (2, "unsupported")
    assert done.error["what"].startswith(
        "format parquet does not support these columns: "
    )
    assert left(tmp_path) == []
    assert topics("export", stream, "out.arrow").status == 0


# --- whole or not at all --------------------------------------------------------------


def test_an_existing_file_is_kept(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    stream = place.numbers("clicks", 2)
    path = tmp_path / "out.parquet"
    path.write_text("precious")
    done = topics("export", stream, "out.parquet", "--json")
    assert (done.status, done.error["class"]) == (2, "misuse")
    assert done.error["what"] == "out.parquet exists already"
    assert done.error["remedy"] == "use another file, or pass --force to replace it"
    assert path.read_text() == "precious"
    assert topics("export", stream, "out.parquet", "--force").status == 0
    assert ids(path) == [0, 1]
    assert left(tmp_path) == ["out.parquet"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_only_files_are_replaced(
    kind: str, memory: Place, topics: Command, tmp_path: Path
) -> None:
    stream, path = memory.numbers("clicks", 2), tmp_path / "out"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    line = ("export", stream, path, "--format", "arrow", "--force", "--json")
    done = topics(*line)
    assert done.status == 2
    assert done.error["what"] == (
        f"{path} exists already, and is not a file, which could be replaced"
    )
    assert left(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("out",), "the format of out is unknown"),
        (("out.csv",), "the format of out.csv is unknown"),
        (("out.d", "--by-partition"), "the format of out.d is unknown"),
        (
            ("out", "--by-partition", "--format", "arrow", "--force"),
            "a folder is never replaced",
        ),
        (
            ("none/out.arrow",),
            "none/out.arrow cannot be written: folder none does not exist",
        ),
    ],
)
def test_a_mistaken_output_is_refused(
    words: tuple[str, ...], what: str, memory: Place, topics: Command, tmp_path: Path
) -> None:
    done = topics("export", memory.numbers("clicks", 2), *words, "--json")
    assert done.status == (1 if "none" in what else 2)
    assert done.error["what"] == what
    assert left(tmp_path) == []


def endless(
    count: int,
    on_fetch: Callable[[int], None] = lambda _: None,
    at_once: int = 1 << 20,
) -> Author:
    """A stream of numbers, which reports where it is read.

    An answer has ``at_once`` rows, or fewer.
    """
    author = Author(latest=count)

    def answer(start: int, end: int | None, limits: FetchLimits) -> Fetched:
        on_fetch(start)
        most = min(limits.max_rows, count - start, at_once)
        return rows(start, most, latest=count)

    author.always = answer
    return author


def exported(author: Author, path: Path, **how: Any) -> Any:
    options = how.pop("options", {})
    with open_export(
        author.properties(**options), path, plugins=author.manager(), **how
    ) as export:
        return export.run(how.pop("stop", threading.Event()))


def test_a_file_that_comes_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.arrow"

    def come(_: int) -> None:
        path.write_text("precious")

    author = endless(100, come)
    with pytest.raises(MisuseError) as caught:
        exported(author, path)
    assert caught.value.what == f"{path} exists already"
    assert path.read_text() == "precious"
    assert left(tmp_path) == ["out.arrow"]


def test_a_folder_that_comes_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def come(_: int) -> None:
        path.mkdir(exist_ok=True)
        (path / "precious").touch()

    with pytest.raises(MisuseError):
        exported(endless(100, come), path, by_partition=True, format="arrow")
    assert [p.name for p in path.iterdir()] == ["precious"]
    assert left(tmp_path) == ["out"]


def test_a_file_is_invisible_until_it_is_complete(tmp_path: Path) -> None:
    path, seen = tmp_path / "out.parquet", []

    def look(_: int) -> None:
        seen.append((path.exists(), [n[:13] for n in left(tmp_path)]))

    exported(endless(200_000, look), path)
    assert len(seen) > 2
    assert set(map(str, seen)) == {"(False, ['.out.parquet.'])"}
    assert left(tmp_path) == ["out.parquet"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    author = endless(200_000)

    def fail(start: int, end: int | None, limits: FetchLimits) -> Fetched:
        if start:
            msg = "the disk of the source"
            raise StorageFailed(msg)
        return rows(0, 10)

    author.always = fail
    for how in ({}, {"by_partition": True, "format": "parquet"}):
        with pytest.raises(StorageFailed) as caught:
            exported(author, tmp_path / "out.parquet", **how)
        assert caught.value.what == "the disk of the source"
        assert left(tmp_path) == []


def test_a_stop_leaves_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    author = endless(200_000, lambda start: stop.set() if start else None)
    path = tmp_path / "out.parquet"
    with open_export(author.properties(), path, plugins=author.manager()) as export:
        assert export.run(stop) is None
    assert left(tmp_path) == []
    assert author.open_consumers == 0


def test_a_source_that_gives_nothing_more_is_an_error(tmp_path: Path) -> None:
    author = Author(rows(0, 4, latest=10), latest=10)
    with pytest.raises(StreamTimeout) as caught:
        exported(author, tmp_path / "out.arrow")
    assert caught.value.offset == 4
    assert caught.value.what == "no message arrived for 0.05 s before the end at 10"
    assert left(tmp_path) == []


def test_a_partition_that_ends_early_is_exported(tmp_path: Path) -> None:
    end = Fetched(None, 4, state=BatchState.END_OF_PARTITION, end=Finished())
    author = Author(rows(0, 4, latest=10), end, latest=10)
    done = exported(author, tmp_path / "out.arrow")
    assert (done.rows, done.position[PARTITION_0]) == (4, 4)


def test_a_stream_without_a_known_end_is_refused(tmp_path: Path) -> None:
    author = Author(latest=None)
    with pytest.raises(MisuseError) as caught:
        exported(author, tmp_path / "out.arrow")
    assert caught.value.what == "the latest offset of this stream is unknown"
    assert left(tmp_path) == []


def test_a_topic_that_begins_again_is_no_export(tmp_path: Path) -> None:
    author = Author(latest=200_000)
    author.infos = [PartitionInfo(PARTITION_0, 0, 200_000, incarnation="one")]

    def answer(start: int, end: int | None, limits: FetchLimits) -> Fetched:
        if author.infos[0].incarnation == "one" and start:
            author.infos = [PartitionInfo(PARTITION_0, 0, 200_000, incarnation="two")]
            return Fetched(None, 0, incarnation="two")
        return rows(start, 10, incarnation=author.infos[0].incarnation)

    author.always = answer
    for policy in ("fail", "earliest"):
        author.infos = [PartitionInfo(PARTITION_0, 0, 200_000, incarnation="one")]
        with pytest.raises(IncarnationChanged) as caught:
            exported(author, tmp_path / "out.arrow", options={"out__of__range": policy})
        assert (caught.value.expected, caught.value.found) == ("one", "two")
        assert left(tmp_path) == []


# --- processes ------------------------------------------------------------------------


def start(*arguments: object, limit: int | None = None) -> subprocess.Popen[str]:
    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "streamfactory", "topics", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restrict,  # noqa: PLW1509 - no thread of ours runs here
    )


@pytest.mark.parametrize(
    ("suffix", "limit"),
    [
        ("parquet", 0),
        ("parquet", 5_000),
        ("parquet", 100_000),
        ("arrow", 1),
        ("arrow", 100_000),
        ("arrows", 5_000),
    ],
)
def test_a_full_disk_leaves_nothing(
    suffix: str, limit: int, disk: Place, tmp_path: Path
) -> None:
    stream = disk.numbers("clicks", 100_000)
    name = f"out.{suffix}"
    child = start("export", stream, name, "--json", limit=limit)
    out, err = child.communicate(timeout=DEADLINE)
    assert (child.returncode, out) == (1, ""), err
    assert json.loads(err) == {
        "error": "storage_failed",
        "class": "permanent",
        "what": f"{name} cannot be written: File too large",
        "stream": None,
        "partition": None,
        "offset": None,
        "remedy": "nothing of it is left",
    }
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "status", "hidden"),
    [(signal.SIGINT, 130, 0), (signal.SIGTERM, 130, 0), (signal.SIGKILL, -9, 1)],
)
def test_a_signal_publishes_nothing(
    number: int, status: int, hidden: int, disk: Place, tmp_path: Path
) -> None:
    stream = disk.numbers("clicks", 100_000)
    slow = ("--set", "batch.rows=1")
    child = start("export", stream, "out.arrow", *slow)
    deadline = time.monotonic() + DEADLINE
    while not any(tmp_path.glob(".out.arrow.*")):
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.005)
    child.send_signal(number)
    _, err = child.communicate(timeout=DEADLINE)
    assert child.returncode == status, err
    assert not (tmp_path / "out.arrow").exists()
    assert len(left(tmp_path)) == hidden
