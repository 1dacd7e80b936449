"""Faults around the backend in memory: what fails, is lost, repeated or torn.

Each round writes some epochs through a sink that fails, loses verdicts and is begun
anew, and reads them through a source that fails, loses, repeats and tears its answers
and is stopped and taken up again at its position. Rows out have to be rows in, each
once.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.proving.verdict import Verdict

import streamfactory
from streamfactory.backends.memory import store
from streamfactory.spi import Position, TransientError
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.testing.faults import Faults

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([pa.field("number", pa.int64())])


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """So many rounds."""
    verdict = Verdict()
    made: Counter[str] = Counter()
    for number in range(seed, seed + rounds):
        wanted, found, injected = one_round(number)
        made += injected
        verdict.lost += sum((wanted - found).values())
        verdict.twice += sum((found - wanted).values())
        if wanted != found:
            rows = f"{len(wanted)} rows in, {found.total()} rows out"
            verdict.notes.append(f"seed {number}: {rows}")
    counts = [f"{count} {fault}" for fault, count in sorted(made.items())]
    verdict.notes.append(", ".join(counts))
    return verdict


def one_round(seed: int) -> tuple[Counter[int], Counter[int], Counter[str]]:
    """Numbers in, numbers out, faults made."""
    chance = random.Random(seed)
    topic = f"prove-{seed}"
    properties = {
        "streamType": "memory",
        "stream.memory.topic.name": topic,
        "stream.memory.partitions": str(chance.randint(1, 4)),
        "retry.max.attempts": "100",
        "batch.rows": str(chance.randint(1, 50)),
    }
    writing = Faults(seed=seed, fail=0.1, drop=0.4)
    reading = Faults(seed=seed, fail=0.1, drop=0.1, duplicate=0.3, tear=0.4)
    wanted: Counter[int] = Counter()
    for epoch in range(chance.randint(2, 8)):
        count = chance.randint(0, 300)
        start = wanted.total()
        numbers = pa.arange(start, start + count)
        rows = pa.record_batch([numbers], schema=SCHEMA)
        wanted.update(numbers.to_pylist())
        while not _put(properties, rows, epoch, writing):
            pass
    found: Counter[int] = Counter()
    position: Position | None = None
    while (more := _read(properties, position, reading, chance)) is not None:
        numbers_read, position = more
        found.update(numbers_read)
    store().delete(topic)
    return wanted, found, writing.injected + reading.injected


def _put(
    properties: dict[str, str], rows: pa.RecordBatch, epoch: int, faults: Faults
) -> bool:
    """Put an epoch by a new sink; False where its fate is not known."""
    options = {"producer.key.columns": "number"}
    try:
        with open_sink(properties, options=options, faults=faults) as sink:
            sink.put(rows, writer_id="prover", epoch=epoch)
    except TransientError:
        return False
    return True


def _read(
    properties: dict[str, str],
    position: Position | None,
    faults: Faults,
    chance: random.Random,
) -> tuple[list[int], Position] | None:
    """Read on for some batches; None at the end."""
    numbers: list[int] = []
    batches = chance.randint(1, 20)
    with streamfactory.open(properties, start=position, faults=faults) as stream:
        for batch in stream:
            numbers += batch.rows.column("number").to_pylist()
            batches -= 1
            if not batches:
                break
        return (numbers, stream.position) if numbers else None
