"""How costs grow: with partitions, tasks, commits, rows, readers, writers and bytes.

    python benchmarks/growth.py [--json] [--only NAME ...] [--full | --tiny]
                                [--folder PATH] [--record FILE]

A figure is the exponent of a cost between the two largest sizes: 0 where it is
constant, 1 where it is linear. The goal is that of the class that the curve should
have. Times are processor time, the least of some runs, so that other work of the
machine shows little; commits of many processes are timed by the clock. Nothing is
gated. ``--full`` goes to 100,000 commits, 10^8 rows and a read of 10 GB, else to a
tenth of each. ``--record`` writes the curves for the tables and plots of the docs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.disklog import epochs
from benchmarks.growing import crowds, memory, topics
from benchmarks.measuring.figures import report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.growing.curves import Curve
    from benchmarks.measuring.figures import Figure

CURVES: Final[dict[str, Callable[[Path, int], Iterator[Curve]]]] = {
    "partitions": topics.by_partitions,
    "tasks": topics.by_tasks,
    "commits": topics.by_commits,
    "rows": topics.by_rows,
    "readers": crowds.by_readers,
    "writers": crowds.by_writers,
    "memory": memory.by_bytes,
}
SIZES: Final[Mapping[str, tuple[int, int, int]]] = {
    "partitions": (100, 10_000, 10_000),
    "tasks": (100, 1_000, 10_000),
    "commits": (100, 10_000, 100_000),
    "rows": (1_000_000, 10_000_000, 100_000_000),
    "readers": (4, 64, 64),
    "writers": (2, 16, 16),
    "memory": (256, 2_560, 10_240),
}
"""The largest of each: with ``--tiny``, by default, and with ``--full``."""
CHILDREN: Final[dict[str, Callable[..., Any]]] = {
    "commit": epochs.commit_child,
    "readers": crowds.readers_child,
    "reader": memory.reader_child,
    "task": memory.task_child,
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="+", choices=CURVES, default=[*CURVES])
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_const", const=2, dest="size", default=1)
    sizes.add_argument("--tiny", action="store_const", const=0, dest="size")
    parser.add_argument("--folder", type=Path, help="default: the temporary one")
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, *rest = arguments.child
        print(json.dumps(CHILDREN[name](*rest)))
        return
    curves: list[Curve] = []
    report(figures(arguments, curves), as_json=arguments.json)
    if arguments.record is not None:
        record(arguments.record, curves)


def figures(arguments: argparse.Namespace, curves: list[Curve]) -> Iterator[Figure]:
    """All that was asked for, each when it is measured; fills the list."""
    for name in arguments.only:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            for curve in CURVES[name](Path(folder), SIZES[name][arguments.size]):
                curves.append(curve)
                yield curve.figure()


def record(file: Path, curves: list[Curve]) -> None:
    """Write curves, in the place of those of the same name and sizes."""
    known: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    measured = {
        "date": datetime.now(UTC).date().isoformat(),
        "load": round(os.getloadavg()[1], 1),
        "cores": os.cpu_count(),
    }
    found = {(one["over"], one["name"]): one for one in known}
    for curve in curves:
        one = {**asdict(curve), "exponent": round(curve.exponent, 3), **measured}
        one["met"] = curve.figure().met
        one["values"] = {size: round(v, 3) for size, v in curve.values.items()}
        found[curve.over, curve.name] = one
    file.write_text(json.dumps(list(found.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
