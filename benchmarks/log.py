"""What the log on disk makes of plain Arrow files: the same rows, in the same rounds.

    python benchmarks/log.py [--json] [--rounds N] [--only NAME ...] [--full]
                             [--folder PATH]

Two sides take turns, and a figure is the median of the rounds' ratios. Nothing is
gated. ``--full`` passes 20 GB and 100,000 epochs, else a tenth and a twentieth.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.disklog import epochs, following, memory, queries, throughput
from benchmarks.disklog.topic import Bench
from benchmarks.measuring.figures import report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure

FIGURES: Final[dict[str, Callable[[Bench], Iterator[Figure]]]] = {
    "read": throughput.reading_figures,
    "append": throughput.appending_figures,
    "commit": epochs.committing_figures,
    "follow": following.following_figures,
    "ask": queries.query_figures,
    "memory": memory.passing_figures,
    "epochs": epochs.counting_figures,
}
CHILDREN: Final[dict[str, Callable[..., Any]]] = {
    "commit": epochs.commit_child,
    "follow": following.follow_child,
    "write": memory.write_child,
    "read": memory.read_child,
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=[*FIGURES])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--folder", type=Path, help="default: the temporary one")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, *rest = arguments.child
        print(json.dumps(CHILDREN[name](*rest)))
        return
    report(figures(arguments), as_json=arguments.json)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """All that was asked for, each when it is there."""
    for name in arguments.only:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            bench = Bench(Path(folder), arguments.rounds, arguments.full)
            yield from FIGURES[name](bench)


if __name__ == "__main__":
    main()
