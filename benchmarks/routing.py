"""What routing by key costs: rows a second of one processor, beside murmur2 alone.

    python benchmarks/routing.py [--json] [--rounds N]

Batches of 65,536 rows with a key and two numbers are spread over 8 partitions. A figure
is the median of the rounds. Nothing is gated.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report

from streamfactory.wiring.writing.murmur import partition_of
from streamfactory.wiring.writing.routing import ROUTING, Router, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure

ROWS: Final = 65_536
PARTITIONS: Final = 8
BATCHES: Final = 10
"""In a round."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    report(figures(arguments.rounds), as_json=arguments.json)


def figures(rounds: int) -> Iterator[Figure]:
    """One for each kind of key."""
    random = np.random.default_rng(0)
    thousand = random.integers(0, 1000, ROWS)
    texts = pa.array([random.bytes(20) for _ in range(ROWS)])
    kinds = {
        "1,000 distinct int64 keys": (pa.array(thousand), ">= 5"),
        "1,000 distinct text keys": (pa.array([f"key-{n}" for n in thousand]), ">= 5"),
        "distinct int64 keys": (pa.array(random.integers(0, 1 << 62, ROWS)), ">= 2"),
        "distinct keys of 20 bytes": (texts, ">= 2"),
    }
    for name, (key, goal) in kinds.items():
        router = Router(lambda _: PARTITIONS, 0, ["key"])
        numbers = pa.array(random.random(ROWS))
        batch = pa.record_batch({"key": key, "a": numbers, "b": numbers})
        octets = key if key.type == pa.binary() else key.cast(pa.string())
        octets = octets.cast(pa.binary())
        routed = [_rate(partial(_route, router, batch)) for _ in range(rounds)]
        hashed = partial(partition_of, octets, PARTITIONS)
        alone = [_rate(hashed) for _ in range(rounds)]
        yield figure(f"routing, {name}", routed, "M rows/s", goal, ceiling=alone)


def _route(router: Router, rows: pa.RecordBatch) -> None:
    parcel = unpack(rows, ROUTING)
    for _ in router.route(parcel, router.key_of(parcel)):
        pass


def _rate(task: Callable[[], object]) -> float:
    """Millions of rows in a second of processor time."""
    begun = time.thread_time()
    for _ in range(BATCHES):
        task()
    return ROWS * BATCHES / (time.thread_time() - begun) / 1e6


if __name__ == "__main__":
    main()
