"""The natural script: it puts numbered epochs, or chunks, and is run again."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with streamfactory.serve(path=str(tmp_path_factory.mktemp("flight"))) as server:
        yield server.location


@pytest.fixture(params=["file", "memory", "flight"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    kind = request.param
    options = {"topic.name": uuid.uuid4().hex}
    if kind == "file":
        options["path"] = str(tmp_path)
    elif kind == "memory":
        options["store"] = uuid.uuid4().hex
    else:
        options["location"] = request.getfixturevalue("location")
    named = {f"stream.{kind}.{key}": value for key, value in options.items()}
    return {"streamType": kind, **named}


def rows(number: int) -> pa.Table:
    return pa.table({"n": [number]})


def values(stream: dict[str, str]) -> list[int]:
    with streamfactory.open(stream) as opened:
        found: list[int] = opened.to_reader().read_all()["n"].to_pylist()
        return found


def test_puts_without_epochs_continue_from_the_last_one(stream: dict[str, str]) -> None:
    for first in (0, 5):
        with streamfactory.open_sink(stream) as sink:
            for number in range(first, first + 5):
                assert sink.put(rows(number), writer_id="job")
    assert values(stream) == list(range(10))


@pytest.mark.parametrize("ended", range(6))
def test_epochs_that_are_there_are_false_also_older_ones(
    stream: dict[str, str], ended: int
) -> None:
    with streamfactory.open_sink(stream) as sink:
        for number in range(ended):
            assert sink.put(rows(number), writer_id="job", epoch=number)
    with streamfactory.open_sink(stream) as sink:
        assert sink.last_epoch("job") == (ended - 1 if ended else None)
        made = [sink.put(rows(n), writer_id="job", epoch=n) for n in range(6)]
    assert made == [number >= ended for number in range(6)]
    assert values(stream) == list(range(6))


def test_epochs_may_start_anywhere_and_have_gaps(stream: dict[str, str]) -> None:
    with streamfactory.open_sink(stream) as sink:
        for epoch in (20240101, 20240102, 20240109):
            assert sink.put(rows(epoch), writer_id="days", epoch=epoch)
        assert sink.put(rows(1), writer_id="days")
        assert sink.last_epoch("days") == 20240110
    assert values(stream) == [20240101, 20240102, 20240109, 1]


def test_the_last_epoch_is_read_without_claiming_the_writer(
    stream: dict[str, str],
) -> None:
    with (
        streamfactory.open_sink(stream) as sink,
        streamfactory.open_sink(stream) as other,
    ):
        sink.put(rows(0), writer_id="job")
        assert other.last_epoch("job") == 0
        assert other.last_epoch("nobody") is None
        assert sink.put(rows(1), writer_id="job")


def test_threads_of_one_writer_take_turns(stream: dict[str, str]) -> None:
    failures: list[BaseException] = []
    with streamfactory.open_sink(stream) as sink:

        def work(first: int) -> None:
            try:
                for number in range(first, first + 4):
                    assert sink.put(rows(number), writer_id="job")
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=work, args=(n * 4,), daemon=True) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    assert sorted(values(stream)) == list(range(32))


def test_a_committer_is_a_context_manager(stream: dict[str, str]) -> None:
    with streamfactory.open_sink(stream) as sink:
        with sink.committer(writer_id="job") as committer:
            assert committer.last_epoch() is None
        with pytest.raises(streamfactory.MisuseError):
            committer.last()
