"""A process that feeds inputs, and may die of one: `running` starts it again.

Its arguments are a file with the plan, in JSON, and a folder. It writes a line of JSON
for each finding, and one for each item of the plan when that is done.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import random
import resource
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz import corpus, planted
from tests.fuzz.entries.every import ENTRIES
from tests.fuzz.progress import Progress
from tests.fuzz.verdicts import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.entries.base import Entry

_ADDRESSES: Final = 4 << 30
"""Bytes of address space beyond those that the process has when it begins."""
_FLUSH: Final = 500


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    faulthandler.enable()
    warnings.simplefilter("error")
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    _limit()
    if plan["planted"]:
        planted.plant()
    seeds = corpus.load(Path(plan["corpus"]))
    progress = Progress(folder / "progress")
    with (folder / "log").open("a") as log:
        for at, item in enumerate(plan["items"]):
            if at < plan["from"]:
                continue
            place = folder / item["entry"]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            entry = ENTRIES[item["entry"]](place, seeds)
            judge = Judge(entry)
            begin = plan["begin"] if at == plan["from"] else item["first"]
            for number, data in _inputs(entry, item, plan["seed"], begin):
                progress.begin(at, number, data)
                finding = judge.feed(number, data)
                progress.end(at, number)
                if finding is not None:
                    _write(log, {"finding": finding.to_plain(), "data": data.hex()})
                elif number % _FLUSH == 0:
                    _write_outcomes(log, judge, entry)
            _write_outcomes(log, judge, entry)
            entry.close()
            progress.end(at + 1, -1)


def _inputs(
    entry: Entry, item: dict[str, Any], seed: int, begin: int
) -> Iterator[tuple[int, bytes]]:
    if "files" in item:
        for number, path in enumerate(item["files"]):
            if number >= begin:
                yield number, Path(path).read_bytes()
        return
    for number in range(begin, item["first"] + item["count"]):
        yield number, entry.make(random.Random(f"{seed}/{entry.NAME}/{number}"))


def _write_outcomes(log: Any, judge: Judge, entry: Entry) -> None:
    counts = {"outcomes": judge.outcomes, "accepted": judge.accepted}
    _write(log, counts | {"entry": entry.NAME})
    judge.outcomes.clear()
    judge.accepted = 0


def _write(log: Any, plain: dict[str, Any]) -> None:
    log.write(json.dumps(plain) + "\n")
    log.flush()


def _limit() -> None:
    """What asks for far too much gets nothing, rather than all of the machine."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _ADDRESSES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
