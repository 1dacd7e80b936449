"""Rows enter a log validated: by one type, which only the validator creates."""

from __future__ import annotations

import pickle
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.malformed import MALFORMED, ROWS, rows_of

from streamfactory.arrowlog import Epoch, MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import BatchValidator, SchemaMismatch, SoundRows, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.arrowlog import LogStore


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    if request.param == "memory":
        yield MemoryLogStore()
        return
    disk = DiskLogStore(LocalStorage(tmp_path), Settings())
    yield disk
    disk.close()


@pytest.mark.parametrize("kind", MALFORMED)
def test_log_stores_sound_rows_and_refuses_malformed_ones(
    store: LogStore, kind: str
) -> None:
    sound, malformed = map(rows_of, MALFORMED[kind])
    log = store.create("t", sound.schema)
    stage = log.stage(uuid.uuid4().hex)
    with pytest.raises(SchemaMismatch, match=r"^rows cannot be written: .*'c'"):
        stage.append(0, malformed)
    stage.append(0, sound)
    log.commit(Epoch(None, 0, [stage.seal()], Summary(ROWS)))
    found = log.read(0, 0, max_rows=10, max_bytes=1 << 20).rows
    assert found is not None
    assert found.to_pylist() == sound.to_pylist()


def test_log_stores_no_batch_that_no_validator_has_accepted(store: LogStore) -> None:
    rows: Any = rows_of(pa.array([1, 2, 3]))
    log = store.create("t", rows.schema)
    stage = log.stage(uuid.uuid4().hex)
    with pytest.raises(AttributeError):
        stage.append_sound(0, rows)
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    assert log.bounds()[0].latest == 0


def test_rows_of_another_validator_are_refused(store: LogStore) -> None:
    log = store.create("t", pa.schema({"c": pa.int64()}))
    rows = rows_of(pa.array(["a"]))
    sound = BatchValidator(rows.schema).validated(rows)
    with pytest.raises(SchemaMismatch, match="the log has c bigint"):
        log.stage(uuid.uuid4().hex).append_sound(0, sound)


def test_topic_in_memory_refuses_a_schema_that_no_validator_takes() -> None:
    kind = pa.month_day_nano_interval()
    with pytest.raises(SchemaMismatch, match="'a'"):
        MemoryLogStore().create("t", pa.schema([("a", kind), ("a", kind)]))


def test_nothing_but_a_validator_creates_sound_rows() -> None:
    rows = rows_of(pa.array([1, 2, 3]))
    with pytest.raises(TypeError):
        SoundRows(rows)  # type: ignore[call-arg] # what is tested
    with pytest.raises(TypeError, match="only BatchValidator"):
        SoundRows()
    sound = BatchValidator(rows.schema).validated(rows)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(sound)
    with pytest.raises(AttributeError):
        sound.batch = rows  # type: ignore[misc] # what is tested
    assert sound.slice(1, 2).batch.to_pydict() == {"c": [2, 3]}
