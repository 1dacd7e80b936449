"""Rows of small epochs within their records, in a bucket."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.objects.proxy import Fault
from tests.objects.stage import SCHEMA, numbers_of, rows, storage_at

from streamfactory.arrowlog import Epoch, Staged
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.spi import MisuseError, Summary

if TYPE_CHECKING:
    from tests.objects.server import ObjectServer

    from streamfactory.arrowlog.disk import DiskLog


def store_at(endpoint: str, url: str) -> DiskLogStore:
    return DiskLogStore(storage_at(endpoint, url), Settings())


@pytest.fixture
def log(server: ObjectServer, url: str) -> DiskLog:
    return store_at(server.endpoint, url).create("small", SCHEMA)


@pytest.fixture
def other(log: DiskLog, server: ObjectServer, url: str) -> DiskLog:
    """The same topic, as another process has it."""
    return store_at(server.endpoint, url).open("small")


def carried(log: DiskLog, *numbers: int) -> Staged:
    stage = log.stage(uuid.uuid4().hex)
    stage.append(0, rows(numbers))
    return stage.seal(carried=True)


def commit(log: DiskLog, staged: Staged) -> None:
    log.commit(Epoch(None, 0, [staged], Summary(1)))


def test_rows_of_a_small_epoch_are_read_by_others_and_are_no_object(
    log: DiskLog, other: DiskLog
) -> None:
    commit(log, carried(log, 1, 2))
    commit(other, carried(other, 3))
    assert log.storage.names("data") == []
    assert numbers_of(log) == numbers_of(other) == [1, 2, 3]
    assert log.facts()["inline segments"] == 2


def test_compaction_moves_the_rows_into_one_object(
    log: DiskLog, other: DiskLog
) -> None:
    staged = [carried(log, number) for number in range(4)]
    for one in staged:
        commit(log, one)
    log.compact()
    assert len(log.storage.names("data")) == 1
    assert numbers_of(other) == [0, 1, 2, 3]
    assert other.facts()["inline segments"] == 0
    with pytest.raises(MisuseError, match="no longer exists"):
        commit(other, staged[0])


def test_two_processes_commit_small_epochs_at_once(
    log: DiskLog, other: DiskLog
) -> None:
    def write(process: DiskLog, first: int) -> None:
        for number in range(first, first + 8):
            commit(process, carried(process, number))

    second = threading.Thread(target=write, args=(other, 100))
    second.start()
    write(log, 0)
    second.join(120)
    found = numbers_of(log)
    assert found == numbers_of(other)
    assert [number for number in found if number < 100] == [*range(8)]
    assert [number for number in found if number >= 100] == [*range(100, 108)]


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_record_whose_publication_failed_has_its_rows_once(
    log: DiskLog, url: str, proxied: Any, fault: Fault
) -> None:
    """A commit that is repeated is answered as one of a staged object is: refused."""
    faults = [fault]

    def plan(method: str, path: str) -> Fault | None:
        return faults.pop() if faults and method == "PUT" and "log" in path else None

    proxy = proxied(plan)
    writer = store_at(proxy.endpoint, url).open("small")
    staged = carried(writer, 7)
    commit(writer, staged)
    assert [met for _, _, met in proxy.met] == [fault]
    with pytest.raises(MisuseError, match="no longer exists"):
        commit(writer, staged)
    assert numbers_of(log) == [7]
