"""``test``: tests of pipelines, with rows in and rows out."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.junit import write_junit
from streamfactory.cli.parameters import class_paths_flag, json_flag
from streamfactory.cli.results import count
from streamfactory.cli.status import Status, UsageMistake
from streamfactory.spark.pipelines.detection import pipeline_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.pipelines.testing.comparing import Result
    from streamfactory.spark.pipelines.testing.suites import Suites, Tested

    Results = list[tuple[Tested, Result]]


@click.command("test")
@click.argument("pipelines", metavar="[NAME-or-FILE]...", nargs=-1)
@click.option(
    "--update",
    "updates",
    is_flag=True,
    help="Write the rows that came out in place of expected rows that differ.",
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the results to FILE, as JUnit XML.",
)
@class_paths_flag
@json_flag
@click.pass_obj
def test_command(
    printer: Printer,
    *,
    pipelines: Sequence[str],
    updates: bool,
    junit: Path | None,
    allow_class_paths: bool,
) -> Status:
    """Test pipelines with given rows, and compare the rows that come out.

    The tests of PIPELINE.toml are in PIPELINE.test.toml beside it. By default, those
    of all pipelines in the folder pipelines beside the catalogue. No stream is
    contacted. Spark runs on this machine, if a pipeline needs it. The exit status is 1
    if a test fails.
    """
    # Imported here: other commands need no Arrow.
    from streamfactory.spark.pipelines.testing.suites import Suites

    began = time.monotonic()
    suites = Suites(_files(pipelines), allow_class_paths=allow_class_paths)
    results: Results = []
    with ExitStack() as stack:
        spark = _spark(printer, suites, stack) if suites.need_spark else None
        for tested, result in suites.run(spark):
            results.append((tested, result))
            printer.progress(f"{tested.pipeline.name}: {result.case.name}")
    printer.progress("")
    if junit is not None:
        write_junit(junit, results)
    written = _update(results) if updates else []
    seconds = round(time.monotonic() - began, 3)
    passed = sum(result.passed for _, result in results)
    document = {
        "passed": passed,
        "failed": len(results) - passed,
        "seconds": seconds,
        "tests": [_document(tested, result) for tested, result in results],
        "updated": [str(path) for path in written],
    }
    printer.show(document, _lines(results, document))
    failed = [one for _, one in results if not one.passed]
    if updates:  # what was written passes now
        failed = [one for one in failed if one.failure is not None]
    return Status.FAILED if failed else Status.FINE


def _spark(printer: Printer, suites: Suites, stack: ExitStack) -> SparkSession:
    """A Spark on this machine, until the stack is closed."""
    # Imported here: it loads Spark.
    from streamfactory.spark.pipelines.session import check_installed, spark_session

    check_installed()
    printer.progress("starting Spark ...")
    folder = stack.enter_context(TemporaryDirectory(prefix="streamfactory-"))
    log, settings = Path(folder, "spark.log"), suites.settings
    started = spark_session("local[2]", settings, log=log, brief=True)
    return stack.enter_context(started)


def _files(targets: Sequence[str]) -> list[Path]:
    """The pipelines with tests.

    Raises:
        UsageMistake: misuse; one that is named has none, or none has.
    """
    from streamfactory.spark.pipelines.testing.cases import tests_of
    from streamfactory.spark.targets import pipeline_files

    named = [Path(pipeline_path(target)) for target in targets]
    for path in named:
        if path.exists() and not tests_of(path).exists():
            msg = f"{path} has no tests: there is no {tests_of(path)}"
            raise UsageMistake(msg, remedy="write it, with [[tests]]")
    found = named or [path for path in pipeline_files() if tests_of(path).exists()]
    if not found:
        msg = "there is no pipeline with tests in the folder beside the catalogue's"
        raise UsageMistake(msg, remedy="name a pipeline, or write NAME.test.toml")
    return found


def _update(results: Results) -> list[Path]:
    from streamfactory.spark.pipelines.testing.updating import update

    by_file: dict[Path, list[Result]] = {}
    for tested, result in results:
        by_file.setdefault(tested.suite.path, []).append(result)
    return [file for path, found in by_file.items() for file in update(path, found)]


def _document(tested: Tested, result: Result) -> dict[str, Any]:
    differences = [
        {
            "expect": one.expected.name,
            "batch": None if one.expected.whole else batch,
            "changed": [
                {"expected": wanted, "actual": found}
                for wanted, found in unlike.changed
            ],
            "missing": unlike.missing,
            "unexpected": unlike.unexpected,
        }
        for one in result.compared
        for batch, unlike in one.differences.items()
    ]
    return {
        "pipeline": tested.pipeline.name,
        "name": result.case.name,
        "origin": result.case.origin,
        "passed": result.passed,
        "seconds": round(result.seconds, 3),
        "failure": result.failure,
        "differences": differences,
    }


def _lines(results: Results, document: dict[str, Any]) -> Iterator[str]:
    before = None
    for tested, result in results:
        if tested.pipeline.name != before:
            before = tested.pipeline.name
            yield f"{before} ({tested.suite.path}):"
        word = "passed" if result.passed else "failed"
        yield f"  {word}  {result.case.name}"
        yield from (f"    {line}" for line in result.lines())
    for path in document["updated"]:
        yield f"updated {path}"
    numbers = Counter(passed=document["passed"], failed=document["failed"])
    words = ", ".join(f"{number} {word}" for word, number in numbers.items() if number)
    yield f"{count(len(results), 'test')}: {words}"
