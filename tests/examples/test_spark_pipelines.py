"""The project of `spark-pipelines`: killed, continued, and refreshed as a whole."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from tests.examples.running import EXAMPLES
from tests.house import pages
from tests.proving.drivers import DEADLINE, REPOSITORY

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = EXAMPLES / "spark_pipelines"
PAGE = REPOSITORY / "docs" / "spark-pipelines.md"
COMMAND = "spark-pipelines run --conf spark.sql.catalogImplementation=hive"


def test_page_shows_the_files_of_the_project() -> None:
    blocks = [block.text.strip() for block in pages.blocks(PAGE.read_text("utf-8"))]
    for name in ("spark-pipeline.yaml", "transformations/spent.sql"):
        assert (PROJECT / name).read_text("utf-8").strip() in blocks
    code = (PROJECT / "transformations/shop.py").read_text("utf-8")
    assert code.partition('"""\n\n')[2].strip() in blocks
    assert any(COMMAND in block for block in blocks)


@pytest.mark.long("three runs of spark-pipelines, one of which is killed")
def test_each_row_is_there_once_after_a_kill(
    own_spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "shop"
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yaml"
    storage = f"storage: file://{tmp_path}/storage"
    spec.write_text(re.sub("storage: .*", storage, spec.read_text("utf-8")))
    orders = project / "configs/streams/orders.toml"
    limit = "maxOffsetsPerTrigger = 40"
    orders.write_text(re.sub("(?m)^max.*", limit, orders.read_text("utf-8")))
    monkeypatch.chdir(project)
    with streamfactory.open_sink("orders") as sink:
        rows = [{"id": n, "customer": n % 3, "amount": float(n)} for n in range(200)]
        sink.put(rows)
    process = start()
    commits = tmp_path / "storage/_checkpoints/large/large_orders/0/commits"
    until(lambda: list(commits.glob("[0-9]*")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert finished(start()) == 0
    assert large() == [*range(101, 200)]
    assert spent() == {0: 67, 1: 67, 2: 66}
    # A full refresh is a new writer of the sink.
    assert finished(start("--full-refresh-all")) == 0
    assert large() == sorted([*range(101, 200)] * 2)
    assert spent() == {0: 67, 1: 67, 2: 66}


def start(*more: str) -> subprocess.Popen[bytes]:
    words = [*COMMAND.split(), *more]
    program = Path(sys.executable).with_name(words[0])
    paths = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    with Path("run.log").open("ab") as log:
        return subprocess.Popen(
            [program, *words[1:]],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": paths,
            },
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finished(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(DEADLINE)
    finally:
        process.kill()


def until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        log = Path("run.log").read_text()
        assert process.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.02)


def large() -> list[int]:
    with streamfactory.open("large") as stream:
        found: list[int] = stream.to_reader().read_all()["id"].to_pylist()
    return sorted(found)


def spent() -> dict[int, int]:
    table = ds.dataset("spark-warehouse/spent").to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return {row["customer"]: row["orders"] for row in rows}
