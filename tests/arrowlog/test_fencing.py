"""Rule W3 in every store: the owner of a writer is looked at before the number."""

from __future__ import annotations

import uuid
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.objects.stage import place, storage_at
from tests.proving.numbers import SCHEMA, append, stage, store_at

import streamfactory
from streamfactory.arrowlog import Epoch, MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.backends.flight.client.committing import CommitSessions
from streamfactory.backends.flight.client.connection import Connection
from streamfactory.backends.flight.client.remote import RemoteLogStore
from streamfactory.spi import LastCommit, Position, Summary, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a Flight server over a folder."""
    folder = tmp_path_factory.mktemp("fencing")
    with streamfactory.serve(path=str(folder)) as server:
        yield server.location


@pytest.fixture(params=["memory", "folder", "objects", "flight", "flight session"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A new topic in each store."""
    with ExitStack() as opened:
        if request.param == "memory":
            store: Any = MemoryLogStore()
        elif request.param == "folder":
            store = opened.enter_context(closing(store_at(tmp_path / "topics")))
        elif request.param == "objects":
            endpoint = request.getfixturevalue("object_server").endpoint
            storage = storage_at(endpoint, place())
            store = opened.enter_context(closing(DiskLogStore(storage, Settings())))
        else:
            location = request.getfixturevalue("location")
            connection = Connection([location], 30, 60, lambda: ({}, []))
            opened.enter_context(closing(connection))
            sessions = None
            if request.param == "flight session":
                sessions = CommitSessions(connection)
                opened.callback(sessions.close)
            store = RemoteLogStore(connection, sessions=sessions)
        yield store.create(f"t-{uuid.uuid4().hex}", SCHEMA, 1)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_superseded_instance_is_fenced_whatever_number_it_commits(
    log: Any, number: int
) -> None:
    """Also a number that the later instance, or the superseded one, has committed."""
    log.claim("w", "old")
    append(log, {0: [0]}, "w", 0, instance="old")
    log.claim("w", "new")
    append(log, {0: [10]}, "w", 1, instance="new")
    late = stage(log, {0: [1]})
    for _ in range(2):
        with pytest.raises(WriterFenced, match="another instance has claimed writer"):
            log.commit(Epoch("w", number, [late], Summary(1), "old"))
    log.discard(late)
    assert log.bounds()[0].latest == 2
    assert log.last("w") == LastCommit(1, None, Summary(1))


def test_the_owner_of_a_writer_repeats_its_epoch_without_effect(log: Any) -> None:
    """As after a restart: the new instance has claimed the writer."""
    position = Position()
    log.claim("w", "old")
    append(log, {0: [0]}, "w", 0, instance="old", position=position)
    log.claim("w", "new")
    for instance in ("new", "new"):
        again = log.commit(Epoch("w", 0, [stage(log, {0: [5]})], Summary(1), instance))
        assert again.held == LastCommit(0, position, Summary(1))
        assert again.placed == {}
    assert log.bounds()[0].latest == 1


def test_rows_of_an_instance_that_is_fenced_are_not_there(log: Any) -> None:
    """Both commit one epoch with as many rows: counts do not tell them apart."""
    log.claim("w", "old")
    mine = stage(log, {0: [1, 2, 3]})
    log.claim("w", "new")
    append(log, {0: [7, 8, 9]}, "w", 0, instance="new")
    with pytest.raises(WriterFenced):
        log.commit(Epoch("w", 0, [mine], Summary(3), "old"))
    assert log.bounds()[0].latest == 3


@pytest.mark.parametrize("log", ["memory", "folder", "objects"], indirect=True)
def test_the_owner_of_a_writer_is_the_instance_that_claimed_it_last(log: Any) -> None:
    assert log.owner("w") is None
    for instance in ("old", "new"):
        log.claim("w", instance)
        assert log.owner("w") == instance
    assert log.owner("another") is None
