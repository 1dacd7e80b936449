"""Runs inputs in child processes: what kills a child is found, kept and repeated.

::

    python -m tests.fuzz.running ENTRY FILE      feeds one input that was kept
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fuzz import corpus
from tests.fuzz.progress import Progress
from tests.fuzz.verdicts import Finding

ROOT: Final = Path(__file__).parents[2]
BUSY: Final = 20.0
"""Seconds of a processor that one input may take."""
_WAITING: Final = 120.0
"""Seconds that one input may take on a machine that is busy with something else."""
_STARTING: Final = 600.0
"""Seconds that a child may take outside of any input: to start on such a machine, and
to make inputs."""
_POLL: Final = 0.1
_MEASURED: Final = 200
"""Inputs from which on the share of accepted ones is judged."""
_LEAST_SHARE: Final = 0.2
_MOST_SHARE: Final = 0.8
_DEATHS: Final = 25
"""Of children of one entry point, after which the rest of its inputs is left out."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Item:
    """Inputs of one entry point: made by numbers, or read from files."""

    entry: str
    count: int
    first: int = 0
    files: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        plain = {"entry": self.entry, "first": self.first, "count": self.count}
        return plain | {"files": self.files} if self.files else plain


@dataclass(slots=True)
class Kept:
    """A finding, and the first input that caused it."""

    finding: Finding
    path: Path
    count: int = 1
    repeats: bool | None = None
    """Whether the input does it again by itself; None where that was not tried."""

    def __str__(self) -> str:
        found = self.finding
        alone = ", only after other inputs" if self.repeats is False else ""
        return (
            f"{found.entry}: {found.kind}, {self.count} times{alone}: {found.what}\n"
            f"  repeat it: python -m tests.fuzz.running {found.entry} {self.path}"
        )


@dataclass(slots=True)
class Report:
    """What came of a run."""

    inputs: Counter[str] = field(default_factory=Counter)
    """By entry point."""
    outcomes: defaultdict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """By entry point: how often inputs were accepted, and with which code refused."""
    accepted: Counter[str] = field(default_factory=Counter)
    """Messages that were accepted, by entry point."""
    seconds: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    """Inputs that were not fed, because too many before them killed a child."""
    kept: dict[tuple[str, str, str], Kept] = field(default_factory=dict)

    def share(self, entry: str) -> float:
        """The share of accepted ones among the messages of an entry point.

        Where nearly all are refused, what is behind the first check is not reached;
        where nearly none are, nothing is damaged.
        """
        return self.accepted[entry] / max(1, self.inputs[entry])

    def unbalanced(self) -> list[str]:
        """Generators whose share of accepted messages is too small or too large."""
        from tests.fuzz.entries.every import ENTRIES

        return [
            f"{name}: {self.share(name):.0%} of {count} inputs are accepted"
            for name, count in self.inputs.items()
            if count >= _MEASURED and not ENTRIES[name].TOLERANT
            if not _LEAST_SHARE <= self.share(name) <= _MOST_SHARE
        ]

    @property
    def good(self) -> bool:
        return not self.kept and not self.left_out

    def add(self, other: Report) -> None:
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.seconds += other.seconds
        self.left_out += other.left_out
        self.kept |= other.kept
        for entry, counts in other.outcomes.items():
            self.outcomes[entry] += counts

    def __str__(self) -> str:
        lines = [str(kept) for kept in self.kept.values()]
        lines += [f"{e}: {n} inputs were left out" for e, n in self.left_out.items()]
        return "\n".join(lines)


class Run:
    """One plan, worked through by children one after another.

    Args:
        items: What is fed.
        seed: Of all chances.
        folder: For files of the children; empty.
        seeds: The file that `corpus.build` wrote.
        keep: Where inputs are kept that caused something.
        planted: Whether there are defects, for tests of the suite itself.
        busy: Seconds of a processor that one input may take.
    """

    def __init__(
        self,
        items: list[Item],
        seed: int,
        folder: Path,
        seeds: Path,
        keep: Path,
        *,
        planted: bool = False,
        busy: float = BUSY,
    ) -> None:
        self._busy = busy
        self._items = items
        self._folder, self._keep = folder, keep
        self._plan = {
            "items": [item.to_plain() for item in items],
            "seed": seed,
            "corpus": str(seeds),
            "planted": planted,
        }
        self._seeds, self._planted = seeds, planted
        # An input of a file is such a repetition already.
        self._confirms = not any(item.files for item in items)
        self.report = Report()

    def run(self) -> Report:
        """Feed all inputs.

        Raises:
            AssertionError: A child ended by itself, outside of any input.
        """
        at, begin, deaths = 0, self._items[0].first, 0
        while at < len(self._items):
            self._start(at, begin)
            died, number, finding, data = self._watch()
            if died == len(self._items):
                break
            item = self._items[died]
            deaths = deaths + 1 if died == at else 1
            assert finding is not None
            self._found(finding, data)
            at, begin = died, number + 1
            left = item.first + item.count - begin
            if deaths > _DEATHS:
                self.report.left_out[item.entry] += left
            if deaths > _DEATHS or left <= 0:
                at, deaths = at + 1, 0
                begin = self._items[at].first if at < len(self._items) else 0
        self._count()
        return self.report

    def _start(self, at: int, begin: int) -> None:
        plan = self._folder / "plan"
        plan.write_text(json.dumps(self._plan | {"from": at, "begin": begin}))
        (self._folder / "progress").unlink(missing_ok=True)
        (self._folder / "log").write_text("")
        self._progress = Progress(self._folder / "progress")
        self._progress.end(at, begin - 1)
        with (self._folder / "stderr").open("w+b") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child", plan, self._folder],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": _path()},
            )

    def _watch(self) -> tuple[int, int, Finding | None, bytes]:
        """Wait for the end of a child, or for an input that takes too long."""
        last = (-1, -1)
        since = cpu = 0.0
        began = time.monotonic()
        hung = False
        while self._child.poll() is None:
            time.sleep(_POLL)
            item, number, data = self._progress.look()
            now, used = time.monotonic(), _processor(self._child.pid)
            if (item, number) != last:
                last, since, cpu = (item, number), now, used
            late = used - cpu > self._busy or now - since > _WAITING
            if late and data is not None and not hung:
                hung = True
                self._child.send_signal(signal.SIGABRT)  # its stack is printed
            elif now - since > (_STARTING if data is None else _WAITING + BUSY):
                self._child.kill()
        item, number, data = self._progress.look()
        self._progress.close()
        status = self._child.returncode
        self._read_log(time.monotonic() - began)
        if status == 0:
            return len(self._items), 0, None, b""
        printed = (self._folder / "stderr").read_text(errors="replace")
        if data is None:
            msg = (
                f"a child ended with {status} outside of any input:\n{printed[-4000:]}"
            )
            raise AssertionError(msg)
        kind, what = "crash", _place(printed)
        if hung:
            kind = "hang"
        elif status > 0:
            kind, what = "ended", f"with status {status}: {what}"
        else:
            what = f"{signal.Signals(-status).name} in {what}"
        entry = self._items[item].entry
        return item, number, Finding(entry, number, kind, what, printed[-6000:]), data

    def _read_log(self, seconds: float) -> None:
        """What the child found, and what came of its inputs."""
        found = Counter[str]()
        for line in (self._folder / "log").read_text().splitlines():
            plain = json.loads(line)
            if "finding" in plain:
                self._found(Finding(**plain["finding"]), bytes.fromhex(plain["data"]))
                found[plain["finding"]["entry"]] += 1
            else:
                self.report.outcomes[plain["entry"]].update(plain["outcomes"])
                self.report.accepted[plain["entry"]] += plain["accepted"]
                found[plain["entry"]] += sum(plain["outcomes"].values())
        for entry, count in found.items():
            share = count / max(1, found.total())
            self.report.seconds[entry] += round(seconds * share, 1)  # type: ignore[assignment]

    def _found(self, finding: Finding, data: bytes) -> None:
        key = (finding.entry, finding.kind, finding.what)
        if key in self.report.kept:
            self.report.kept[key].count += 1
            return
        digest = hashlib.sha256(data).hexdigest()[:12]
        path = self._keep / f"{finding.entry}-{finding.kind}-{digest}"
        self._keep.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(f"{finding.what}\n{finding.detail}")
        kept = self.report.kept[key] = Kept(finding, path)
        if self._confirms and finding.kind in {"crash", "hang", "ended"}:
            again = feed_file(
                finding.entry,
                path,
                self._seeds,
                planted=self._planted,
                busy=self._busy,
            )
            kept.repeats = not again.good

    def _count(self) -> None:
        from tests.fuzz.entries.every import ENTRIES

        for item in self._items:
            fed = item.count - self.report.left_out[item.entry]
            self.report.inputs[item.entry] += fed * ENTRIES[item.entry].MESSAGES


def feed_file(
    entry: str,
    path: Path,
    seeds: Path | None = None,
    *,
    planted: bool = False,
    busy: float = BUSY,
) -> Report:
    """Feed one input that was kept, in a child of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        if seeds is None:
            seeds = folder / "corpus"
            corpus.build(seeds)
        place = folder / "child"
        place.mkdir()
        item = Item(entry, 1, files=(str(path.resolve()),))
        kept = folder / "kept"
        return Run([item], 0, place, seeds, kept, planted=planted, busy=busy).run()


def _path() -> str:
    """Where children find the project: as here, this checkout first."""
    here = [str(ROOT / "src"), str(ROOT)]
    return os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")])


def _processor(process: int) -> float:
    """Seconds of a processor that a child has taken."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _place(printed: str) -> str:
    """Where a child died: the innermost frame outside of the suite."""
    frames = [line.strip() for line in printed.splitlines() if "  File " in line]
    ours = [line for line in frames if "tests/fuzz" not in line]
    found = (ours or frames or ["?"])[0]
    return found.replace(str(ROOT), "")


def main() -> None:
    """Feed one input that was kept, and tell what comes of it."""
    entry, path = sys.argv[1], Path(sys.argv[2])
    report = feed_file(entry, path)
    for kept in report.kept.values():
        sys.stdout.write(f"{kept.finding.kind}: {kept.finding.what}\n")
        sys.stdout.write(kept.finding.detail + "\n")
    for outcome, count in report.outcomes[entry].items():
        sys.stdout.write(f"{outcome}: {count}\n")
    sys.exit(0 if report.good else 1)


if __name__ == "__main__":
    main()
