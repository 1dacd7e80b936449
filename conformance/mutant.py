"""A process that proves one mutant of a backend, or the backend as it is.

`serve` reads what to do from standard input and writes what it found to standard
output, both as JSON. `mutating` starts it, with the mutant in front of its path.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamfactory.conformance.children import Nursery
from streamfactory.conformance.runner import Outcome, all_cases, run_case
from streamfactory.conformance.subject import find_subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from streamfactory.conformance.case import Case

LOADING = ""
"""The name under which lines are counted that run before the first case."""


class Coverage:
    """Which cases reach which lines of the files below a folder.

    Threads that cases left behind count meanwhile: what is iterated is a copy.
    """

    def __init__(self, root: str) -> None:
        self.case = LOADING
        self.root = root
        self.with_children: set[str] = set()
        """Cases that start processes, whose lines are not counted."""
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )

    def start(self) -> None:
        """Count in this thread and in those that it starts."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is Nursery.run.__code__:
            self.with_children.add(self.case)
        if not frame.f_code.co_filename.startswith(self.root):
            return None
        return self._stepped(frame, event, _)

    def _stepped(self, frame: FrameType, event: str, _: Any) -> Any:
        if event in ("line", "call"):
            self.lines[frame.f_code.co_filename][frame.f_lineno].add(self.case)
        return self._stepped

    def forget(self, case: str) -> None:
        """Count nothing of a case that was skipped: it examines no mutant."""
        self.with_children.discard(case)
        for lines in list(self.lines.values()):
            for cases in list(lines.values()):
                cases.discard(case)

    def plain(self) -> dict[str, dict[int, list[str]]]:
        """As plain values, with paths below the folder."""
        return {
            os.path.relpath(file, self.root): {
                n: sorted(c) for n, c in list(lines.items())
            }
            for file, lines in list(self.lines.items())
        }


def serve() -> None:
    """Run the cases that are asked for, until one fails."""
    asked = json.load(sys.stdin)
    # What an author's code prints is not in the answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    coverage = Coverage(asked["root"]) if asked["count"] else None
    if coverage is not None:
        coverage.start()
    try:
        answer = _proved(asked, coverage)
    except Exception as error:  # noqa: BLE001 - of the kit itself, named like a case
        answer = {"failed": ["the kit", f"{type(error).__name__}: {error}"]}
    with answers:
        answers.write(json.dumps(answer))


def _proved(asked: dict[str, Any], coverage: Coverage | None) -> dict[str, Any]:
    sys.path.extend(asked["path"])
    try:
        found = find_subject(asked["type"], asked["harness"])
    except Exception as error:  # noqa: BLE001 - a mutant may raise anything at import
        return {"failed": ["loading it", f"{type(error).__name__}: {error}"]}
    subject = replace(found, overrides=asked["overrides"])
    seconds: dict[str, float] = {}
    narrowed: list[str] = []
    failed = None
    for case, limit in _cases(asked):
        if coverage is not None:
            coverage.case = case.name
        begun = time.monotonic()
        result = run_case(case, subject, seed=asked["seed"], time_limit=limit)
        seconds[case.name] = time.monotonic() - begun
        if result.outcome is Outcome.SKIPPED and coverage is not None:
            del seconds[case.name]
            coverage.forget(case.name)
        elif result.outcome in (Outcome.FAILED, Outcome.SKIPPED):
            claimed = result.outcome is Outcome.FAILED
            why = result.reason if claimed else f"skipped: {result.reason}"
            failed = [case.name, why]
            break
        elif result.outcome is Outcome.NARROWED:
            narrowed.append(case.name)
            if coverage is None and case.name not in asked["narrowed"]:
                failed = [case.name, f"narrowed: {result.reason}"]
                break
    answer: dict[str, Any] = {"failed": failed, "seconds": seconds}
    if coverage is not None:
        answer["narrowed"] = narrowed
        answer["reached"] = coverage.plain()
        answer["with_children"] = sorted(coverage.with_children)
    return answer


def _cases(asked: dict[str, Any]) -> Iterator[tuple[Case[Any], float]]:
    known = {case.name: case for case in all_cases()}
    for name, limit in asked["cases"].items():
        yield known[name], limit


if __name__ == "__main__":
    serve()
