"""``make prove N=... SEED=...``: faults as often as asked, and what they cost: nothing.

Each round writes some epochs through a sink that fails, loses verdicts and is begun
anew, and reads them through a source that fails, loses, repeats and tears its answers
and is stopped and taken up again at its position. Rows out have to be rows in, each
once.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter

import pyarrow as pa

import streamfactory
from streamfactory.backends.memory import store
from streamfactory.spi import Position, TransientError
from streamfactory.wiring.faults import Faults
from streamfactory.wiring.opening import open_sink

SCHEMA = pa.schema([pa.field("number", pa.int64())])


def main() -> None:
    """Run the rounds, and count what was lost and what came twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    lost = twice = 0
    made: Counter[str] = Counter()
    for number in range(arguments.rounds):
        seed = arguments.seed + number
        wanted, found, injected = prove(seed)
        made += injected
        lost += sum((wanted - found).values())
        twice += sum((found - wanted).values())
        if wanted != found:
            print(f"seed {seed}: {len(wanted)} rows in, {found.total()} rows out")
    faults = ", ".join(f"{count} {fault}" for fault, count in sorted(made.items()))
    print(f"{arguments.rounds} rounds from seed {arguments.seed}: {faults}")
    print(f"lost={lost} twice={twice}")
    sys.exit(1 if lost or twice else 0)


def prove(seed: int) -> tuple[Counter[int], Counter[int], Counter[str]]:
    """One round: numbers in, numbers out, faults made."""
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


if __name__ == "__main__":
    main()
