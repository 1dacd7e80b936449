"""A topic that is deleted while it is written to: reported as deleted."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.spi import EpochMarkerLost, IncarnationChanged, Position
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.writing.epochs import Epochs

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.RecordBatch.from_pydict({"id": [1, 2]})


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "streams"),
        "stream.file.topic.name": "clicks",
    }


@pytest.mark.parametrize("deleted", ["streams", "streams/clicks.topic"])
def test_deleted_folder_is_named_by_the_next_epoch(
    deleted: str, options: dict[str, str], tmp_path: Path
) -> None:
    with open_sink(options) as sink:
        sink.put(ROWS, writer_id="w", epoch=0)
        shutil.rmtree(tmp_path / deleted)
        with pytest.raises(IncarnationChanged) as caught:
            sink.put(ROWS, writer_id="w", epoch=1)
    assert caught.value.what == (
        "topic 'clicks' was deleted, or made again, while it was written"
    )
    assert "epoch.adopt" in str(caught.value.remedy)


def test_epoch_can_be_taken_for_new_in_what_was_made_again(
    options: dict[str, str], tmp_path: Path
) -> None:
    with open_sink(options) as sink:
        sink.put(ROWS, writer_id="w", epoch=0)
    shutil.rmtree(tmp_path / "streams")
    with pytest.raises(EpochMarkerLost, match="if the topic was deleted"):
        write_next(options, epoch=1)
    assert write_next({**options, "epoch.adopt": "1"}, epoch=1)


def write_next(options: dict[str, str], *, epoch: int) -> bool:
    """Write an epoch of a sequence, as a query does."""
    with (
        open_sink(options) as sink,
        closing(sink.writer(ROWS.schema, writer_id="w", epoch=epoch)) as writer,
        sink.committer(writer_id="w") as committer,
    ):
        writer.write(ROWS)
        return committer.commit(epoch, [writer.commit()])


def test_epochs_of_puts_may_begin_anywhere(options: dict[str, str]) -> None:
    with open_sink(options) as sink:
        assert sink.put(ROWS, writer_id="w", epoch=20240101)


def test_topic_deleted_between_epochs_of_a_run_is_not_created_again(
    options: dict[str, str], tmp_path: Path
) -> None:
    with (
        open_sink(options) as sink,
        closing(Epochs(sink, ROWS.schema, writer_id="w", clock=Clock())) as epochs,
    ):
        for _ in range(2):
            epochs.write(ROWS, ROWS.nbytes)
            epochs.commit(Position())
        shutil.rmtree(tmp_path / "streams")
        epochs.write(ROWS, ROWS.nbytes)
        with pytest.raises(IncarnationChanged):
            epochs.commit(Position())
