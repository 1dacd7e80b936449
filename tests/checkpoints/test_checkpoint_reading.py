"""Spark's checkpoints are read as they are, and refused where they are not whole."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from streamfactory.spark.checkpoints import Place, places, read_query
from streamfactory.spi import Partition, PositionRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.checkpoints.conftest import QueryFolder

    Frozen = Callable[[str], Path]


def test_a_checkpoint_of_two_streams_is_read(frozen: Frozen) -> None:
    query = read_query(Place.of(str(frozen("two"))))
    assert query.query_id == "5e02c3d1-b395-4fa1-af4b-cfd9d4fe8fe1"
    assert query.planned == query.committed == (0, 1, 2, 3, 4)
    assert query.last == 4
    assert query.unfinished is None
    assert query.notes == ()
    assert query.watermark() == datetime(2026, 1, 1, 0, 0, 24, tzinfo=UTC)
    reached = query.reached()
    assert reached is not None
    assert reached.planned == datetime(2026, 11, 21, 15, 37, 27, 689000, tzinfo=UTC)
    assert [source.name for source in reached.sources] == [None, None]
    clicks, views = (source.position for source in reached.sources)
    assert dict(clicks) == {
        Partition("clicks", 0): 39,
        Partition("clicks", 1): 0,
        Partition("clicks", 2): 0,
    }
    assert set(clicks.incarnations.values()) == {"66b06a9056b940f7af617e81832da676"}
    assert dict(views) == {Partition("views", 0): 16}
    assert query.positions() == (clicks, views)


def test_the_second_version_of_both_logs_is_read(frozen: Frozen) -> None:
    query = read_query(Place.of(str(frozen("named"))))
    [source] = query.batch(0).sources
    assert source.name == "clicks_src"
    assert source.position[Partition("clicks", 0)] == 39
    assert query.watermark() is None


def test_every_batch_that_is_kept_can_be_read(frozen: Frozen) -> None:
    query = read_query(Place.of(str(frozen("two"))))
    ends = [query.batch(n).sources[0].position for n in query.planned]
    assert [e[Partition("clicks", 0)] for e in ends] == [10, 20, 30, 30, 39]


def test_a_batch_without_a_commit_is_unfinished(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "commits" / "4").unlink()
    query = read_query(Place.of(str(folder)))
    assert (query.last, query.unfinished) == (3, 4)
    positions = query.positions()
    assert positions is not None
    assert positions[0][Partition("clicks", 0)] == 30


def test_before_the_first_commit_a_query_is_at_its_start(frozen: Frozen) -> None:
    folder = frozen("two")
    for path in [*(folder / "commits").glob("*"), *(folder / "offsets").glob("[1-9]*")]:
        path.unlink()
    query = read_query(Place.of(str(folder)))
    assert (query.last, query.unfinished) == (None, 0)
    assert query.watermark() is None
    assert query.committed_at() is None
    positions = query.positions()
    assert positions is not None
    assert positions[0][Partition("clicks", 0)] == 0


def test_without_any_commit_the_last_plan_is_what_comes_again(frozen: Frozen) -> None:
    folder = frozen("two")
    for path in (folder / "commits").glob("*"):
        path.unlink()
    positions = read_query(Place.of(str(folder))).positions()
    assert positions is not None
    assert positions[0][Partition("clicks", 0)] == 30


def test_a_query_that_has_planned_nothing_has_no_position(frozen: Frozen) -> None:
    folder = frozen("two")
    for path in folder.glob("*/*"):
        path.unlink()
    query = read_query(Place.of(str(folder)))
    assert query.positions() is None
    assert query.reached() is None
    with pytest.raises(PositionRefused) as caught:
        query.batch(0)
    assert caught.value.what == f"{folder}: batch 0 is not kept; kept are: none"


def test_a_batch_that_was_removed_is_refused_with_those_that_are_kept(
    frozen: Frozen,
) -> None:
    folder = frozen("two")
    (folder / "offsets" / "0").unlink()
    query = read_query(Place.of(str(folder)))
    with pytest.raises(PositionRefused) as caught:
        query.batch(0)
    assert caught.value.what == f"{folder}: batch 0 is not kept; kept are: 1 to 4"


def test_half_written_files_of_a_crash_are_passed_over(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "offsets" / ".5.8c2f.tmp").write_text("v1\n{", encoding="utf-8")
    assert read_query(Place.of(str(folder))).planned == (0, 1, 2, 3, 4)


def test_what_is_odd_and_harmless_is_reported(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "offsets" / "4.bak").write_text("", encoding="utf-8")
    (folder / "metadata").unlink()
    query = read_query(Place.of(str(folder)))
    assert query.query_id is None
    assert query.notes == (
        f"{folder}/offsets/4.bak is no batch, and not read",
        "there is no query id: Spark will give the query another one",
    )


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(tmp_path / "absent")))
    assert (
        str(caught.value)
        == f"the folder {tmp_path}/absent does not exist; check the path"
    )


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(tmp_path)))
    assert str(caught.value) == (
        f"{tmp_path} is not a checkpoint: it has no metadata, offsets or commits; "
        "name the folder that Spark writes to"
    )


def spoil(folder: Path, text: bytes) -> None:
    """Replace the last plan, and what vouches for it."""
    (folder / "offsets" / "4").write_bytes(text)
    (folder / "offsets" / ".4.crc").unlink()


HEAD = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "offsets/4 is recorded, and empty"),
        (b"v1\n", "offsets/4 is cut off: it names no source"),
        (
            b'v1\n{"batchWater\n{}',
            "offsets/4 is cut off, or not of Spark: '{\"batchWater' is not JSON",
        ),
        (b"v1\n7\n{}", "offsets/4 is not of Spark: '7' is no object"),
        (
            b"v1\n{}\n{}",
            "offsets/4 has no time in milliseconds, but None",
        ),
        (b"\xff\xfe\x00", "offsets/4 is not text"),
        (b"hello\nworld\n!", "offsets/4 is no log of Spark: it begins with 'hello'"),
        (b"v3\n{}\n{}", "offsets/4 has version 3, this reads 2"),
        (HEAD + b"-", "offsets/4: the position of source 0 is recorded, and empty"),
        (
            HEAD + b'{"offsets": {"0',
            'offsets/4: source 0: not an offset: \'{"offsets": {"0\' is not JSON',
        ),
        (
            HEAD + b'{"version": 9, "offsets": {}}',
            (
                "offsets/4: source 0: position has version 9, but only versions up "
                "to 2 are supported"
            ),
        ),
        (
            HEAD + b'{"c": {"0": 23}}',
            'offsets/4: source 0 is not a source of streamfactory: {"c": {"0": 23}}',
        ),
        (b"v2\n" + HEAD[3:] + b'{"at": null}', "offsets/4: source 0 has no name"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_plan_that_is_not_whole_or_not_ours_is_refused(
    frozen: Frozen, text: bytes, what: str
) -> None:
    folder = frozen("two")
    spoil(folder, text)
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder))).batch(4)
    assert caught.value.what == f"{folder}/{what}"


@pytest.mark.parametrize(
    ("name", "number", "shown"), [("rate", 3, "3"), ("files", 11, '{"logOffset":11}')]
)
def test_checkpoints_of_other_sources_are_refused(
    frozen: Frozen, name: str, number: int, shown: str
) -> None:
    folder = frozen(name)
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder))).positions()
    assert str(caught.value) == (
        f"{folder}/offsets/{number}: source 0 is not a source of streamfactory: "
        f"{shown}; checkpoints of other sources are read by their own tools"
    )


def test_a_file_that_differs_from_its_checksum_is_refused(frozen: Frozen) -> None:
    folder = frozen("two")
    path = folder / "offsets" / "4"
    path.write_text(path.read_text("utf-8").replace('"0": 39', '"0": 38'), "utf-8")
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder))).batch(4)
    assert str(caught.value) == (
        f"{path} is not what Spark wrote: its checksum differs; "
        "Spark refuses it too: restore the file from a copy"
    )


def test_a_file_that_was_cut_off_differs_from_its_checksum(frozen: Frozen) -> None:
    folder = frozen("two")
    path = folder / "offsets" / "4"
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder))).batch(4)
    assert "its checksum differs" in caught.value.what


def test_a_checksum_file_that_is_none_says_nothing_as_in_hadoop(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "offsets" / ".4.crc").write_bytes(b"torn")
    assert read_query(Place.of(str(folder))).batch(4).number == 4


def test_commits_without_their_offsets_are_refused(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "offsets" / "4").unlink()
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder)))
    assert caught.value.what == (
        f"{folder}: batch 4 is done, and its offsets are missing"
    )


def test_a_newer_commit_is_refused(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "commits" / "4").write_text("v3\n{}", encoding="utf-8")
    (folder / "commits" / ".4.crc").unlink()
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder))).watermark()
    assert str(caught.value) == (
        f"{folder}/commits/4 has version 3, this reads 2; upgrade streamfactory"
    )


def test_a_query_id_that_is_none_is_refused(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "metadata").write_text('{"id":""}', encoding="utf-8")
    (folder / ".metadata.crc").unlink()
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder)))
    assert caught.value.what == f"{folder}/metadata has no id of a query"


def test_a_compacted_log_is_refused(frozen: Frozen) -> None:
    folder = frozen("two")
    (folder / "offsets" / "9.compact").write_text("v1\n", encoding="utf-8")
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder)))
    assert caught.value.what == (
        f"{folder}/offsets/9.compact is a compacted log, which this does not read"
    )


def test_a_file_that_is_far_too_long_is_refused(
    frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = frozen("two")
    monkeypatch.setattr(places, "MAX_BYTES", 100)
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(str(folder))).batch(4)
    assert caught.value.what == f"{folder}/offsets/4 is longer than 100 bytes"


def test_a_plan_that_is_removed_meanwhile_is_reported(query: QueryFolder) -> None:
    query.begin()
    query.write(["{}"])
    seen = read_query(Place.of(str(query.folder)))
    (query.folder / "offsets" / "0").unlink()
    with pytest.raises(PositionRefused) as caught:
        seen.batch(0)
    assert caught.value.remedy == "look again"


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "file://{}/"])
def test_a_folder_may_be_a_url(frozen: Frozen, form: str) -> None:
    folder = frozen("two")
    assert read_query(Place.of(form.format(folder))).last == 4


def test_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(PositionRefused) as caught:
        Place.of("gopher://somewhere/else")
    assert caught.value.what.startswith(
        "'gopher://somewhere/else' cannot be accessed: "
    )
    assert caught.value.remedy == (
        "give a folder of this machine, or a URL that pyarrow can open"
    )


@pytest.mark.parametrize("url", ["s3://key:hush@bucket/a", "s3://bucket/a?hush=1"])
def test_a_url_that_may_hold_a_secret_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(PositionRefused) as caught:
        Place.of(url)
    assert str(caught.value) == (
        "a URL of s3 with options or a password in it is not taken; "
        "give them by the environment, as AWS_ENDPOINT_URL and its like"
    )


def test_reading_imports_neither_spark_nor_its_bridge() -> None:
    code = (
        "import streamfactory.cli.checkpoint, sys; "
        "assert not {'pyspark', 'py4j'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
