"""``--log-format json``: each line of standard error is one object of a log."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.ports import free_port

from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.program import _logging_to
from streamfactory.spi import CorruptData, Partition
from streamfactory.wiring.core.logs import (
    LOG_FORMAT,
    JsonFormatter,
    RateLimit,
    log_in_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proving.commands import Outcome

PLACE = Partition("clicks", 3)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("streamfactory.of-a-test")
    yield found
    found.handlers.clear()
    found.filters.clear()


class Collected(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def collected(logger: logging.Logger) -> Collected:
    handler = Collected()
    logger.addHandler(handler)
    return handler


def test_a_line_has_time_level_logger_and_message(
    logger: logging.Logger, collected: Collected
) -> None:
    logger.warning("100%% of %d rows\nare new", 7)
    (line,) = collected.lines
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "warning",
        "logger": "streamfactory.of-a-test",
        "message": "100% of 7 rows\nare new",
    }


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (("stream %r: closed", "clicks"), {"stream": "clicks"}),
        (
            ("stream %r, partition %s: lost %s to %s", "clicks", PLACE, 1, 5),
            {"stream": "clicks", "partition": "clicks-3"},
        ),
        (
            ("pipeline %r, batch %d: %d rows or groups", "p", 4, 2),
            {"pipeline": "p", "batch": 4},
        ),
        (
            ("%s", CorruptData("torn", stream="s", partition=PLACE, offset=9)),
            {
                "code": "corrupt_data",
                "stream": "s",
                "partition": "clicks-3",
                "offset": 9,
            },
        ),
        (
            ("stream %r: epoch %d: %s", "out", 4, CorruptData("torn")),
            {"code": "corrupt_data", "stream": "out", "epoch": 4},
        ),
        (("no placeholder of stream",), {}),
        (("%(stream)s", {"stream": "clicks"}), {}),
    ],
)
def test_fields_come_from_errors_and_named_placeholders(
    logger: logging.Logger,
    collected: Collected,
    arguments: tuple[Any, ...],
    fields: dict[str, Any],
) -> None:
    logger.warning(*arguments)
    (line,) = collected.lines
    known = {"time", "level", "logger", "message"}
    assert {key: line[key] for key in line.keys() - known} == fields


def test_fields_can_be_given_and_a_traceback_is_one_field(
    logger: logging.Logger, collected: Collected
) -> None:
    try:
        msg = "of s3://key:secret@store/bucket"
        raise CorruptData(msg, stream="s")
    except CorruptData:
        logger.exception("failed", extra={"offset": 12})
    (line,) = collected.lines
    assert (line["stream"], line["offset"], line["code"]) == ("s", 12, "corrupt_data")
    assert line["exception"].startswith("Traceback")
    assert "secret" not in json.dumps(line)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_warning_that_repeats_is_suppressed_and_counted(
    logger: logging.Logger, collected: Collected
) -> None:
    clock = Time()
    limit = RateLimit(3, 60.0, clock)
    collected.addFilter(limit)

    def warn(stream: str, times: int) -> None:
        for number in range(times):
            logger.warning("stream %r: attempt number %d failed", stream, number)

    warn("clicks", 10)
    warn("orders", 1)  # another stream has its own limit
    assert [line["stream"] for line in collected.lines] == ["clicks"] * 3 + ["orders"]
    clock.now = 61.0
    warn("clicks", 1)
    assert collected.lines[-1]["suppressed"] == 7
    assert "suppressed" not in collected.lines[-2]
    warn("clicks", 5)
    assert len(collected.lines) == 7
    (rest,) = limit.rest()
    assert vars(rest)["suppressed"] == 3
    assert not limit.rest()


def test_changes_are_logged_each_and_groups_have_limits_of_their_own(
    logger: logging.Logger, collected: Collected
) -> None:
    collected.addFilter(RateLimit(1))

    def warn(group: str, **extra: object) -> None:
        logger.warning("moved", extra={"group": group, **extra})

    for _ in range(3):
        warn("billing", audit=True)
    for group in ("billing", "billing", "audit"):
        warn(group)
    found = [line["group"] for line in collected.lines]
    assert found == [*["billing"] * 3, "billing", "audit"]


def test_many_places_that_warn_once_cost_little(logger: logging.Logger) -> None:
    limit = RateLimit()
    records = [
        logger.makeRecord("x", logging.WARNING, __file__, 1, "stream %r", (n,), None)
        for n in range(9_000)
    ]
    before = time.thread_time()
    assert all(map(limit.filter, records))
    assert time.thread_time() - before < 3  # quadratic: 7 s and more; else 0.2 s


def test_warnings_that_have_no_room_share_a_limit_and_are_counted(
    logger: logging.Logger, collected: Collected
) -> None:
    clock = Time()
    limit = RateLimit(1, 60.0, clock, places=3)
    collected.addFilter(limit)

    def warn(streams: range, times: int = 1) -> None:
        for stream in streams:
            for _ in range(times):
                logger.warning("stream %r: late", stream)

    warn(range(3), 2)  # three of them are suppressed
    warn(range(3, 1000))  # and all but the first of these
    assert len(collected.lines) == 4
    clock.now = 61.0
    warn(range(1000, 1002))  # what ended makes room
    assert [line["stream"] for line in collected.lines[4:]] == [1000, 1001]
    assert sum(vars(one)["suppressed"] for one in limit.rest()) == 3 + 996


class Textless:
    def __str__(self) -> str:
        msg = "no text"
        raise RuntimeError(msg)

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "argument", "shown"),
    [
        ("x %d", "s", "x %d"),
        ("stream %s", Textless(), "stream %s"),
        (Textless(), None, "a message of type Textless, which has no text"),
        pytest.param("partition %d", 10**5000, "partition %d", id="a huge number"),
    ],
)
@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_a_bad_log_call_of_a_library_is_a_line_and_fails_nothing(
    level: int,
    message: Any,
    argument: object,
    shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = JsonPrinter()
    printer.logs_json = True
    library = logging.getLogger("thirdparty")
    record = library.makeRecord("thirdparty", level, "x.py", 1, message, (), None)
    record.args = () if argument is None else (argument,)
    with _logging_to(printer, verbose=False):
        handler = logging.getLogger().handlers[-1]
        handler.handle(record)
    (line,) = [json.loads(one) for one in capsys.readouterr().err.splitlines()]
    assert (line["logger"], line["message"]) == ("thirdparty", shown)


def test_errors_and_information_are_not_suppressed(
    logger: logging.Logger, collected: Collected
) -> None:
    collected.addFilter(RateLimit(1))
    logger.setLevel(logging.DEBUG)
    for _ in range(3):
        logger.error("failed")
        logger.info("began")
    assert len(collected.lines) == 6


def test_a_worker_without_handlers_logs_as_json_where_it_is_asked_to() -> None:
    program = (
        "import logging, warnings\n"
        "from streamfactory.wiring.core.logs import log_in_worker\n"
        "log_in_worker()\n"
        "log_in_worker()\n"
        "warnings.warn('of Python')\n"
        "logging.getLogger('streamfactory').warning('stream %r: late', 'clicks')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {LOG_FORMAT: "json"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    warned, late = [json.loads(line) for line in done.stderr.splitlines()]
    assert warned["logger"] == "py.warnings"
    assert (late["message"], late["stream"]) == ("stream 'clicks': late", "clicks")


def test_a_program_with_handlers_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_FORMAT, "json")
    before = [*logging.getLogger().handlers]
    assert before  # those of pytest
    log_in_worker()
    assert logging.getLogger().handlers == before


def test_errors_are_lines_of_the_log(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    done = streamfactory("spool", tmp_path / "nowhere.toml", "--log-format", "json")
    assert done.status == 2
    (line,) = [json.loads(line) for line in done.err.splitlines()]
    assert (line["level"], line["code"]) == ("error", "unknown_stream")
    assert line["class"] == "config"
    assert line["remedy"]


def test_a_line_that_cannot_be_parsed_is_a_line_of_the_log(
    streamfactory: Callable[..., Outcome],
) -> None:
    done = streamfactory("run", "--nonsense", "--log-format=json")
    assert done.status == 2
    assert json.loads(done.err)["code"] == "usage"
    done = streamfactory("run", "p.toml", "--log-format", "yaml")
    assert done.err.startswith("error: [usage] Invalid value for '--log-format'")


def test_warnings_are_masked_lines_beside_a_document(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLANTED", "h4rd-to-guess")
    sink = {"streamType": "file", "stream.file.path": str(tmp_path / "out")}
    sink |= {"stream.file.topic.name": "out", "stream.file.storage.region": "x"}
    sink |= {"stream.file.storage.secret": "${env:PLANTED}"}
    source = {"streamType": "memory", "stream.memory.topic.name": "h4rd-to-guess"}
    for name, properties in (("in", source), ("out", sink)):
        body = {"name": name, "properties": properties}
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    done = streamfactory(
        *("copy", tmp_path / "in.json", tmp_path / "out.json"),
        *("--json", "--log-format", "json"),
    )
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert lines
    assert all(datetime.fromisoformat(line["time"]) for line in lines)
    assert all(line["logger"].startswith("streamfactory") for line in lines)
    assert "h4rd-to-guess" not in done.err + done.out


def test_statistics_of_a_service_and_its_end_are_lines_of_the_log(
    tmp_path: Path,
) -> None:
    properties = {
        "streamType": "socket",
        "stream.socket.topic.name": "numbers",
        "stream.socket.listen": f"127.0.0.1:{free_port()}",
        "schema": "id bigint",
        "spool.path": str(tmp_path / "spool"),
    }
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"name": "numbers", "properties": properties}))
    words = ["spool", str(path), "--every", "50ms", "--log-format", "json"]
    child = subprocess.Popen(
        [sys.executable, "-m", "streamfactory", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        guarantee = json.loads(child.stderr.readline())
        statistics = json.loads(child.stderr.readline())
        child.send_signal(signal.SIGTERM)
        _, rest = child.communicate(timeout=120)
    finally:
        child.kill()
    assert (guarantee["kind"], guarantee["stream"]) == ("note", "numbers")
    assert (statistics["kind"], statistics["rows"]) == ("statistics", 0)
    for line in rest.splitlines():
        assert json.loads(line)["time"]
    assert child.returncode == 0, rest
