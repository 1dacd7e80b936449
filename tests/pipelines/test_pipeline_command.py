"""``streamfactory run`` in a process of its own: its output, its signals, its end."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import SINK
from tests.pipelines.test_pipeline_letters import Messages
from tests.proving.tiers import sample

from streamfactory.spark.versions import ADMISSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.pipelines.conftest import Works

    Start = Callable[..., subprocess.Popen[str]]

HERE = "tests/pipelines/test_pipeline_command.py"
# Each test starts Spark, which a busy machine takes its time for.
DEADLINE = 400.0


@pytest.fixture
def start(works: Works, own_spark: None) -> Iterator[Start]:
    """Starts ``streamfactory run`` in a process group of its own."""
    children: list[subprocess.Popen[str]] = []

    def launch(*arguments: object, **options: Any) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "streamfactory", "run", *map(str, arguments)],
            cwd=works.folder,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
            **({"stderr": subprocess.PIPE} | options),
        )
        children.append(child)
        return child

    yield launch
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=DEADLINE)
    return child.returncode, out, err


def first_line(child: subprocess.Popen[str]) -> Any:
    """The first batch that it tells of."""
    assert child.stdout is not None
    watchdog = threading.Timer(DEADLINE, os.killpg, (child.pid, signal.SIGKILL))
    watchdog.start()
    line = child.stdout.readline()
    watchdog.cancel()
    assert line, child.stderr.read() if child.stderr else None
    return json.loads(line)


def test_each_batch_is_a_line_and_the_end_another_one(
    works: Works, start: Start
) -> None:
    works.topic("in").write(id=[*range(6)])
    out = works.topic("out")
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    path = works.pipeline(source + "maxOffsetsPerTrigger = 4\n" + SINK)
    status, text, err = ended(
        start(
            path, "--json", "--master", "local[2]", "--spark", "sql.ansi.enabled=true"
        )
    )
    assert (status, err) == (0, "")
    *batches, end = [json.loads(line) for line in text.splitlines()]
    assert [one["batch"] for one in batches] == [0, 1]
    assert sum(one["rows"] for one in batches) == 6
    if ADMISSION:
        assert batches[0]["lag"] != batches[1]["lag"]
    else:
        assert batches[0]["lag"] == batches[1]["lag"] == {}
    (one,) = end["pipelines"]
    assert (one["pipeline"], one["status"], one["complete"]) == ("p", "finished", True)
    assert (one["rows"], one["batches"], one["error"]) == (6, 2, None)
    assert sum(one["offsets"]["in"].values()) == 6
    assert out.column("id") == [*range(6)]


@pytest.mark.long("starts a Spark of its own")
def test_a_terminal_sees_one_line_that_changes(works: Works, start: Start) -> None:
    works.topic("in").write(id=[1])
    works.topic("out")
    master, slave = pty.openpty()
    child = start(works.pipeline(SINK), stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    status, text, _ = ended(child)
    assert status == 0
    lines = [line for line in seen.decode().split("\r\033[K") if line]
    assert lines[0] == "starting Spark ..."
    assert lines[1].startswith("p: batch 0  1 rows  ")
    assert f"  lag {'0+0' if ADMISSION else 'unknown'}" in lines[1]
    assert len(lines) == 2
    begin, began, guarantee, offsets = text.splitlines()
    assert begin.startswith("p: finished, 1 row in 1 batch, ")
    assert (
        began == "  began: there is no checkpoint: starts as the stream is configured"
    )
    # Topics of these tests are not synced to the disk.
    assert guarantee.startswith("  guarantee: at-most-once: accepted rows may be lost ")
    assert offsets.startswith('  offsets: {"in": ')


@pytest.mark.long("starts a Spark of its own")
@pytest.mark.parametrize(
    "number",
    sample(
        [signal.SIGTERM, signal.SIGINT],
        "one more signal",
        shown_by=f"{HERE}::test_a_signal_lets_the_batch_finish",
    ),
)
def test_a_signal_lets_the_batch_finish(
    works: Works, start: Start, number: signal.Signals
) -> None:
    rows, out, other = works.topic("in"), works.topic("out"), works.topic("other")
    rows.write(id=[1])
    text = '[[sinks]]\nstream = "out"\n[[sinks]]\nstream = "other"\n'
    path = works.pipeline(text)
    child = start(path, "--continuous", "--json")
    first_line(child)
    rows.write(id=[2])
    # As terminals and service managers do it, which tell the whole group.
    os.killpg(child.pid, number)
    status, output, err = ended(child)
    assert (status, err) == (0, "")
    end = json.loads(output.splitlines()[-1])["pipelines"][0]
    assert (end["status"], end["complete"]) == ("stopped", True)
    assert len(out.rows()) == len(other.rows()) == end["rows"]
    if number is signal.SIGTERM:
        status, _, err = ended(start(path, "--once", "--json"))
        assert (status, err) == (0, "")
        assert out.column("id") == other.column("id") == [1, 2]


@pytest.mark.long("starts a Spark of its own")
def test_what_has_an_end_and_did_not_reach_it_was_interrupted(
    works: Works, start: Start
) -> None:
    works.topic("in", partitions=1).write(id=[*range(50)])
    out = works.topic("out")
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    path = works.pipeline(source + "maxOffsetsPerTrigger = 1\n" + SINK)
    child = start(path)
    deadline = time.monotonic() + DEADLINE
    while not staged(works, "out") and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    status, text, err = ended(child)
    assert (status, err) == (130, "")
    assert text.splitlines()[0].startswith("p: stopped, ")
    assert text.splitlines()[-1] == (
        "  stopped before the end: the same command continues from there"
    )
    found = out.column("id")
    assert found == [*range(len(found))]
    assert 0 < len(found) < 50


@pytest.mark.long("starts a Spark of its own")
def test_a_second_signal_stops_at_once(works: Works, start: Start) -> None:
    works.topic("in", partitions=1).write(id=[1])
    works.topic("out")
    path = works.pipeline(
        SINK,
        hook_command=f"{sys.executable} -c 'import time; time.sleep(600)'",
        hook_timeout_millis="700s",
    )
    child = start(path, "--continuous", "--json")
    first_line(child)
    child.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    for pause in (1, 60, 60):  # a second one that comes too early is none
        with suppress(subprocess.TimeoutExpired):
            child.wait(pause)
            break
        child.send_signal(signal.SIGTERM)
    status, _, err = ended(child)
    assert status == 143
    assert json.loads(err)["error"] == "interrupted"
    assert time.monotonic() - begun < 300


@pytest.mark.long("starts a Spark of its own")
def test_bad_input_starts_nothing(works: Works, start: Start) -> None:
    works.topic("in").write(id=[1])
    works.topic("out")
    one = works.pipeline(
        '[[steps]]\nid = "a"\nsql = "select idd from input"\n' + SINK, "one"
    )
    two = works.pipeline('[[sinks]]\nstream = "nowhere"\n', "two")
    status, text, err = ended(start(one, two))
    assert (status, text) == (2, "")
    lines = err.splitlines()
    assert lines[0] == f"error: [config] 2 problems in {one} and {two}"
    assert lines[1].startswith("  stream: no stream is named 'nowhere'; ")
    assert lines[2].startswith("  sql: step 'a': ")
    assert len(lines) == 3
    assert not (works.folder / "checkpoints").exists()


@pytest.mark.long("starts a Spark of its own")
def test_one_that_fails_makes_the_exit_status(works: Works, start: Start) -> None:
    works.topic("in").write(id=[1, 0])
    works.topic("out")
    other = works.topic("other")
    bad = works.pipeline(
        '[[steps]]\nid = "a"\nsql = "select 1 div id as id from input"\n' + SINK, "bad"
    )
    good = works.pipeline('[[sinks]]\nstream = "other"\n', "good")
    status, text, err = ended(start(bad, good))
    assert status == 1
    assert "bad: failed, 0 rows in 0 batches, " in text
    assert "  error: [DIVIDE_BY_ZERO] " in text
    assert "good: finished, 2 rows in 1 batch, " in text
    (line,) = err.splitlines()
    assert line.startswith("note: Spark's log is ")
    log = line.removeprefix("note: Spark's log is ")
    shutil.rmtree(Path(log).parent)
    assert other.column("id") == [0, 1]


def test_without_java_the_way_to_one_is_reported(
    works: Works, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works.topic("in").write(id=[1])
    works.topic("out")
    if Path(sys.prefix, "java").is_dir():
        pytest.skip("the virtual environment has a Java of its own")
    bins = tmp_path / "bin"
    bins.mkdir()
    for name in ("bash", "dirname", "env", "cat", "ls", "sh", "uname"):
        found = shutil.which(name)
        if found:
            (bins / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(bins))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    status, text, err = ended(start(works.pipeline(SINK)))
    assert (status, text) == (1, "")
    assert err == (
        "error: [spark_not_started] Spark could not start: it needs Java 17 or newer, "
        "and found none; "
        "install one (on Debian: apt install openjdk-17-jre-headless), or set "
        "JAVA_HOME to where it is\n"
    )


def staged(works: Works, topic: str) -> list[Path]:
    return [*(works.folder / "topics" / f"{topic}.topic").rglob("data/*")]


@pytest.mark.long("starts a Spark of its own")
def test_killed_java_is_reported_in_words(works: Works, start: Start) -> None:
    works.topic("in").write(id=[1, 2])
    works.topic("out")
    child = start(
        works.pipeline(SINK), "--continuous", "--json", "--master", "local[1]"
    )
    assert first_line(child)["rows"] == 2
    java = java_of(child)
    os.kill(java, signal.SIGKILL)
    status, _, err = ended(child)
    assert status == 1
    lines = err.splitlines()
    assert len(lines) == 1, err
    line = lines[0]
    error = json.loads(line)
    assert error["error"] == "spark_ended"
    assert error["what"] == "the Java process of Spark was ended by signal 9"
    log = Path(error["remedy"].rpartition("Spark's log is ")[2])
    assert log.is_file()
    shutil.rmtree(log.parent)


@pytest.mark.long("starts a Spark of its own")
def test_killed_helper_of_the_driver_is_reported_in_a_few_words(
    works: Works, start: Start
) -> None:
    works.topic("in").write(id=[1, 2])
    works.topic("out")
    child = start(
        works.pipeline(SINK), "--continuous", "--json", "--master", "local[1]"
    )
    assert first_line(child)["rows"] == 2
    java = java_of(child)
    for helper in descendants(java):
        if name_of(helper).startswith("python"):
            os.kill(helper, signal.SIGKILL)
    status, text, _ = ended(child)
    assert status == 1
    [one] = json.loads(text.splitlines()[-1])["pipelines"]
    assert one["status"] == "failed"
    assert len(one["error"]) < 1500
    assert "\n" not in one["error"]
    assert ".java:" not in one["error"]


def java_of(child: subprocess.Popen[str]) -> int:
    # The uppermost: what Java starts is called `java` too, for a moment.
    return next(one for one in descendants(child.pid) if name_of(one) == "java")


def descendants(parent: int) -> list[int]:
    """Processes below one, in any depth."""
    found = []
    for tasks in Path("/proc", str(parent), "task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *descendants(child)]
    return found


def name_of(process: int) -> str:
    return Path("/proc", str(process), "comm").read_text().strip()


@pytest.mark.long("starts a Spark of its own")
def test_a_log_as_json_has_driver_java_and_python_workers(
    works: Works, start: Start, tmp_path: Path
) -> None:
    # A field whose name differs in its case: readers warn of it.
    Messages(works).write(b'{"id": 1}', b'{"ID": 2}')
    works.topic("out")
    path = works.pipeline(SINK)
    log = tmp_path / "spark.log"
    words = ("--log-format", "json", "--spark-log", log, "--master", "local[2]")
    status, text, err = ended(start(path, *words))
    assert status == 0, text + err
    driver = [json.loads(line) for line in err.splitlines()]
    batch = next(line for line in driver if line.get("kind") == "batch")
    assert (batch["pipeline"], batch["batch"], batch["rows"]) == ("p", 0, 2)
    assert all(line["time"] and line["logger"] for line in driver)
    lines = [
        json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"
    ]
    java = [line for line in lines if "ts" in line]
    assert {"level", "msg", "logger"} <= set(java[0])
    worker = next(line for line in lines if "in the case" in line.get("message", ""))
    assert (worker["level"], worker["logger"]) == ("warning", "streamfactory")
