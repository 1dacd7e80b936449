"""Results of tests as JUnit XML, which services for builds read."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from streamfactory.spi import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfactory.spark.pipelines.testing.comparing import Result
    from streamfactory.spark.pipelines.testing.suites import Tested

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, results: Sequence[tuple[Tested, Result]]) -> None:
    """Write results: a test suite for each pipeline.

    Raises:
        StorageFailed: permanent; the file cannot be written.
    """
    root = Element("testsuites", _counts([result for _, result in results]))
    for name, group in groupby(results, lambda one: one[0].pipeline.name):
        own = [result for _, result in group]
        suite = SubElement(root, "testsuite", {"name": name, **_counts(own)})
        for result in own:
            case = SubElement(
                suite,
                "testcase",
                {
                    "classname": name,
                    "name": _text(result.case.name),
                    "time": f"{result.seconds:.3f}",
                },
            )
            if not result.passed:
                lines = [_text(line) for line in result.lines()]
                failure = SubElement(case, "failure", {"message": lines[0]})
                failure.text = "\n".join(lines)
    indent(root)
    try:
        ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        remedy = "create its folder, or name another file"
        raise StorageFailed(msg, remedy=remedy) from error


def _counts(results: Sequence[Result]) -> dict[str, str]:
    failed = sum(not result.passed for result in results)
    seconds = sum(result.seconds for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(failed),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
