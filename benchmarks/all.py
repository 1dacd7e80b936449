"""Every benchmark, one after the other, and one table of all figures at the end.

    python benchmarks/all.py [NAME ...] [--json] [--output FILE]
                             [--rounds N | --tiny]

Each one is a separate program that starts what it needs. What it measured is in the
table even if a later one fails; then the exit status is 1. The file gets the same
figures after each benchmark, with the date and the load of the machine, in place of
what the same benchmark measured before: ``docs/benchmarks.json`` is what the pages
show. ``--tiny`` shows that all of them run through; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import HEADING, Figure, worse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE: Final = Path(__file__).parent
NAMES: Final = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "all")
RECORDED: Final = HERE.parent / "docs" / "benchmarks.json"
LONGEST: Final = 3600
"""Seconds for one benchmark."""
_ROWS: Final = ("--rounds", "1", "--rows", "20000")
TINY: Final[dict[str, Sequence[str]]] = {
    "decoders": ("--rounds", "1", "json"),
    "engines": _ROWS,
    "flight": ("--rounds", "1", "--minutes", "0.02"),
    "growth": ("--tiny",),
    "kafka": ("--rounds", "1", "--messages", "2000"),
    "kafka_lag": ("--rounds", "1", "--partitions", "100"),
    "kafka_memory": ("--rounds", "1", "--partitions", "4"),
    "kafka_spark": ("--rounds", "1", "--messages", "20000"),
    "kafka_writing": ("--rounds", "1", "--scale", "0.01"),
    "log": ("--rounds", "1", "--only", "read", "commit"),
    "metrics": ("--rounds", "1"),
    "pipeline": _ROWS,
    "publish": _ROWS,
    "push": ("--rounds", "1", "--megabytes", "1"),
    "real_time": ("--rounds", "1", "--seconds", "3"),
    "routing": ("--rounds", "1"),
    "shm": ("--rounds", "1", "--megabytes", "4"),
    "sockets": ("--rounds", "1", "--megabytes", "4"),
    "spark": _ROWS,
    "spark_save": _ROWS,
    "spark_scan": _ROWS,
    "spark_writing": _ROWS,
    "spi": ("--rounds", "1"),
    "spool": ("--rounds", "1", "--scale", "0.02"),
    "start": ("--rounds", "1"),
    "tables": (*_ROWS, "--commits", "20"),
    "zeromq": ("--rounds", "1", "--megabytes", "4"),
}
"""The arguments with which each benchmark ends soonest."""


def main() -> int:
    """Run them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON, no table")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--rounds", type=int, help="of each one that has rounds")
    size.add_argument("--tiny", action="store_true", help="the smallest sizes")
    parser.add_argument("--output", type=Path, help="put the figures into a file")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {min(unknown)!r}; there are {', '.join(NAMES)}")
    # Read first: --output may be the same file.
    recorded = json.loads(RECORDED.read_text("utf-8"))
    found: dict[str, list[dict[str, Any]] | None] = {}
    for name in arguments.names or NAMES:
        started = time.monotonic()
        found[name] = run(HERE / f"{name}.py", *options(name, arguments))
        seconds, load = time.monotonic() - started, os.getloadavg()[1]
        state = "failed" if found[name] is None else "done"
        note = f"{name}: {state} in {seconds:.0f} s, load {load:.1f}"
        print(note, file=sys.stderr, flush=True)
        if arguments.output is not None:
            record(arguments.output, name, found[name], round(load, 1))
    if arguments.json:
        print(json.dumps(found))
    else:
        print("\n".join([*table(found), *compared(found, recorded)]))
    return int(None in found.values())


def options(name: str, arguments: argparse.Namespace) -> Sequence[str]:
    """What one benchmark is called with."""
    if arguments.tiny:
        return TINY[name]
    if arguments.rounds is None or "--rounds" not in TINY[name]:
        return ()
    return ("--rounds", str(arguments.rounds))


def record(
    file: Path, name: str, figures: list[dict[str, Any]] | None, load: float
) -> None:
    """Put the figures of a benchmark into a file; none if it failed."""
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    known.pop(name, None)
    if figures is not None:
        today = datetime.now(UTC).date().isoformat()
        where = {"date": today, "cores": os.cpu_count(), "load": load}
        known[name] = {**where, "figures": figures}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dict(sorted(known.items())), indent=1)
    file.write_text(f"{text}\n")


def run(program: Path, *arguments: str) -> list[dict[str, Any]] | None:
    """The figures of one benchmark; None where it failed."""
    command = [sys.executable, str(program), "--json", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - our own
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST
        )
        figures: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, json.JSONDecodeError, IndexError) as error:
        print(f"{program.stem}: {error}", file=sys.stderr)
        return None
    return figures


def table(found: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> list[str]:
    """One line for each figure, by benchmark."""
    lines = [f"  {HEADING}"]
    for name, figures in found.items():
        lines += ["", f"{name}: failed" if figures is None else name]
        lines += [f"  {Figure(**one)}" for one in figures or ()]
    return lines


def compared(
    found: Mapping[str, Sequence[Mapping[str, Any]] | None],
    recorded: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """What is worse than the recorded figures by more than the noise, a line each."""
    lines, count = [], 0
    for name, figures in found.items():
        run = recorded.get(name, {})
        before = {one["name"]: Figure(**one) for one in run.get("figures", ())}
        for now in (Figure(**one) for one in figures or ()):
            if now.name in before:
                count += 1
                if by := worse(now, before[now.name]):
                    then = f"{before[now.name].value:.3g} on {run['date']}"
                    change = f"{now.value:.3g} {now.unit}, {then}"
                    lines.append(f"  {name}: {now.name}: {change}: {by:.0%} worse")
    verdict = (
        f"{len(lines)} of {count} recorded figures are worse by more than the noise"
    )
    return ["", verdict, *lines]


if __name__ == "__main__":
    sys.exit(main())
