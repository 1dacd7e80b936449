"""Test your own code with streams in memory, and with faults that happen in production.

    cd examples/own_tests
    python -m pytest

No server is needed: the stream type `memory` keeps its rows in this process. `Faults`
makes calls fail, loses answers, repeats rows and tears batches apart. All of that stays
within the contract: code that commits as it should gives the same result as without.

Needs: pip install streamfactory pytest. Writes no file.
"""

from __future__ import annotations

import uuid

import euros
import pyarrow as pa
import pytest

import streamfactory

ROWS = 1000
CURRENCIES = ["EUR", "SEK", "USD", "???"]


def stream(name: str) -> dict[str, str]:
    """Return the properties of a new stream, which the first write creates."""
    return {
        "streamType": "memory",
        "stream.memory.topic.name": f"{name}-{uuid.uuid4().hex}",
        "batch.rows": "50",  # many small batches: more happens between them
        "retry.max.attempts": "50",
    }


@pytest.fixture
def orders() -> dict[str, str]:
    """A stream of orders in four currencies, one of them unknown."""
    properties = stream("orders")
    currency = [CURRENCIES[n % len(CURRENCIES)] for n in range(ROWS)]
    rows = {"id": range(ROWS), "currency": currency, "amount": [100.0] * ROWS}
    with streamfactory.open_sink(properties) as sink:
        sink.put(pa.table(rows))
    return properties


def found(properties: dict[str, str]) -> list[dict[str, object]]:
    with streamfactory.open(properties) as opened:
        rows: list[dict[str, object]] = opened.to_reader().read_all().to_pylist()
    return rows


WANTED = [
    {"id": n, "euros": {0: 100.0, 1: 9.0, 2: 86.0}[n % 4]}
    for n in range(ROWS)
    if n % 4 != 3
]


def test_converts_each_order_once(orders: dict[str, str]) -> None:
    target = stream("euros")
    assert euros.convert(orders, target) == ROWS
    assert found(target) == WANTED
    assert euros.convert(orders, target) == 0, "a second run finds nothing new"


@pytest.mark.parametrize("seed", range(5))
def test_faults_change_nothing(orders: dict[str, str], seed: int) -> None:
    faults = streamfactory.Faults(
        seed=seed, fail=0.2, drop=0.2, duplicate=0.3, tear=0.5
    )
    target = stream("euros")
    euros.convert(orders, target, faults)
    assert found(target) == WANTED
    assert faults.injected["fail"] > 0, "the test would prove nothing"
    assert faults.injected["tear"] > 0


def test_a_run_that_dies_is_continued(
    orders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = stream("euros")
    calls = 0

    def die_in_the_third_batch(rows: pa.RecordBatch) -> pa.Table:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError
        return in_euros(rows)

    in_euros = euros.in_euros
    monkeypatch.setattr(euros, "in_euros", die_in_the_third_batch)
    with pytest.raises(MemoryError):
        euros.convert(orders, target)
    assert euros.convert(orders, target) == ROWS - 100
    assert found(target) == WANTED
