"""What a run found, as text, JSON, JUnit XML and a Markdown table.

Passed, narrowed, failed, skipped and waived are different words: a skipped case is one
that the backend does not claim; a waived case is a failure that its author accepts.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from streamfactory.conformance.runner import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.conformance.runner import Result

# XML has no way to write these, not even escaped.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_LISTED: Final = (("narrowed", Outcome.NARROWED), ("not_proved", Outcome.SKIPPED))
"""What a report ends with, each with the reasons."""
_STEPS: Final = 16
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class Report:
    """One run over one backend."""

    type: str
    results: tuple[Result, ...]
    seconds: float
    seed: int
    command: str
    """Runs the kit on this backend again; a report adds ``--only CASE``."""
    claims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a backend claims, by role: see `Subject.claims`."""

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return any(result.outcome is Outcome.FAILED for result in self.results)

    def of(self, outcome: Outcome) -> list[Result]:
        """The results with an outcome."""
        return [result for result in self.results if result.outcome is outcome]

    def again(self, result: Result) -> str:
        """The command that runs just this case."""
        return f"{self.command} --only {result.case.name}"

    def reasons(self, outcome: Outcome) -> dict[str, list[str]]:
        """Cases with an outcome by their reason, in the order of the report."""
        found: dict[str, list[str]] = {}
        for result in self.of(outcome):
            found.setdefault(result.reason, []).append(result.case.name)
        return found

    def summary(self) -> str:
        """``memory: 36 passed, 2 skipped in 1.9 s (seed 0)``."""
        counts = {outcome: len(self.of(outcome)) for outcome in Outcome}
        shown = [f"{n} {outcome.value}" for outcome, n in counts.items() if n]
        took = f"in {self.seconds:.1f} s (seed {self.seed})"
        return f"{self.type}: {', '.join(shown) or 'no case was run'} {took}"


# --- text -----------------------------------------------------------------------


def text_lines(report: Report) -> Iterator[str]:
    """The report for people.

    Every case, then failures, waivers, what was not proved and why, and the sum.
    """
    width = max((len(result.case.name) for result in report.results), default=0)
    for result in report.results:
        case, note = result.case, f"{result.seconds:6.2f} s"
        if result.outcome in (Outcome.SKIPPED, Outcome.NARROWED):
            note = result.reason
        head = f"{result.outcome.value:<7}  {case.rule:<3}"
        yield f"{head}  {case.name.ljust(width)}  {note}"
    for result in report.of(Outcome.FAILED):
        yield ""
        yield from explain(result, report.again(result))
    for result in report.of(Outcome.WAIVED):
        yield ""
        yield f"waived: {result.case.name} (rule {result.case.rule})"
        yield from _part("waiver", [result.waiver])
        yield from _part("happened", result.reason.splitlines())
    for key, outcome in _LISTED:
        if reasons := report.reasons(outcome):
            yield ""
            yield f"{key.replace('_', ' ')}:"
            for reason, names in reasons.items():
                yield f"  {count(len(names), 'case')}: {reason}"
    yield ""
    yield report.summary()


def count(number: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def explain(result: Result, again: str) -> Iterator[str]:
    """All that is known of one failure.

    Args:
        result: That failed.
        again: The command that runs just this case.
    """
    yield f"failed: {result.case.name} (rule {result.case.rule})"
    yield from _part("expected", [result.case.doc])
    yield from _part("happened", result.reason.splitlines())
    yield from _part("script", _shown(result.script))
    # A stale waiver has neither, and no cause that a hint could name.
    caused = bool(result.script or result.trace) and not result.by_harness
    yield from _part(
        "usually", [result.case.hint] if result.case.hint and caused else []
    )
    yield from _part("waiver", [result.waiver] if result.waiver else [])
    yield from _part("run again", [again])


def shortened(script: Sequence[str]) -> list[str]:
    """A script with each repeated step written once."""
    grouped = ((step, len(list(same))) for step, same in itertools.groupby(script))
    return [step if n == 1 else f"{step}  # {n} times" for step, n in grouped]


def _shown(script: Sequence[str]) -> list[str]:
    """The first and last lines of a script, to fit a screen."""
    lines = shortened(script)
    if len(lines) > _STEPS:
        left_out = f"... {len(lines) - _STEPS} steps, which --report json has"
        lines = [*lines[: _STEPS // 2], left_out, *lines[-_STEPS // 2 :]]
    return [line if len(line) <= _WIDTH else f"{line[:_WIDTH]} ..." for line in lines]


def _part(head: str, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"  {'' if number else head:<11}{line}".rstrip()


# --- for programs ---------------------------------------------------------------


def to_plain(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "type": report.type,
        "ok": not report.failed,
        "seconds": round(report.seconds, 2),
        "seed": report.seed,
        "claims": report.claims,
        "counts": {o.value: len(report.of(o)) for o in Outcome},
        **{
            key: [
                {"reason": reason, "cases": names}
                for reason, names in report.reasons(outcome).items()
            ]
            for key, outcome in _LISTED
        },
        "cases": [_plain(report, result) for result in report.results],
    }


def _plain(report: Report, result: Result) -> dict[str, Any]:
    shown = result.outcome in (Outcome.FAILED, Outcome.WAIVED)
    return {
        "case": result.case.name,
        "rule": result.case.rule,
        "expected": result.case.doc,
        "outcome": result.outcome.value,
        "reason": result.reason or None,
        "seconds": round(result.seconds, 3),
        "script": shortened(result.script) if shown else [],
        "usually": (result.case.hint or None) if shown else None,
        "by_harness": result.by_harness,
        "waiver": result.waiver or None,
        "again": report.again(result) if shown else None,
    }


def to_json(report: Report) -> str:
    """The report as one JSON document."""
    return json.dumps(to_plain(report), indent=2, ensure_ascii=False) + "\n"


def to_junit(report: Report) -> str:
    """The report as JUnit's XML, for servers that show tests."""
    suite = ET.Element(
        "testsuite",
        name=f"streamfactory.conformance.{report.type}",
        tests=str(len(report.results)),
        failures=str(sum(not r.by_harness for r in report.of(Outcome.FAILED))),
        errors=str(sum(r.by_harness for r in report.of(Outcome.FAILED))),
        skipped=str(len(report.of(Outcome.SKIPPED) + report.of(Outcome.WAIVED))),
        time=f"{report.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="seed", value=str(report.seed))
    for result in report.results:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"{report.type}.{result.case.rule}",
            name=result.case.name,
            time=f"{result.seconds:.3f}",
        )
        if result.outcome is Outcome.FAILED:
            message = _xml(result.reason.split("\n", 1)[0])
            kind = "error" if result.by_harness else "failure"
            failure = ET.SubElement(case, kind, message=message)
            lines = [*explain(result, report.again(result)), "", result.trace]
            failure.text = _xml("\n".join(lines).rstrip() + "\n")
        elif result.outcome is Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=_xml(result.reason))
        elif result.outcome is Outcome.WAIVED:
            # JUnit has no third word.
            ET.SubElement(case, "skipped", message=_xml(f"waived {result.waiver}"))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    text = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _xml(text: str) -> str:
    return _NOT_XML.sub(lambda match: ascii(match[0])[1:-1], text)


# --- the support table ----------------------------------------------------------


def to_markdown(report: Report) -> str:
    """The support table of one backend."""
    return support_table([to_plain(report)]) + "\n"


def support_table(
    reports: Sequence[Mapping[str, Any]],
    cases: Sequence[tuple[str, str]] | None = None,
) -> str:
    """One row a case, one column a backend.

    Args:
        reports: As plain values, see `to_plain`.
        cases: Names and rules; those of the reports, where not given.
    """
    known = dict(cases) if cases is not None else {}
    if cases is None:
        for report in reports:
            known.update({case["case"]: case["rule"] for case in report["cases"]})
    found = [{case["case"]: case for case in report["cases"]} for report in reports]
    names = [report["type"] for report in reports]
    lines = [_row(["rule", "case", *names]), _row(["---"] * (2 + len(names)))]
    for name, rule in known.items():
        words = [_cell(column.get(name)) for column in found]
        lines.append(_row([rule, f"`{name}`", *words]))
    return "\n".join(lines)


def _cell(case: Mapping[str, Any] | None) -> str:
    if case is None:
        return "not run"
    if case["outcome"] == Outcome.SKIPPED.value:
        return f"skipped: {case['reason']}"
    if case["outcome"] == Outcome.WAIVED.value:
        return f"waived {case['waiver']}"
    if case["outcome"] == Outcome.FAILED.value:
        return "**failed**"
    return str(case["outcome"])


def _row(cells: Sequence[str]) -> str:
    # A bar or a line break would end the cell.
    clean = [" ".join(cell.split()).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(clean)} |"


FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    "text": lambda report: "\n".join(text_lines(report)) + "\n",
    "json": to_json,
    "junit": to_junit,
    "markdown": to_markdown,
}
