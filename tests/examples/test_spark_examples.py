"""The examples on Spark: each does what docs/examples.md shows.

In the shared session they are called; a user runs them, each with a Spark of its own.
"""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest
from tests.examples.running import (
    EXAMPLES,
    execute,
    printed,
    run,
    run_without,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streamfactory.wiring.serving.process import ServerProcess

WRITERS = "python examples/three_writers/writers.py"
SENSORS = "python examples/sensors.py"


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session, with the time zone that the examples set."""
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    assert before is not None
    spark.conf.set(key, "UTC")
    yield spark
    spark.conf.set(key, before)


@pytest.mark.long("six queries, and a notebook")
def test_three_spark_writers_and_a_notebook(
    spark: SparkSession,
    flight_server: ServerProcess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    main = runpy.run_path(str(EXAMPLES / "three_writers/writers.py"))["main"]
    for _ in range(2):
        capfd.readouterr()
        main(spark, flight_server.location)
        assert printed(capfd.readouterr().out) == shown(WRITERS)
    notebook = EXAMPLES / "three_writers/reader.ipynb"
    outputs = execute(notebook, tmp_path, FLIGHT=flight_server.location)
    counts = [(shop, 1000, 49500) for shop in ("Lyon", "Oslo", "Rome")]
    texts = [output["text"] for output in outputs if "text" in output]
    assert texts == [[f"{counts}\n"], ["0 new rows\n"]]


@pytest.mark.repeated(
    "called, and not run as a script",
    shown_by="tests/examples/test_spark_examples.py::test_sensors_run_as_a_script",
)
def test_sensors_are_averaged_in_windows(
    utc: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "sensors.py"))["main"](utc)
    assert printed(capfd.readouterr().out) == shown(SENSORS)


@pytest.mark.long("a Spark of its own")
@pytest.mark.usefixtures("own_spark")
def test_sensors_run_as_a_script(tmp_path: Path) -> None:
    assert printed(run(SENSORS, tmp_path)) == shown(SENSORS)


@pytest.mark.repeated(
    "run as a script, and not called",
    shown_by="tests/examples/test_spark_examples.py::test_three_spark_writers_and_a_notebook",
)
@pytest.mark.usefixtures("own_spark")
def test_writers_run_as_a_script(flight_server: ServerProcess, tmp_path: Path) -> None:
    said = run(WRITERS, tmp_path, flight_server.location)
    assert printed(said) == shown(WRITERS)


@pytest.mark.parametrize(
    ("command", "extras"), [(WRITERS, "spark"), (SENSORS, "zeromq,spark")]
)
def test_an_example_without_spark_says_what_to_install(
    command: str, extras: str, tmp_path: Path
) -> None:
    output = run_without("pyspark", command, tmp_path)
    assert f"pip install 'streamfactory[{extras}]'" in output


@pytest.mark.long("a Spark of its own")
@pytest.mark.usefixtures("own_spark")
def test_sensors_without_zeromq_say_what_to_install(tmp_path: Path) -> None:
    output = run_without("zmq", SENSORS, tmp_path)
    assert "pip install 'streamfactory[zeromq]'" in output
