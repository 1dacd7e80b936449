"""The format is documented: a program in C reads a topic by its description."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from native.compiling import NoCompiler
from tests.proving.ccompiler import compiler
from tests.proving.skipping import skip_or_fail

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    found = tmp_path_factory.mktemp("reader") / "reader"
    try:
        command = [compiler(), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    except NoCompiler as reason:
        skip_or_fail(str(reason))
    source = ROOT / "examples" / "shm" / "reader.c"
    subprocess.run([*command, "-o", found, source], check=True, timeout=60)
    return found


def properties(root: Path) -> Mapping[str, str]:
    return {
        "streamType": "shm",
        "stream.shm.path": str(root),
        "stream.shm.topic.name": "clicks",
        "stream.shm.partitions": "2",
        "stream.shm.capacity": "64K",
    }


def rows(first: int) -> pa.RecordBatch:
    numbers = [*range(first, first + 100)]
    texts = [None if n % 7 == 0 else f"{n:015d}" for n in numbers]
    return pa.record_batch({"_partition": [1] * 100, "id": numbers, "text": texts})


def read(program: Path, root: Path, *more: str) -> tuple[list[int], str]:
    command = [str(program), str(root / "clicks.topic"), "1", *more]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    with pa.ipc.open_stream(done.stdout) as stream:
        table = stream.read_all()
    table.validate(full=True)
    found = table["id"].to_pylist()
    assert table["text"].to_pylist() == [
        None if n % 7 == 0 else f"{n:015d}" for n in found
    ]
    return found, done.stderr.decode()


def test_a_program_in_c_reads_a_ring_that_has_wrapped(
    reader: Path, tmp_path: Path
) -> None:
    with streamfactory.open_sink(properties(tmp_path)) as sink:
        for number in range(50):
            sink.put(rows(number * 100))
    found, lost = read(reader, tmp_path)
    assert lost == ""
    assert found == [*range(found[0], 5000)]
    assert 0 < found[0] < 4900


def test_a_program_in_c_follows_a_writer_and_says_what_it_missed(
    reader: Path, tmp_path: Path
) -> None:
    with streamfactory.open_sink(properties(tmp_path)) as sink:
        sink.put(rows(0))
        done = threading.Event()

        def write() -> None:
            number = 1
            while not done.is_set():
                sink.put(rows(number * 100))
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            found, lost = read(reader, tmp_path, "2")
        finally:
            done.set()
            writer.join()
    assert found == sorted(set(found))
    assert len(found) > 100
    if not lost:
        assert found == [*range(found[0], found[-1] + 1)]
