"""``make prove N=... SEED=...``: kills, power cuts, faults and damaged inputs.

So many of them on each path: before steps of the log, at random moments of processes
that share one, through the `file` backend, as power cuts, and as faults of a backend in
memory. Rows out have to be rows in, each once, and in order. The path `fuzz` feeds
3,000 times N damaged inputs to the entry points for bytes of others: `N=100` is
300,000. The path `schemas` converts rows between 1,000 times N generated pairs of
schemas. The path `zoo` runs the whole kit on each broken backend once, and compares
with docs/zoo.md. The path `golden` reads test data that other projects share, from the
archives in the folder `GOLDEN`. The path `mutants` plants N of the fifteen defects in
each of the backends for NATS and Redis, and counts those that the kit does not notice;
it runs only where it is named. The path `plants`, which runs only where it is named,
plants N defects in a copy of the tree, one at a time, and counts those that no test
notices. The path `repeated` runs the tests that repeat what others show
(``@pytest.mark.repeated``) once; N and the seed have no meaning there. The path
`properties` runs the tests of generated cases with N times as many cases. The same seed
makes the same choices; at which moment processes run is up to the machine.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A command's path is its own folder; its children look for the same names as pytest.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.proving.java import quick_options
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

PATHS: Mapping[str, tuple[str, str]] = {
    "arrivals": (
        "readers of files that arrive in a bucket",
        "tests.objects.arrivals_proving",
    ),
    "steps": ("steps of the log", "tests.proving.points"),
    "processes": ("processes that share a log", "tests.proving.crowd"),
    "file": ("the file backend", "tests.proving.backend"),
    "power": ("power cuts", "tests.proving.power"),
    "faults": ("faults", "tests.proving.faults"),
    "flight": ("the Flight server, its writers and readers", "tests.flight.proving"),
    "spool": ("spools, their senders, receivers and readers", "tests.spool.proving"),
    "flight-spark": ("Spark over Flight", "tests.flight.spark_proving"),
    "fuzz": ("damaged inputs", "tests.fuzz.proving"),
    "schemas": (
        "rows between generated pairs of schemas",
        "tests.reading.schema_pairs",
    ),
    "golden": ("test data of other projects", "tests.golden.proving"),
    "spark": ("Spark's drivers", "tests.spark.proving"),
    "save": ("Spark's Parquet writer", "tests.spark.save_proving"),
    "pipelines": ("pipelines with several sinks", "tests.pipelines.proving"),
    "reverse": ("tables into kafka and files", "tests.pipelines.reverse_proving"),
    "delta": ("the delta sink", "tests.tables.sink_proving:DELTA"),
    "iceberg": ("the iceberg sink", "tests.tables.sink_proving:ICEBERG"),
    "merges": ("changes of a table, copied by key", "tests.tables.merge_proving"),
    "kafka": ("the kafka sink", "tests.kafka.proving"),
    "kafka-spark": ("Spark into kafka", "tests.kafka.spark_proving"),
    "spark-kafka": ("Spark from kafka", "tests.kafka.spark_source_proving"),
    "kafka3": (
        "three brokers, their writers, copies, groups and Spark",
        "tests.kafka.chaos_proving",
    ),
    "shm": ("rings in shared memory, their writers and readers", "tests.shm.proving"),
    "zeromq": ("zeromq's senders and readers", "tests.zeromq.proving"),
    "rowwise": ("pipelines without Spark", "tests.pipelines.rowwise_proving"),
    "fresh": ("copies that skip, and their backfills", "tests.transfer.fresh_proving"),
    "dead-letters": ("copies with dead letters", "tests.decoding.proving"),
    "distributions": ("distributions of NATS and Redis", "tests.distributions.proving"),
    "zoo": ("the kit on broken backends", "tests.zoo.proving"),
    "properties": ("tests of generated cases", "tests.proving.properties"),
    "repeated": ("tests that repeat others", "tests.proving.repeated"),
    "mutants": ("the kit on planted defects of NATS and Redis", "tests.zoo.planting"),
    "plants": ("the suite on planted defects", "tests.proving.plants"),
}
"""What is proved, and the module that does it: imported when it is, because children
of the tests import this one."""
DEFAULT = [key for key in PATHS if key not in ("mutants", "plants")]
"""Paths of a run that names none: planting defects takes long."""


def main() -> None:
    """Prove each path, and count what was lost and what came twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=20, help="kills of a path; 3,000 inputs of fuzz"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paths", nargs="*", choices=PATHS, default=DEFAULT)
    arguments = parser.parse_args()
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    os.environ["SPARK_SUBMIT_OPTS"] = quick_options()
    total, begun = Verdict(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for key in arguments.paths or DEFAULT:
            name, path = PATHS[key][0], _imported(PATHS[key][1])
            place, since = Path(folder) / key, time.monotonic()
            place.mkdir()
            verdict = path.prove(arguments.rounds, arguments.seed, place)
            seconds = time.monotonic() - since
            for line in (*verdict.notes, f"{name}: {verdict}, {seconds:.1f} s"):
                print(line, flush=True)
            total += verdict
    seconds = time.monotonic() - begun
    print(f"seed {arguments.seed}, {total.kills} kills, {seconds:.1f} s")
    if total.inputs:
        print(f"{total.inputs} inputs, findings={total.findings}")
    print(f"lost={total.lost} twice={total.twice}")
    sys.exit(0 if total.good else 1)


def _imported(path: str) -> Any:
    """The module, or the object behind its colon."""
    module, _, name = path.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


if __name__ == "__main__":
    main()
