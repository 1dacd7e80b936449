"""A pipeline without Spark that is killed, with three sinks: each row once in each.

The writer of its source is killed as well, and adds a partition.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.proving.children import Pack
from tests.proving.numbers import SCHEMA, append, everything, store_at
from tests.proving.verdict import Verdict
from tests.transfer.fresh_proving import properties, write

from streamfactory.spark.pipelines.overriding import CONTINUOUS, ONCE, Overrides
from streamfactory.spark.pipelines.rowwise.running import run_rowwise

if TYPE_CHECKING:
    from streamfactory.spark.pipelines.outcomes import Batch

BACKLOG: Final = 500
SINKS: Final = ("all", "even", "bad")
LONGEST: Final = {"write": 0.1, "pipeline": 0.6}
"""Seconds that each may have run before it is killed."""
_FILE: Final = """
engine = "datafusion"
checkpoint = "checkpoint"
[source]
stream = "in"
startingOffsets = "earliest"
"batch.rows" = "10"
[[steps]]
id = "numbers"
sql = "select number from input"
[[steps]]
id = "halves"
sql = "select number from numbers where number % 2 = 0"
[[expectations]]
name = "rare"
on = "numbers"
condition = "number % 7 <> 0"
"on.failure" = "dead-letter"
stream = "bad"
"realtime.segment.flush.threshold.rows" = "5"
[[sinks]]
stream = "all"
from = "numbers"
"realtime.segment.flush.threshold.rows" = "25"
[[sinks]]
stream = "even"
from = "halves"
"""


def run(root: str, pace: str = CONTINUOUS) -> None:
    os.chdir(root)

    def ignore(batch: Batch) -> None:
        del batch

    files = [Path(root, "p.toml")]
    [done] = run_rowwise(files, Overrides(pace), threading.Event(), ignore)
    assert done.failure is None, done.failure


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them, then read what is left."""
    place, store = str(root), store_at(root)
    streams = root / "configs" / "streams"
    streams.mkdir(parents=True)
    for topic in ("in", *SINKS):
        body = {"name": topic, "properties": properties(place, topic)}
        (streams / f"{topic}.json").write_text(json.dumps(body))
    store.create("in", SCHEMA, 2)
    append(store.open("in"), {0: range(BACKLOG)})
    (root / "p.toml").write_text(_FILE)
    before = Path.cwd()
    pack = Pack({"write": (write, place), "pipeline": (run, place)})
    try:
        chance = random.Random(seed)
        for _ in range(rounds):
            pack.hunt(1, chance, LONGEST)
            time.sleep(chance.random() * 0.1)
        (root / "stop").touch()
        pack.finish("write")
    finally:
        pack.close()
    try:
        run(place, ONCE)
    finally:
        os.chdir(before)
    given = _numbers(store.open("in"))
    wanted = {
        "all": Counter(n for n in given if n % 7),
        "even": Counter(n for n in given if n % 7 and not n % 2),
        "bad": Counter(n for n in given if not n % 7),
    }
    found = {topic: Counter(_numbers(store.open(topic))) for topic in SINKS}
    store.close()
    return Verdict(
        lost=sum((wanted[one] - found[one]).total() for one in SINKS),
        twice=sum((found[one] - wanted[one]).total() for one in SINKS),
        kills=rounds,
        notes=[f"{len(given)} rows into {len(SINKS)} sinks"],
    )


def _numbers(log: object) -> list[int]:
    return [n for part in everything(log).values() for n in part]  # type: ignore[arg-type]
