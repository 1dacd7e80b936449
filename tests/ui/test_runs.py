"""Pipelines that the pages start, stop and restart: shown first, done once, logged."""

from __future__ import annotations

import html
import re
import signal
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.ui.conftest import PLACE, TOKEN, Browser, Client
from tests.ui.test_administration import Person, person
from tests.ui.test_command import start as start_command

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.holding import hold, note
from streamfactory.spark.checkpoints.holding import running as in_use
from streamfactory.spi import MisuseError
from streamfactory.ui import runs as module
from streamfactory.ui.runs import Run, Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.ui.conftest import World

__all__ = ["person"]

_CHILD = """
import pathlib, signal, sys
*_, pace, _, path = sys.argv
print("runs", path, pace, flush=True)
text = pathlib.Path(path).read_text()
if "# fails" in text:
    sys.exit("error: it <b>failed</b>")
if "# slow" in text:
    signal.pause()
sys.stdin.read()
print("has finished its batch")
"""
"""Ends with its input, as a run of a pipeline does after its batch."""
COMMAND = (sys.executable, "-c", _CHILD)


@pytest.fixture
def runs() -> Iterator[Runs]:
    with closing(Runs(COMMAND)) as found:
        yield found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "p.toml"
    found.write_text("")
    return found


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def state(run: Run | None, *wanted: str) -> None:
    assert run is not None
    wait_until(lambda: run.state in wanted, f"{wanted}, not {run.state}")


def test_a_run_is_started_and_finishes_its_batch(runs: Runs, path: Path) -> None:
    run = runs.start("p", path, "continuous")
    wait_until(lambda: run.text, "its first line")
    assert run.text == f"runs {path} --continuous"
    with pytest.raises(MisuseError, match="has not ended"):
        runs.start("other", path.parent / "." / "p.toml")
    runs.stop(run)
    state(run, "stopped")
    wait_until(lambda: "has finished its batch" in run.text, "its last line")
    assert run.process.returncode == 0
    assert runs.start("p", path) is not run


def test_a_second_stop_ends_a_run_at_once(runs: Runs, path: Path) -> None:
    path.write_text("# slow")
    run = runs.start("p", path)
    wait_until(lambda: run.text, "its first line")
    runs.stop(run)
    time.sleep(0.2)
    assert run.state == "stopping"
    runs.stop(run)
    state(run, "stopped")
    assert run.process.returncode == -signal.SIGTERM


def test_the_end_of_the_server_waits_for_no_long_batch(runs: Runs, path: Path) -> None:
    path.write_text("# slow")
    run = runs.start("p", path)
    wait_until(lambda: run.text, "its first line")
    began = time.monotonic()
    runs.close()
    assert time.monotonic() - began < 5
    assert run.state == "stopping"
    run.process.kill()


@pytest.mark.usefixtures("file")
def test_a_run_whose_files_changed_is_shown(small: World, client: Client) -> None:
    place = Place.of(str(small.folder / "kept"))
    how = "/pipeline?name=delays"
    with hold(place):
        assert "files changed" not in client.text("/") + client.text(how)
        note(place, ["stream <b>: schema (new)"])
        wait_until(lambda: "files changed" in client.text("/"), "the overview")
        wait_until(lambda: "stream &lt;b&gt;: schema (new)" in client.text(how), "it")
        assert "Restart it" in client.text(how)
    wait_until(lambda: "restart it" not in client.text(how), "the end of the run")


def test_a_restart_follows_the_end_and_a_stop_prevents_it(
    runs: Runs, path: Path
) -> None:
    first = runs.start("p", path, "once")
    runs.restart(first)
    wait_until(lambda: runs.last(path) is not first, "another run")
    second = runs.last(path)
    assert second is not None
    assert (first.state, second.state, second.pace) == ("stopped", "running", "once")
    wait_until(lambda: second.text, "its first line")
    path.write_text("# slow")
    runs.restart(second)
    wait_until(lambda: runs.last(path) is not second, "another run")
    third = runs.last(path)
    assert third is not None
    wait_until(lambda: third.text, "its first line")
    runs.restart(third)
    assert third.state == "restarting"
    runs.stop(third)
    state(third, "stopped")
    runs.close()
    assert runs.last(path) is third


def test_the_end_of_the_server_ends_runs_and_output_is_bounded(
    runs: Runs, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = (sys.executable, "-c", "for n in range(9999): print(n, 'x' * 9999)")
    with closing(Runs(many)) as others:
        run = others.start("p", path)
        state(run, "ended")
        wait_until(lambda: run.text.count("\n") == module.MOST_LINES - 1, "its lines")
        assert len(run.text) < module.MOST_LINES * 2001
    monkeypatch.setattr(module, "MOST_RUNNING", 1)
    run = runs.start("p", path)
    with pytest.raises(MisuseError, match="1 are running"):
        runs.start("other", path.parent / "other.toml")
    runs.close()
    assert run.state == "stopped"
    with pytest.raises(MisuseError, match="are ending"):
        runs.start("p", path)


# --- pages ----------------------------------------------------------------------

_PIPELINE = """
name = "delays"
checkpoint = "kept"
[source]
stream = "clicks"
[[sinks]]
stream = "hours"
"""


@pytest.fixture
def file(small: World, client: Client, runs: Runs) -> Path:
    """The file of a pipeline, whose runs are children that need no Spark."""
    object.__setattr__(client.site, "runs", runs)
    sink = (small.catalogue / "clicks.json").read_text()
    (small.catalogue / "hours.json").write_text(sink.replace("clicks", "hours"))
    folder = small.folder / "configs" / "pipelines"
    folder.mkdir()
    (folder / "delays.toml").write_text(
        _PIPELINE.replace("kept", str(small.folder / "kept"))
    )
    return folder / "delays.toml"


def post(person: Person, **form: str) -> tuple[int, str]:
    answer = person.client.client.post(
        "/actions/run", data={"csrf": person.session.csrf, **form}, base_url=PLACE
    )
    return answer.status_code, html.unescape(answer.get_data(as_text=True))


def plan(person: Person, kind: str, pace: str = "") -> str:
    """The key of a change that is shown."""
    status, shown = post(person, kind=kind, pipeline="delays", pace=pace)
    assert status == 200, shown
    found = re.search('name="change" value="([^"]+)"', shown)
    assert found is not None
    return found[1]


def test_a_first_run_says_which_rows_it_does_not_read(
    file: Path, person: Person
) -> None:
    def shown() -> str:
        status, text = post(person, kind="start", pipeline="delays", pace="once")
        assert status == 200, text
        return text

    late = "Begins: clicks without startingOffsets, so at its latest offset"
    assert late in shown()
    text = file.read_text()
    start = 'stream = "clicks"\nstartingOffsets = "earliest"'
    file.write_text(text.replace('stream = "clicks"', start))
    assert "Begins: " not in shown()


def test_pages_start_restart_and_stop_a_pipeline(
    file: Path, person: Person, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    assert "Start" in person.client.text("/pipeline", name="delays")
    key = plan(person, "start", "continuous")
    assert runs.last(file) is None
    assert post(person, change=key)[0] == 303
    first = runs.last(file)
    assert first is not None
    assert post(person, change=key)[0] == 400  # the form was sent twice
    wait_until(lambda: first.text, "its first line")
    page = person.client.text("/pipeline", name="delays")
    assert f"runs {file} --continuous" in page
    assert ">running<" in re.sub(r"\s", "", page)
    assert "running" in person.client.text("/")
    assert post(person, change=plan(person, "restart"))[0] == 303
    wait_until(lambda: runs.last(file) is not first, "another run")
    assert post(person, change=plan(person, "stop"))[0] == 303
    state(runs.last(file), "stopped")
    ended = "pipeline delays: its run has ended, stopped"
    wait_until(lambda: caplog.messages.count(ended) == 2, "the log of the ends")
    said = [text for text in caplog.messages if " by 127.0.0.1" in text]
    assert said == [
        f"pipeline delays: {verb} {what} by 127.0.0.1"
        for what in ("started", "restarted", "stopped")
        for verb in ("is being", "was")
    ]


def test_a_run_that_fails_is_the_first_of_the_overview(
    file: Path, person: Person, runs: Runs
) -> None:
    (file.parent / "aaa.toml").write_text(file.read_text().replace("delays", "aaa"))
    file.write_text(f"{file.read_text()}\n# fails\n")
    assert post(person, change=plan(person, "start"))[0] == 303
    state(runs.last(file), "failed")
    page = person.client.text("/pipeline", name="delays")
    assert "error: it &lt;b&gt;failed&lt;/b&gt;" in page
    overview = person.client.text("/")
    assert overview.index("name=delays") < overview.index("name=aaa")
    assert '<span class="bad">failed</span>' in overview
    overview = person.client.text("/", sort="name")
    assert overview.index("name=aaa") < overview.index("name=delays")


def test_what_cannot_be_done_is_refused_before_it_is_shown(
    file: Path,
    person: Person,
    runs: Runs,
    small: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEPT", "kept")  # so pages mask the name of the checkpoint
    small.topic.file(small.catalogue, **{"group.id": "${env:KEPT}"})
    for kind, pace, text in (
        ("stop", "", "not run by this server"),
        ("restart", "", "not run by this server"),
        ("pause", "", "cannot be done"),
        ("start", "--master", "cannot be done"),
    ):
        status, shown = post(person, kind=kind, pipeline="delays", pace=pace)
        assert (status, text in shown) == (400, True), shown
    assert post(person, kind="start", pipeline="../delays")[0] == 404
    with hold(Place.of(str(small.folder / "kept"))):
        status, shown = post(person, kind="start", pipeline="delays")
    assert (status, "it is in use by process" in shown) == (400, True)
    key = plan(person, "start")
    assert post(person, change=plan(person, "start"))[0] == 303
    status, shown = post(person, change=key)
    assert (status, "has changed since it was shown" in shown) == (409, True)
    assert post(person, kind="start", pipeline="delays")[0] == 400
    runs.close()
    file.write_text(file.read_text().replace("clicks", "nothing"))
    status, shown = post(person, kind="start", pipeline="delays")
    assert (status, "has errors" in shown) == (400, True)


def test_nothing_is_started_without_the_token_or_the_secret(
    file: Path, client: Client, runs: Runs
) -> None:
    form = {"kind": "start", "pipeline": "delays"}
    answer = client.client.post("/actions/run", data=form, base_url=PLACE)
    assert answer.status_code == 401
    assert "Start" not in client.text("/pipeline", name="delays")
    secret = client.site.access.log_in(TOKEN)
    assert secret is not None
    client.client.set_cookie("streamfactory-9816", secret, domain="localhost")
    answer = client.client.post("/actions/run", data=form, base_url=PLACE)
    assert answer.status_code == 403
    assert runs.last(file) is None


@pytest.mark.long("starts Spark")
def test_a_killed_server_leaves_no_pipeline_behind(file: Path, small: World) -> None:
    (small.folder / "token").write_text(TOKEN)
    words = ("--address", "127.0.0.1:0", "--option", "token=${file:token}")
    with start_command("ui", *words) as process:
        assert process.stdout is not None
        browser = Browser(process.stdout.readline().removeprefix("pages: ").strip())
        browser.log_in()
        csrf = browser.csrf(browser.get("/pipeline?name=delays"))
        form = {"csrf": csrf, "kind": "start", "pipeline": "delays"}
        shown = browser.ask("/actions/run", {**form, "pace": "continuous"})
        key = shown.text.split('name="change" value="')[1].split('"')[0]
        assert browser.ask("/actions/run", {"csrf": csrf, "change": key}).status == 303
        kept = Place.of(str(small.folder / "kept"))
        wait_until(
            lambda: ">0</th>" in browser.get("/pipeline?name=delays").text,
            "the first batch",
            300,
        )
        assert in_use(kept) is not None
        process.kill()
        process.communicate()
    wait_until(lambda: in_use(kept) is None, "the end of the run", 120)
