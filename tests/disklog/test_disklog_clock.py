"""Clocks of machines that jump while epochs are staged."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import MisuseError, Summary

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.record_batch({"id": [1, 2, 3]})
DAY = 86_400.0


def store(root: Path) -> DiskLogStore:
    return DiskLogStore(LocalStorage(root, fsync="never"), Settings())


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY])
def test_rows_that_a_wrong_clock_took_for_abandoned_are_refused_or_there(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = store(tmp_path)
    log = mine.create("t", ROWS.schema, 1)
    stage = log.stage(uuid.uuid4().hex)
    stage.append(0, ROWS)
    sealed, now = stage.seal(), time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + jump)
        other = store(tmp_path)
        writing = other.open("t")
        for number in range(20):
            attempt = writing.stage(uuid.uuid4().hex)
            attempt.append(0, ROWS)
            writing.commit(Epoch("other", number, [attempt.seal()], Summary(3)))
        writing.compact()  # and sweeps
        other.close()
    refused = jump > 0
    epoch = Epoch("w", 0, [sealed], Summary(3))
    if refused:
        with pytest.raises(MisuseError, match="abort the epoch and write it again"):
            log.commit(epoch)
    else:
        log.commit(epoch)
    expected = 60 + (0 if refused else 3)
    [bounds] = log.bounds()
    assert (bounds.earliest, bounds.latest) == (0, expected)
    rows, at = 0, 0
    while at < expected:
        found = log.read(0, at, max_rows=1000, max_bytes=1 << 20)
        assert found.rows is not None
        rows, at = rows + found.rows.num_rows, at + found.rows.num_rows
    assert rows == expected
    mine.close()
