"""Exit statuses, errors and what the command line costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

ERROR_KEYS = {"error", "class", "what", "stream", "partition", "offset", "remedy"}


def test_help_names_every_command_and_status(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("--help")
    assert outcome.status == 0
    for word in ("list", "describe", "validate", "check", "schema"):
        assert f"\n  {word} " in outcome.out
    assert outcome.out.endswith(
        "  Exit statuses:\n"
        "      0  success, perhaps with warnings\n"
        "      1  the operation failed\n"
        "      2  bad input, configuration or usage\n"
        "      3  a plug-in is missing or broken\n"
        "    130  interrupted\n"
        "    143  terminated\n"
    )


def test_no_command_is_a_mistake_that_gets_the_help(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory()
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: streamfactory")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["lst"],
            (
                "error: [usage] No such command 'lst'. Did you mean 'list'? "
                "(see streamfactory --help)\n"
            ),
        ),
        (
            ["check"],
            (
                "error: [usage] Missing argument 'NAME-OR-FILE'. "
                "(see streamfactory check --help)\n"
            ),
        ),
        (
            ["describe"],
            (
                "error: [usage] Give a stream TYPE, or --decoder NAME. "
                "(see streamfactory describe --help)\n"
            ),
        ),
        (
            ["describe", "--decoder", "raw", "--schema"],
            (
                "error: [usage] --schema and --all are for stream types. "
                "(see streamfactory describe --help)\n"
            ),
        ),
        (
            ["validate", "x", "--set", "secret"],
            (
                "error: [usage] "
                "Invalid value for '--set': wanted KEY=VALUE, with a key and an "
                "equals sign. (see streamfactory validate --help)\n"
            ),
        ),
        (
            ["validate", "x", "--set", "a=1", "--set", "A=2"],
            (
                "error: [usage] Invalid value for '--set': A is given twice. "
                "(see streamfactory validate --help)\n"
            ),
        ),
    ],
)
def test_mistaken_command_lines_end_with_status_2(
    streamfactory: Callable[..., Outcome], arguments: list[str], text: str
) -> None:
    outcome = streamfactory(*arguments)
    assert (outcome.status, outcome.out, outcome.err) == (2, "", text)


def test_mistaken_command_line_is_an_object_with_json(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("check", "--json")
    assert outcome.status == 2
    assert outcome.error == {
        "error": "usage",
        "class": "misuse",
        "what": "Missing argument 'NAME-OR-FILE'.",
        "stream": None,
        "partition": None,
        "offset": None,
        "remedy": "see streamfactory check --help",
    }


def test_unknown_type_ends_with_status_3_and_a_near_match(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("describe", "memroy")
    assert outcome.status == 3
    assert outcome.err == (
        "error: [unknown_plugin] "
        "unknown stream type 'memroy'; known are delta, file, flight, hudi, "
        "iceberg, kafka, memory, push, shm, socket, zeromq; did you mean 'memory'?\n"
    )
    with_json = streamfactory("describe", "memroy", "--json")
    assert (with_json.status, with_json.out) == (3, "")
    assert with_json.error.keys() == ERROR_KEYS
    assert with_json.error["error"] == "unknown_plugin"


def test_failed_operation_ends_with_status_1(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    text = "streamType=memory\nstream.memory.topic.name=nobody\n"
    (tmp_path / "nobody.properties").write_text(text)
    outcome = streamfactory("schema", "nobody.properties", "--json")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.error.keys() == ERROR_KEYS
    assert outcome.error["error"] == "topic_not_found"


def test_unknown_stream_ends_with_status_2(
    streamfactory: Callable[..., Outcome],
) -> None:
    folder = Path("configs/streams").absolute()
    outcome = streamfactory("schema", "clicks")
    assert outcome.status == 2
    assert outcome.err == (
        "error: [unknown_stream] "
        f"no stream is named 'clicks'; the folder {folder} does not "
        "exist: set STREAMFACTORY_STREAMS to another\n"
    )


def test_traceback_is_for_verbose_only(program: Callable[..., Outcome]) -> None:
    quiet = program("describe", "memroy")
    assert "Traceback" not in quiet.err
    verbose = program("--verbose", "describe", "memroy")
    assert (verbose.status, verbose.out) == (3, "")
    assert verbose.err.startswith("debug: the command failed\nTraceback")
    assert verbose.err.endswith(quiet.err)


def test_defect_of_ours_is_reported_without_a_traceback(
    streamfactory: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        msg = "boom"
        raise RuntimeError(msg)

    monkeypatch.setattr("streamfactory.cli.listing.default_manager", fail)
    outcome = streamfactory("list")
    assert outcome.status == 1
    assert outcome.err == (
        "error: [internal] "
        "RuntimeError: boom; run it again with --verbose, and report what it "
        "prints\n"
    )


def test_interrupt_ends_with_status_130(
    stranger: Callable[..., Path], tmp_path: Path
) -> None:
    marker = tmp_path / "connecting"
    hang = f"open({str(marker)!r}, 'w').close() or time.sleep(60)"
    path = stranger(partitions=hang)
    command = [sys.executable, "-m", "streamfactory", "check", str(path)]
    with subprocess.Popen(
        [*command, "--allow-class-paths"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        deadline = time.monotonic() + 30
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=300)
    assert (child.returncode, err.strip()) == (130, "error: [interrupted] interrupted")


@pytest.mark.parametrize(
    ("argument", "shown"), [("list", "memory"), ("--help", "validate")]
)
def test_list_and_help_import_neither_arrow_nor_a_client(
    argument: str, shown: str
) -> None:
    code = (
        "import sys; from streamfactory.cli.main import run; "
        f"run(['{argument}']); "
        "sys.exit(' '.join(m for m in sys.modules if m.split('.')[0] in "
        "('pyarrow', 'numpy', 'confluent_kafka', 'zmq', 'pyspark') "
        "or m.startswith(('streamfactory.backends.', 'streamfactory.decoders.'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "\n")
    assert shown in done.stdout


HEAVY = """
asyncio concurrent.futures.process confluent_kafka duckdb fastavro flask fsspec
numpy obstore pandas polars prometheus_client pyarrow pyarrow.compute pyarrow.dataset
pyarrow.flight pyarrow.fs pyarrow.parquet pydantic pyspark rich urllib.request zmq
"""
"""Modules that take long to import, and not all commands need."""


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (["list"], set()),
        (["validate", "clicks.toml"], set()),
        (["tail", "clicks.toml", "--no-follow"], {"numpy", "pyarrow"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_the_heavy_modules_that_it_needs(
    command: list[str], needed: set[str], tmp_path: Path
) -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "clicks",
    }
    with open_sink(properties) as sink:
        sink.put(pa.table({"user": ["ann"]}), writer_id="web", epoch=0)
    lines = [f'"{key}" = {json.dumps(text)}' for key, text in properties.items()]
    tmp_path.joinpath("clicks.toml").write_text("\n".join(["[properties]", *lines]))
    code = (
        "import sys; from streamfactory.cli.main import run\n"
        f"assert run({command!r}) == 0\n"
        f"print(*({set(HEAVY.split())!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.splitlines()[-1].split()) == needed


@pytest.mark.usefixtures("executed")
def test_list_costs_little_more_than_an_empty_interpreter() -> None:
    def seconds(*arguments: str) -> float:
        """Of a processor, which a busy machine does not add to."""
        command = [sys.executable, *arguments]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        return used.ru_utime + used.ru_stime

    empty = min(seconds("-c", "pass") for _ in range(3))
    listing = min(seconds("-m", "streamfactory", "list") for _ in range(3))
    # `benchmarks/start.py` measures it, and has the goal.
    assert listing - empty < 0.6
