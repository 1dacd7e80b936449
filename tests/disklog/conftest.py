"""Stores on one folder, as several processes have it, closed after each test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.numbers import SCHEMA, HandClock, store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "topics"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store_factory(
    root: Path, clock: HandClock
) -> Iterator[Callable[..., DiskLogStore]]:
    """Makes stores that know of each other as processes do: by the folder alone."""
    made: list[DiskLogStore] = []

    def make(**settings: Any) -> DiskLogStore:
        made.append(store_at(root, clock, **settings))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(store_factory: Callable[..., DiskLogStore]) -> DiskLogStore:
    return store_factory()


@pytest.fixture
def log(store: DiskLogStore) -> DiskLog:
    return store.create("t", SCHEMA, 2)


@pytest.fixture
def other(log: DiskLog, store_factory: Callable[..., DiskLogStore]) -> DiskLog:
    """The same topic, as another process has it."""
    return store_factory().open(log.name)
