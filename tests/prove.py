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
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A command's path is its own folder; its children look for the same names as pytest.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.decoding import proving as decoding
from tests.distributions import proving as distributions
from tests.flight import proving as flight
from tests.flight import spark_proving as flight_spark
from tests.fuzz import proving as fuzz
from tests.golden import proving as golden
from tests.kafka import chaos_proving as kafka3
from tests.kafka import proving as kafka
from tests.kafka import spark_proving as kafka_spark
from tests.kafka import spark_source_proving as spark_kafka
from tests.pipelines import proving as pipelines
from tests.pipelines import reverse_proving as reverse
from tests.proving import (
    backend,
    crowd,
    faults,
    plants,
    points,
    power,
    properties,
    repeated,
)
from tests.proving.java import quick_options
from tests.proving.verdict import Verdict
from tests.reading import schema_pairs
from tests.shm import proving as shm
from tests.spark import proving as spark
from tests.spark import save_proving as save
from tests.spool import proving as spool
from tests.tables import sink_proving as lake
from tests.zeromq import proving as zeromq
from tests.zoo import planting
from tests.zoo import proving as zoo

if TYPE_CHECKING:
    from collections.abc import Mapping

PATHS: Mapping[str, tuple[str, Any]] = {
    "steps": ("steps of the log", points),
    "processes": ("processes that share a log", crowd),
    "file": ("the file backend", backend),
    "power": ("power cuts", power),
    "faults": ("faults", faults),
    "flight": ("the Flight server, its writers and readers", flight),
    "spool": ("spools, their senders, receivers and readers", spool),
    "flight-spark": ("Spark over Flight", flight_spark),
    "fuzz": ("damaged inputs", fuzz),
    "schemas": ("rows between generated pairs of schemas", schema_pairs),
    "golden": ("test data of other projects", golden),
    "spark": ("Spark's drivers", spark),
    "save": ("Spark's Parquet writer", save),
    "pipelines": ("pipelines with several sinks", pipelines),
    "reverse": ("tables into kafka and files", reverse),
    "delta": ("the delta sink", lake.DELTA),
    "iceberg": ("the iceberg sink", lake.ICEBERG),
    "kafka": ("the kafka sink", kafka),
    "kafka-spark": ("Spark into kafka", kafka_spark),
    "spark-kafka": ("Spark from kafka", spark_kafka),
    "kafka3": ("three brokers, their writers, copies, groups and Spark", kafka3),
    "shm": ("rings in shared memory, their writers and readers", shm),
    "zeromq": ("zeromq's senders and readers", zeromq),
    "dead-letters": ("copies with dead letters", decoding),
    "distributions": ("distributions of NATS and Redis", distributions),
    "zoo": ("the kit on broken backends", zoo),
    "properties": ("tests of generated cases", properties),
    "repeated": ("tests that repeat others", repeated),
    "mutants": ("the kit on planted defects of NATS and Redis", planting),
    "plants": ("the suite on planted defects", plants),
}
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
            name, path = PATHS[key]
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


if __name__ == "__main__":
    main()
