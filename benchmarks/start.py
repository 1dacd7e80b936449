"""What starting costs: commands over an empty interpreter, and `make run`.

    python benchmarks/start.py [--json] [--rounds N]

`list`, `validate FILE` and `tail STREAM` of a stream of type `file` with a few rows, in
milliseconds by the clock over `python -c pass`; a figure is the median of rounds in
which all of them take turns. Beside it stands the processor time. The ceiling of `tail`
is an interpreter that imports Arrow and reads the same file; the others need no Arrow.
`make run` is timed to the first row that it prints, in a folder that has the checkout
and this environment, and no results of earlier runs. Nothing is gated.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report, shuffled

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.measuring.figures import Figure

ROOT: Final = Path(__file__).parents[1]
CHECKOUT: Final = ("Makefile", ".ci", "pyproject.toml", "configs", "examples")
"""What `make run` uses of it."""
STREAM: Final = """
name = "clicks"

[properties]
streamType = "file"
"stream.file.path" = "streams"
"stream.file.topic.name" = "clicks"
"""
EMPTY: Final = ("-c", "pass")
READ: Final = """
import glob
import pyarrow as pa
[path] = glob.glob("streams/**/*.arrow", recursive=True)
print(pa.ipc.open_file(path).read_all().to_pylist())
"""
OURS: Final = ("-m", "streamfactory")
COMMANDS: Final[Mapping[str, tuple[Sequence[str], Sequence[str] | None]]] = {
    "list": ((*OURS, "list"), None),
    "validate FILE": ((*OURS, "validate", "clicks.toml"), None),
    "tail STREAM": ((*OURS, "tail", "clicks.toml", "--no-follow"), ("-c", READ)),
}
"""Arguments of Python for each command, and for its ceiling."""


class Cost(NamedTuple):
    """Of one process."""

    clock: float
    """Milliseconds."""
    processor: float
    """Milliseconds."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    report(figures(arguments.rounds), as_json=arguments.json)


def figures(rounds: int) -> Iterator[Figure]:
    """Those of the commands, then that of `make run`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_stream(folder)
        yield from command_figures(folder, rounds)
    first = [seconds_to_first_row() for _ in range(max(1, rounds // 5))]
    yield figure("make run to its first printed row", first, "s", "<= 5")


def create_stream(folder: Path) -> None:
    """A topic with three rows, and the file that describes it."""
    folder.joinpath("clicks.toml").write_text(STREAM)
    properties = {
        "streamType": "file",
        "stream.file.path": str(folder / "streams"),
        "stream.file.topic.name": "clicks",
    }
    with streamfactory.open_sink(properties) as sink:
        rows = pa.table({"user": ["ann", "bob", "eve"], "page": [1, 2, 3]})
        sink.put(rows, writer_id="web", epoch=0)


def command_figures(folder: Path, rounds: int) -> Iterator[Figure]:
    """One for each command."""
    sides = {EMPTY, *(side for pair in COMMANDS.values() for side in pair)}
    took: dict[Sequence[str], list[Cost]] = {side: [] for side in sides if side}
    named = {" ".join(side): side for side in took}
    for number in range(rounds + 1):  # the first round warms up, and is left out
        for _, side in shuffled(named):
            cost = cost_of(side, folder)
            if number:
                took[side].append(cost)

    def over_empty(side: Sequence[str]) -> list[Cost]:
        pairs = zip(took[side], took[EMPTY], strict=True)
        return [Cost(a.clock - b.clock, a.processor - b.processor) for a, b in pairs]

    for name, (ours, least) in COMMANDS.items():
        values = over_empty(ours)
        beside = {"ms of a processor": statistics.median(v.processor for v in values)}
        yield figure(
            f"{name} over an empty interpreter",
            [value.clock for value in values],
            "ms",
            "<= 100",
            beside,
            ceiling=[value.clock for value in over_empty(least)] if least else (),
        )


def cost_of(arguments: Sequence[str], folder: Path) -> Cost:
    """One interpreter, from its start to its end."""
    begun = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return Cost(1000 * took, 1000 * (used.ru_utime + used.ru_stime))


def seconds_to_first_row() -> float:
    """From `make run` to the first row that it prints; then it is ended."""
    with tempfile.TemporaryDirectory() as name:
        for part in CHECKOUT:
            Path(name, part).symlink_to(ROOT / part)
        Path(name, ".venv").symlink_to(sys.prefix)
        begun = time.perf_counter()
        with subprocess.Popen(
            # Never installs: this environment is used as it is.
            ["make", "--old-file=.venv/.installed", "run"],  # noqa: S607
            cwd=name,
            # A terminal has each line at once, too.
            env={**environment(), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            lines = iter(process.stdout)
            line = next((one for one in lines if one.startswith("the first")), "")
            took = time.perf_counter() - begun
            # Its processes are a group of their own, and all of them end.
            os.killpg(process.pid, signal.SIGKILL)
    if not line:
        msg = "make run printed no row"
        raise SystemExit(msg)
    return took


def environment() -> dict[str, str]:
    """That of this process; compiled modules are kept, as everywhere else."""
    unwanted = "PYTHONDONTWRITEBYTECODE"
    return {name: text for name, text in os.environ.items() if name != unwanted}


if __name__ == "__main__":
    main()
