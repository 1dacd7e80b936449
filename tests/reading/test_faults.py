"""The simulator: faults of every kind, and still every row once and in order."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tests.proving.generated import cases
from tests.specimens import Author, Dictionary, envelopes, ids, rows, sparse

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.backends.memory import store
from streamfactory.spi import ConnectionFailed, Fetched, Summary, envelope_schema
from streamfactory.wiring.testing.faults import Faults, SimulatedClock

PATIENT = {"retry.max.attempts": "1000"}
rates = st.floats(0, 0.6)


def memory(chunks: list[int]) -> tuple[dict[str, str], list[list[int]]]:
    """A topic of two partitions, chunks in turn, and its rows."""
    name, turns = uuid.uuid4().hex, [0, 0]
    log = store(name).create("clicks", ids().schema, 2)
    for index, count in enumerate(chunks):
        if not count:
            continue
        partition = index % 2
        stage = log.stage(uuid.uuid4().hex)
        stage.append(partition, ids(*range(turns[partition], turns[partition] + count)))
        log.commit(Epoch(None, 0, [stage.seal()], Summary()))
        turns[partition] += count
    properties = {
        "streamType": "memory",
        "stream.memory.topic.name": "clicks",
        "stream.memory.store": name,
        "stream.memory.connection.timeout.millis": "1d",
        **PATIENT,
    }
    return properties, [list(range(count)) for count in turns]


def by_partition(stream: Any) -> list[list[int]]:
    found: list[list[int]] = [[], []]
    for batch in stream:
        found[batch.partition.id] += batch.rows.column("id").to_pylist()
    return found


@limits(max_examples=cases(60))
@given(
    seed=st.integers(0, 2**32),
    chunks=st.lists(st.integers(0, 9), max_size=8),
    fail=rates,
    drop=rates,
    duplicate=rates,
    tear=rates,
    throttle=rates,
    delay=st.floats(0, 5),
)
def test_faulted_stream_equals_the_plain_one(
    seed: int, chunks: list[int], **rate: Any
) -> None:
    properties, expected = memory(chunks)
    faults = Faults(seed=seed, **rate)
    with streamfactory.open(properties, faults=faults) as stream:
        assert by_partition(stream) == expected
        assert stream.counters.rows == sum(chunks)
        assert stream.counters.losses == []


@limits(max_examples=cases(40))
@given(
    seed=st.integers(0, 2**32),
    offsets=st.lists(st.integers(0, 30), min_size=1, max_size=30).map(sorted),
    duplicate=rates,
    tear=rates,
    most=st.integers(1, 9),
)
def test_messages_of_several_rows_are_never_torn_apart(
    seed: int, offsets: list[int], duplicate: float, tear: float, most: int
) -> None:
    author = Author(latest=offsets[-1] + 1)

    def answer(start: int, end: int | None, limits: object) -> Fetched:
        left = [offset for offset in offsets if offset >= start]
        if not left:
            return Fetched(None, start)
        border = sorted(set(left))[:most][-1]
        return sparse(*[o for o in left if o <= border], held_from=0)

    author.always = answer
    faults = Faults(seed=seed, duplicate=duplicate, tear=tear)
    with author.open(faults=faults, options={"batch.rows": str(most)}) as stream:
        found: list[int] = []
        for batch in stream:
            assert batch.offsets is not None
            assert not set(found) & set(batch.offsets.to_pylist())
            found += batch.offsets.to_pylist()
    assert found == offsets


def test_envelopes_are_faulted_too() -> None:
    values = [f"{n},{n}".encode() for n in range(60)]
    author = Author(latest=60, schema=envelope_schema())
    author.always = lambda start, end, limits: envelopes(
        *values[start : start + 5], start=start
    )
    faults = Faults(seed=3, fail=0.3, drop=0.3, duplicate=0.5, tear=0.5, throttle=0.3)
    options = {"stream.script.decoder.class.name": "words", **PATIENT}
    with author.open(plugins=[Dictionary()], faults=faults, options=options) as stream:
        found = pa.table(stream).column("word").to_pylist()
    assert found == [str(n) for n in range(60) for _ in range(2)]
    assert all(faults.injected[fault] for fault in faults.injected)


def test_same_seed_makes_the_same_faults() -> None:
    properties, _ = memory([9] * 6)
    runs = []
    for seed in (1, 1, 2):
        faults = Faults(seed=seed, fail=0.3, tear=0.7)
        with streamfactory.open(properties, faults=faults) as stream:
            turns = [(b.partition.id, b.num_rows) for b in stream]
            # Partitions take turns by time; each has its faults by the seed alone.
            runs.append(sorted(turns, key=lambda turn: turn[0]))
    assert runs[0] == runs[1] != runs[2]


def test_fault_that_never_ends_is_reported() -> None:
    author = Author(rows(0, 1), latest=1)
    faults = Faults(drop=1.0)
    options = {"retry.max.attempts": "4"}
    with author.open(faults=faults, options=options) as stream:
        with pytest.raises(Exception, match="fetch failed after 4 attempts") as caught:
            list(stream)
        assert caught.value.attempts == 4  # type: ignore[attr-defined]


def test_no_fault_changes_nothing() -> None:
    faults = Faults()
    author = Author(rows(0, 5), latest=5)
    with author.open(faults=faults) as stream:
        assert pa.table(stream).num_rows == 5
    assert not +faults.injected


def test_metadata_is_faulted_and_retried() -> None:
    author = Author(rows(0, 5), latest=5)
    faults = Faults(seed=5, fail=0.5)
    with author.open(faults=faults, options=PATIENT) as stream:
        assert pa.table(stream).num_rows == 5
    faults = Faults(fail=1.0)
    with pytest.raises(ConnectionFailed) as caught:
        author.open(faults=faults, options={"retry.max.attempts": "2"})
    assert caught.value.what.endswith("injected: the source is unreachable")


def test_simulated_clock_moves_when_it_is_waited_for() -> None:
    import threading

    clock, never = SimulatedClock(), threading.Event()
    before = clock.now()
    assert clock.wait(never, 3600) is False
    assert 3600 <= clock.now() - before < 3700
    assert clock.wait(never, -5) is False
    assert clock.now() >= before + 3600
