"""Every benchmark, one after the other, and one table of all figures at the end.

    python benchmarks/all.py [NAME ...] [--json] [--output FILE]

Each one is a separate program that starts what it needs. What it measured is in the
table even if a later one fails; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE: Final = Path(__file__).parent
NAMES: Final = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "all")
LONGEST: Final = 3600
"""Seconds for one benchmark."""


def main() -> int:
    """Run them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON, no table")
    parser.add_argument("--output", type=Path, help="write the JSON to a file as well")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {min(unknown)!r}; there are {', '.join(NAMES)}")
    found: dict[str, list[dict[str, Any]] | None] = {}
    for name in arguments.names or NAMES:
        started = time.monotonic()
        found[name] = run(HERE / f"{name}.py")
        seconds = time.monotonic() - started
        state = "failed" if found[name] is None else "done"
        print(f"{name}: {state} in {seconds:.0f} s", file=sys.stderr, flush=True)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found) if arguments.json else "\n".join(table(found)))
    return int(None in found.values())


def run(program: Path) -> list[dict[str, Any]] | None:
    """The figures of one benchmark; None where it failed."""
    command = [sys.executable, str(program), "--json"]
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
    lines = []
    for name, figures in found.items():
        lines += ["", f"{name}: failed" if figures is None else name]
        lines += [f"  {Figure(**one)}" for one in figures or ()]
    return lines[1:]


if __name__ == "__main__":
    sys.exit(main())
