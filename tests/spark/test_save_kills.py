"""Drivers that are killed while they save, and others that save the same epochs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.proving.drivers import Driver
from tests.spark.killing import Faults
from tests.spark.saving_driver import ROWS, STEPS, TASKS, topic_of

import streamfactory
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS = len(STEPS) + 1


def driver(folder: Path) -> Driver:
    return Driver(folder, "tests.spark.saving_driver", folder, EPOCHS)


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_a_driver_that_is_killed_loses_nothing_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "faults").mkdir()
    faults = Faults(tmp_path / "faults")
    for step in STEPS:
        dying = driver(tmp_path)
        # Each commits one more epoch, and is killed within the next.
        passes = TASKS + 1 if step == "within-seal" else 1
        faults.order(step, passes, group=dying.group)
        assert dying.was_killed(), f"not killed at {step}"
        assert faults.left == []
    driver(tmp_path).succeed()
    with streamfactory.open(topic_of(tmp_path)) as stream:
        found = [n for batch in stream for n in batch.rows.column("id").to_pylist()]
    assert sorted(found) == [*range(EPOCHS * ROWS)]
    # What the killed ones left is swept by age.
    mine = [*tmp_path.rglob("data/*.parquet"), *tmp_path.rglob("staging/*/begun")]
    for path in mine:
        os.utime(path, (0, 0))
    store = DiskLogStore(LocalStorage(tmp_path / "topics", fsync="never"), Settings())
    log = store.open("out")
    log.sweep()
    assert log.verify().problems == ()
    needed = sum(len(log.files(b.id, b.earliest, b.latest)) for b in log.bounds())
    store.close()
    assert len([*tmp_path.rglob("data/*.parquet")]) == needed < len(mine)
    assert [*tmp_path.rglob("staging/*")] == []
