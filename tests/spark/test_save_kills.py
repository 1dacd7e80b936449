"""Drivers that are killed while they save, and others that save the same epochs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import obstore
import pytest
from tests.objects.server import BUCKET, OWNER
from tests.objects.stage import place, properties_at, storage_at
from tests.proving.drivers import Driver
from tests.spark.hadoop import hadoop
from tests.spark.killing import Faults
from tests.spark.saving_driver import ROWS, STEPS, TASKS, topic_of

import streamfactory
from streamfactory.arrowlog.disk import (
    DiskLogStore,
    LocalStorage,
    Settings,
    housekeeping,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.objects.server import ObjectServer

    from streamfactory.arrowlog.disk.storage import Storage

EPOCHS = len(STEPS) + 1


def driver(folder: Path) -> Driver:
    return Driver(folder, "tests.spark.saving_driver", folder, EPOCHS)


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_a_driver_that_is_killed_loses_nothing_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    kill_at_steps(tmp_path, STEPS)
    # What the killed ones left is swept by age.
    mine = [*tmp_path.rglob("data/*.parquet"), *tmp_path.rglob("staging/*/begun")]
    for path in mine:
        os.utime(path, (0, 0))
    needed = swept(LocalStorage(tmp_path / "topics", fsync="never"))
    assert len([*tmp_path.rglob("data/*.parquet")]) == needed < len(mine)
    assert [*tmp_path.rglob("staging/*")] == []


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_a_driver_that_is_killed_loses_nothing_in_an_object_store(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    url, endpoint = place(), object_server.endpoint
    more = {
        "topic": properties_at(endpoint, url, "out"),
        "session": hadoop(object_server),
    }
    (tmp_path / "place.json").write_text(json.dumps(more))
    kill_at_steps(tmp_path, ("within-seal", "published"))
    mine = objects(object_server, url)
    # The times of objects are the store's.
    monkeypatch.setattr(housekeeping, "STAGED_SECONDS", -60.0)
    needed = swept(storage_at(endpoint, url))
    left = objects(object_server, url)
    files = [one for one in left if one.endswith(".parquet")]
    assert len(files) == needed < len(mine)
    assert [one for one in left if "/staging/" in one] == []


def kill_at_steps(folder: Path, steps: Sequence[str]) -> None:
    """Kill a driver at each step, and have another one write all epochs."""
    (folder / "faults").mkdir()
    faults = Faults(folder / "faults")
    for step in steps:
        dying = driver(folder)
        # Each commits one more epoch, and is killed within the next.
        passes = TASKS + 1 if step == "within-seal" else 1
        faults.order(step, passes, group=dying.group)
        assert dying.was_killed(), f"not killed at {step}"
        assert faults.left == []
    driver(folder).succeed()
    with streamfactory.open(topic_of(folder)) as stream:
        found = [n for batch in stream for n in batch.rows.column("id").to_pylist()]
    assert sorted(found) == [*range(EPOCHS * ROWS)]


def swept(storage: Storage) -> int:
    """Sweep the topic; answers how many files it needs."""
    store = DiskLogStore(storage, Settings())
    topic = store.open("out")
    topic.sweep()
    assert topic.verify().problems == ()
    needed = sum(len(topic.files(b.id, b.earliest, b.latest)) for b in topic.bounds())
    store.close()
    return needed


def objects(server: ObjectServer, url: str) -> list[str]:
    """The keys of all objects of a place, with those that stand for folders."""
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    return [one["path"] for one in obstore.list(server.store(), prefix).collect()]
