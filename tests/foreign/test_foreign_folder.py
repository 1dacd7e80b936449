"""A folder of files: their order, what holds it, and what is no part of it."""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.foreign.stage import (
    NUMBERS,
    config_of,
    numbers,
    plugins,
    properties,
    write_random,
    write_stream,
)

from streamfactory.backends.file.foreign import create_consumer
from streamfactory.backends.file.foreign.parts import MANIFEST
from streamfactory.spi import (
    BatchState,
    CorruptData,
    FetchLimits,
    FormatRefused,
    IncarnationChanged,
    OffsetOutOfRange,
    Partition,
    PartitionState,
    SchemaMismatch,
    StorageFailed,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.foreign.stage import Consumers, Infos, Providers, Values


NOW = FetchLimits(1_000_000, 1 << 30, 0.0)
SOON = FetchLimits(1_000_000, 1 << 30, 10.0)
END = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def filled(folder: Path, info_of: Infos) -> Path:
    """Three files, listed: rows 0 to 2, 3 to 5 and 6 to 8."""
    for index, name in enumerate("abc"):
        write = (write_random, write_stream)[index % 2]
        write(folder / name, numbers(*range(3 * index, 3 * index + 3)))
    assert info_of(folder).latest == 9
    return folder


def parts(folder: Path) -> list[Path]:
    return sorted((folder / MANIFEST).glob("*.jsonl"))


# --- order --------------------------------------------------------------------------


def test_files_found_together_come_by_name(folder: Path, values_of: Values) -> None:
    for name, number in (("b", 2), ("a", 1), ("c", 3)):
        write_random(folder / name, numbers(number))
    assert values_of(folder) == [1, 2, 3]


def test_files_found_together_come_by_time_where_wanted(
    folder: Path, values_of: Values
) -> None:
    for name, age in (("b", 20), ("a", 10), ("c", 30)):
        write_random(folder / name, numbers(age))
        os.utime(folder / name, (1_000_000 - age, 1_000_000 - age))
    assert values_of(folder, order="time") == [30, 20, 10]


def test_order_of_arrival_outlives_clocks_and_names(
    folder: Path, values_of: Values, info_of: Infos
) -> None:
    for name, number in (("m", 1), ("z", 2), ("a", 3)):
        write_random(folder / name, numbers(number))
        assert info_of(folder).latest == number
    os.utime(folder / "a", (1, 1))
    for order in ("name", "time"):
        assert values_of(folder, order=order) == [1, 2, 3]


def test_order_goes_where_the_folder_goes(
    filled: Path, values_of: Values, info_of: Infos
) -> None:
    write_random(filled / "Z", numbers(9))
    write_random(filled / "A", numbers(10))
    info = info_of(filled)
    (filled / "a").touch()
    copied = filled.with_name("copied")
    shutil.copytree(filled, copied, copy_function=shutil.copyfile)
    assert info_of(copied) == info
    assert values_of(copied) == [*range(9), 10, 9]


def test_offset_is_the_row_over_all_files(filled: Path, values_of: Values) -> None:
    for start in range(10):
        assert values_of(filled, start) == list(range(start, 9))


def test_forms_can_be_mixed_and_columns_may_stand_otherwise(
    folder: Path, table_of: Callable[..., Any]
) -> None:
    one = pa.record_batch({"n": [1], "s": pa.array(["x"], pa.large_string())})
    two = pa.record_batch({"s": pa.array(["y"]).dictionary_encode(), "n": [2]})
    three = pa.record_batch({"n": [3], "s": pa.array(["z"], pa.string_view())})
    write_random(folder / "1", one)
    write_stream(folder / "2", two)
    write_stream(folder / "3", three, compression="zstd")
    assert table_of(folder).to_pydict() == {"n": [1, 2, 3], "s": ["x", "y", "z"]}


# --- what belongs to it ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [".a", "_a", "_SUCCESS", "a.tmp", ".a.crc", "a.crc", "a._COPYING_"]
)
def test_hidden_and_temporary_names_are_left_out(
    name: str, folder: Path, values_of: Values
) -> None:
    write_random(folder / "a", numbers(1))
    (folder / name).write_bytes(b"whatever")
    (folder / "inside").mkdir()
    (folder / "inside" / "b").write_bytes(b"whatever")
    assert values_of(folder) == [1]


def test_column_folder_name_is_no_hidden_one(folder: Path, values_of: Values) -> None:
    write_random(folder / "_day=1", numbers(1))
    assert values_of(folder) == [1]


def test_names_say_which_files_belong(folder: Path, values_of: Values) -> None:
    write_random(folder / "part-1.arrow", numbers(1))
    (folder / "notes.txt").write_text("not for Arrow")
    assert values_of(folder, names="part-*.arrow") == [1]


def test_file_that_is_no_arrow_file_is_reported(
    folder: Path, values_of: Values
) -> None:
    write_random(folder / "a", numbers(1))
    (folder / "notes.txt").write_text("not for Arrow")
    with pytest.raises(FormatRefused) as caught:
        values_of(folder)
    assert caught.value.what == (
        f"{str(folder / 'notes.txt')!r} is not an Arrow stream: it begins with b'not "
        "for '"
    )
    (folder / "notes.txt").unlink()
    assert values_of(folder) == [1]


@pytest.mark.parametrize("write", [write_stream, write_random])
def test_unfinished_file_comes_when_it_is_whole(
    write: Any, filled: Path, consumer_factory: Consumers, info_of: Infos
) -> None:
    consumer = consumer_factory(filled)
    whole = write(filled.parent / "x", numbers(9), numbers(10, 11)).read_bytes()
    slow = filled / "aa"
    slow.touch()
    for byte in whole:
        found = consumer.fetch_messages(9, None, NOW)
        assert (found.rows, found.latest) == (None, 9)
        with slow.open("ab") as file:
            file.write(bytes([byte]))
    write_random(filled / "bb", numbers(12))
    found = consumer.fetch_messages(9, None, SOON)
    assert found.rows is not None
    assert found.rows[0].to_pylist() == [9, 10, 11]
    assert info_of(filled).latest == 13


def test_unfinished_file_does_not_block_others_and_is_reported(
    filled: Path, values_of: Values, caplog: pytest.LogCaptureFixture
) -> None:
    (filled / "aa").write_bytes(NUMBERS.serialize().to_pybytes())
    write_random(filled / "bb", numbers(9))
    with caplog.at_level(logging.WARNING, "streamfactory"):
        assert values_of(filled) == list(range(10))
    assert caplog.messages == []
    os.utime(filled / "aa", (1_000_000, 1_000_000))
    with caplog.at_level(logging.WARNING, "streamfactory"):
        assert values_of(filled) == list(range(10))
    assert caplog.messages == [
        (
            f"the file {str(filled / 'aa')!r} is incomplete and has not changed for "
            "a minute: its rows are not part of the stream"
        )
    ]


def test_other_schema_is_reported_after_what_comes_before(
    folder: Path, info_of: Infos, provider_factory: Providers
) -> None:
    write_random(folder / "a", numbers(1))
    write_random(folder / "b", pa.record_batch({"number": pa.array([1], pa.int32())}))
    write_random(folder / "c", numbers(2))
    with pytest.raises(SchemaMismatch) as caught:
        info_of(folder)
    assert caught.value.what == (
        f"the schema of the file {str(folder / 'b')!r} differs from the stream's: "
        "column 'number' has the type int, not bigint"
    )
    (folder / "b").rename(folder / "_b")
    assert info_of(folder).latest == 2


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"n": [1]}, "it has no column 'number'"),
        ({"number": [1], "more": [2]}, "it has the additional column 'more'"),
    ],
)
def test_other_columns_are_reported(
    columns: dict[str, Any], why: str, filled: Path, info_of: Infos
) -> None:
    write_random(filled / "d", pa.record_batch(columns))
    with pytest.raises(SchemaMismatch) as caught:
        info_of(filled)
    assert caught.value.what.endswith(why)


# --- what happens to it --------------------------------------------------


def test_new_file_ends_a_waiting_fetch(
    filled: Path, consumer_factory: Consumers
) -> None:
    consumer = consumer_factory(filled)
    assert consumer.fetch_messages(9, None, NOW).state is BatchState.CAUGHT_UP
    hidden = write_random(filled.parent / "x", numbers(9))
    renaming = threading.Timer(0.1, lambda: hidden.rename(filled / "d"))
    renaming.start()
    found = consumer.fetch_messages(9, None, SOON)
    renaming.join()
    assert found.rows is not None
    assert found.rows[0].to_pylist() == [9]


def test_oldest_files_may_go(filled: Path, info_of: Infos, values_of: Values) -> None:
    (filled / "a").unlink()
    info = info_of(filled)
    assert (info.earliest, info.latest) == (3, 9)
    assert values_of(filled, 3) == [3, 4, 5, 6, 7, 8]
    with open_stream(
        {**properties(filled), "startingOffsets": "earliest"}, plugins=plugins()
    ) as stream:
        assert [n for b in stream for n in b.rows[0].to_pylist()] == [3, 4, 5, 6, 7, 8]


def test_missing_file_is_reported_by_name(filled: Path, values_of: Values) -> None:
    (filled / "b").unlink()
    with pytest.raises(CorruptData) as caught:
        values_of(filled)
    assert caught.value.what == (
        f"the file {str(filled / 'b')!r}, which has offsets 3 to 6, is missing"
    )
    assert "out.of.range" in str(caught.value.remedy)


def test_missing_file_is_a_loss_if_reading_continues(filled: Path) -> None:
    (filled / "b").unlink()
    given = {**properties(filled), "out.of.range": "earliest"}
    with open_stream(given, plugins=plugins()) as stream:
        found = [n for batch in stream for n in batch.rows[0].to_pylist()]
        losses = [(loss.start, loss.end) for loss in stream.counters.losses]
    assert found == [0, 1, 2, 6, 7, 8]
    assert losses == [(3, 6)]


@pytest.mark.parametrize("values", [(3, 4, 6), (3, 4, 5, 6), None])
def test_listed_file_that_changed_is_never_read(
    values: tuple[int, ...] | None, filled: Path, consumer_factory: Consumers
) -> None:
    consumer = consumer_factory(filled)
    consumer.fetch_messages(3, None, NOW)
    if values is None:
        (filled / "b").write_bytes(b"anything but Arrow")
    else:
        write_stream(filled / "b", numbers(*values))
    for each in (consumer, consumer_factory(filled)):
        with pytest.raises(IncarnationChanged) as caught:
            each.fetch_messages(4, None, NOW)
        assert caught.value.what == (
            f"the file {str(filled / 'b')!r}, which has offsets 3 to 6, has "
            "changed since it was listed"
        )


def test_folder_that_begins_again_is_another_incarnation(
    filled: Path, consumer_factory: Consumers, info_of: Infos
) -> None:
    old = info_of(filled).incarnation
    consumer = consumer_factory(filled)
    assert consumer.fetch_messages(0, None, NOW).incarnation == old
    shutil.rmtree(filled / MANIFEST)
    (filled / "a").unlink()
    info = info_of(filled)
    assert info.latest == 6
    assert info.incarnation != old
    answer = consumer.fetch_messages(3, None, NOW)
    assert (answer.rows, answer.next_offset, answer.incarnation) == (
        None,
        0,
        info.incarnation,
    )


def test_empty_folder_waits_for_its_first_file(
    folder: Path,
    info_of: Infos,
    provider_factory: Providers,
    consumer_factory: Consumers,
) -> None:
    info = info_of(folder)
    assert (info.earliest, info.latest, info.incarnation) == (0, 0, None)
    assert info.state is PartitionState.ACTIVE
    consumer = consumer_factory(folder)
    assert consumer.fetch_messages(0, None, NOW).state is BatchState.CAUGHT_UP
    with pytest.raises(StreamTimeout):
        provider_factory(folder).fetch_schema("t")
    given = {**properties(folder), "schema": "number bigint"}
    with open_stream(given, plugins=plugins()) as stream:
        assert stream.schema == NUMBERS
    write_random(folder / "a")
    assert provider_factory(folder).fetch_schema("t") == NUMBERS


def test_missing_folder_is_not_found(tmp_path: Path, info_of: Infos) -> None:
    with pytest.raises(TopicNotFound):
        info_of(tmp_path / "nowhere")


# --- the manifest --------------------------------------------------


def test_manifest_has_a_line_for_each_file(filled: Path, info_of: Infos) -> None:
    write_random(filled / "d", numbers(9))
    info = info_of(filled)
    [first, second] = parts(filled)
    assert [path.name for path in (first, second)] == [
        f"{0:020d}.jsonl",
        f"{3:020d}.jsonl",
    ]
    header, *lines = [json.loads(line) for line in first.read_text().splitlines()]
    assert header["incarnation"] == info.incarnation
    lines += [json.loads(line) for line in second.read_text().splitlines()]
    assert [(x["name"], x["start"], x["rows"], x["form"]) for x in lines] == [
        ("a", 0, 3, "file"),
        ("b", 3, 3, "stream"),
        ("c", 6, 3, "file"),
        ("d", 9, 1, "file"),
    ]


def test_readers_that_look_at_once_agree(folder: Path) -> None:
    """Threads here, each with a world of its own; they meet in the manifest."""
    together, answers = threading.Barrier(8), []

    def look() -> None:
        consumer = create_consumer(config_of(folder), Partition("t", 0))
        found: list[int] = []
        together.wait(120)
        deadline = time.monotonic() + 60
        while len(found) < 60 and time.monotonic() < deadline:
            fetched = consumer.fetch_messages(len(found), None, SOON)
            if fetched.rows is not None:
                found += fetched.rows[0].to_pylist()
        consumer.close()
        answers.append(found)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(60):
        whole = write_random(folder.parent / "x", numbers(number))
        whole.rename(folder / f"{(number * 37) % 60:02d}")
    for thread in threads:
        thread.join(120)
    assert len(answers) == 8
    assert sorted(answers[0]) == list(range(60))
    assert all(found == answers[0] for found in answers)


READER = """
import sys
from tests.foreign.stage import config_of
from pathlib import Path
from streamfactory.backends.file.foreign import create_metadata
while True:
    provider = create_metadata(config_of(Path(sys.argv[1])))
    print(provider.fetch_partitions(["t"], ())[0].latest, flush=True)
    provider.close()
"""


def test_killed_readers_leave_an_order_that_holds(
    folder: Path, values_of: Values, info_of: Infos
) -> None:
    root = str(Path(__file__).parents[2])
    seen: list[int] = []
    for round_ in range(6):
        environment = {**os.environ, "PYTHONPATH": root}
        command = [sys.executable, "-c", READER, str(folder)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            for number in range(10 * round_, 10 * round_ + 10):
                name = f"{(number * 37) % 60:02d}"
                write_random(folder.parent / "x", numbers(number)).rename(folder / name)
            child.stdout.readline()
            child.kill()
        now = values_of(folder)
        assert now[: len(seen)] == seen
        seen = now
    assert sorted(seen) == list(range(60))
    assert info_of(folder).latest == 60


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[:-1], "its last line is truncated"),
        (
            lambda text: text.replace('"start": 3', '"start": 4'),
            "does not continue the list",
        ),
        (
            lambda text: text.replace('"name": "b"', '"name": "../b"'),
            "is not a file of",
        ),
        (
            lambda text: text.replace('"name": "b"', '"name": "a"'),
            "does not continue the list",
        ),
        (lambda text: text.replace('"rows": 3', '"rows": "3"'), "no valid 'rows'"),
        (lambda text: text.replace('"rows": 3', '"rows": -3'), "is not a file of"),
        (lambda text: text.replace("}", "", 1), "a line is not JSON"),
        (lambda text: text.splitlines()[0] + "\n", "it lists no file"),
        (lambda text: text.replace('"schema": "', '"schema": "!', 1), "its header"),
        (lambda text: "[]\n" + text, "a line is not a JSON object"),
    ],
)
def test_damaged_manifest_is_reported(
    damage: Callable[[str], str], why: str, filled: Path, info_of: Infos
) -> None:
    [part] = parts(filled)
    text = part.read_text()
    assert damage(text) != text
    part.write_text(damage(text))
    with pytest.raises(CorruptData) as caught:
        info_of(filled)
    assert caught.value.what.startswith(f"the manifest part {str(part)!r} is corrupt: ")
    assert why in caught.value.what


def with_schema(folder: Path, kind: pa.DataType) -> None:
    """Another schema in the manifest, which whoever may write the folder can have."""
    [part] = parts(folder)
    header, rest = part.read_text().split("\n", 1)
    found = json.loads(header)
    schema = pa.schema({"n": kind}).serialize().to_pybytes()
    found["schema"] = base64.b64encode(schema).decode()
    part.write_text(f"{json.dumps(found)}\n{rest}")


def test_manifest_with_a_schema_that_streams_do_not_carry_is_reported(
    filled: Path, info_of: Infos
) -> None:
    with_schema(filled, pa.decimal128(20, 536870915))
    with pytest.raises(CorruptData, match="its header is invalid"):
        info_of(filled)


def test_rows_are_not_converted_to_another_schema_of_the_manifest(
    filled: Path, values_of: Callable[..., Any]
) -> None:
    with_schema(filled, pa.string())
    with pytest.raises((CorruptData, IncarnationChanged), match="has changed since it"):
        values_of(filled)


def test_manifest_of_a_later_version_is_refused(filled: Path, info_of: Infos) -> None:
    [part] = parts(filled)
    text = part.read_text()
    part.write_text(text.replace('_manifest": 1', '_manifest": 2'))
    with pytest.raises(FormatRefused) as caught:
        info_of(filled)
    assert (
        caught.value.what == f"the manifest {str(part)!r} has the unsupported version 2"
    )
    part.write_text(text.replace("streamfactory_manifest", "other"))
    with pytest.raises(FormatRefused):
        info_of(filled)


def test_state_folder_keeps_the_order_of_a_folder_that_is_left_alone(
    folder: Path, tmp_path: Path, values_of: Values, info_of: Infos
) -> None:
    state = tmp_path / "state"
    for name, number in (("b", 1), ("a", 2)):
        write_random(folder / name, numbers(number))
        assert info_of(folder, state__folder=str(state)).latest == number
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    assert values_of(folder, state__folder=str(state)) == [1, 2]


def test_read_only_folder_requires_a_state_folder(folder: Path, info_of: Infos) -> None:
    write_random(folder / "a", numbers(1))
    (folder / MANIFEST).write_bytes(b"in the way")
    with pytest.raises(StorageFailed) as caught:
        info_of(folder)
    assert str(folder / MANIFEST) in caught.value.what
    assert "`state.folder`" in str(caught.value.remedy)


def test_listed_files_are_read_where_nothing_can_be_written(
    filled: Path, values_of: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "read-only")

    monkeypatch.setattr(os, "link", refuse)
    assert values_of(filled) == list(range(9))
    write_random(filled / "d", numbers(9))
    with pytest.raises(StorageFailed) as caught:
        values_of(filled)
    assert "`state.folder`" in str(caught.value.remedy)
    assert list((filled / MANIFEST).glob(".*")) == []


def test_parts_that_were_never_published_are_swept(
    filled: Path, info_of: Infos
) -> None:
    old, fresh = (filled / MANIFEST / name for name in (".old.tmp", ".fresh.tmp"))
    for path in (old, fresh):
        path.write_text("torn")
    os.utime(old, (1_000_000, 1_000_000))
    write_random(filled / "d", numbers(9))
    assert info_of(filled).latest == 10
    assert (old.exists(), fresh.exists()) == (False, True)


def test_start_before_what_is_left_is_out_of_range(filled: Path) -> None:
    (filled / "a").unlink()
    given = {**properties(filled), "startingOffsets": '{"t": {"0": 1}}'}
    with (
        open_stream(given, plugins=plugins()) as stream,
        pytest.raises(OffsetOutOfRange) as caught,
    ):
        list(stream)
    assert caught.value.earliest == 3


def test_many_threads_ask_one_provider(
    filled: Path, provider_factory: Providers
) -> None:
    provider = provider_factory(filled)
    answers: list[int | None] = []

    def ask() -> None:
        answers.extend(provider.fetch_partitions(["t"], ())[0].latest for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert answers == [9] * 40


# --- files with another name ----------------------------------------------------


@pytest.mark.parametrize("name", ["a2", "d"])
def test_a_listed_file_with_another_name_is_named_and_not_read_again(
    filled: Path, name: str, consumer_factory: Consumers
) -> None:
    consumer = consumer_factory(filled)
    (filled / "b").rename(filled / name)
    with pytest.raises(CorruptData, match=rf"b', which has offsets 3 to 6.*{name}'"):
        consumer.fetch_messages(9, None, NOW)
    (filled / name).rename(filled / "b")
    assert consumer_factory(filled).fetch_messages(9, None, NOW).rows is None


def test_a_copy_of_a_listed_file_is_another_file(filled: Path, info_of: Infos) -> None:
    shutil.copy2(filled / "b", filled / "d")
    assert info_of(filled).latest == 12


def test_equal_content_that_is_written_later_is_another_file(
    filled: Path, info_of: Infos
) -> None:
    content = (filled / "b").read_bytes()
    (filled / "b").unlink()
    (filled / "d").write_bytes(content)
    later = time.time() + 5
    os.utime(filled / "d", (later, later))
    assert info_of(filled).latest == 12
