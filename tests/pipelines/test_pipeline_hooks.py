"""What is called after a batch, and what becomes of the pipeline if it fails."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import SINK

from streamfactory.spark.pipelines import hooks
from streamfactory.spark.pipelines.hooks import HookFailed, hook_of
from streamfactory.spark.pipelines.model import Hook
from streamfactory.spark.pipelines.outcomes import Batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

BATCH = Batch("p", 3, 10, 0.5, 20.0, {"t": {"0": 7}}, {}, None, 0, "now")
SEEN: list[dict[str, Any]] = []


def remember(batch: dict[str, Any]) -> None:
    SEEN.append(batch)


def stumble(batch: dict[str, Any]) -> None:
    msg = "no"
    raise ValueError(msg)


def command(code: str, timeout: float = 30) -> Any:
    text = f"{sys.executable} -c '{code}'"
    return hook_of(Hook(text, None, "warn", timeout, "p.toml:1"))


def function(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    entry = EntryPoint("mine", f"{__name__}:{name}", hooks.GROUP)
    monkeypatch.setattr(hooks, "entry_points", lambda **_: [entry])
    return hook_of(Hook(None, "mine", "warn", 30, "p.toml:1"))


def test_no_hook_is_none() -> None:
    assert hook_of(Hook(None, None, "warn", 30, "p.toml:1")) is None


def test_a_command_reads_the_batch(tmp_path: Path) -> None:
    command(f'import sys; open("{tmp_path}/seen", "w").write(sys.stdin.read())')(BATCH)
    assert json.loads((tmp_path / "seen").read_text()) == BATCH.plain()


def test_a_command_need_not_read_the_batch() -> None:
    command("pass")(BATCH)


def test_a_command_that_fails_is_reported_with_its_last_words() -> None:
    with pytest.raises(HookFailed) as caught:
        command('import sys; sys.exit("out of paper")')(BATCH)
    assert caught.value.what == (
        f"the hook {sys.executable!r} ended with 1 after batch 3: out of paper"
    )
    with pytest.raises(HookFailed) as caught:
        hook_of(Hook("no-such-command -q", None, "warn", 30, "p:1"))(BATCH)  # type: ignore[misc]
    assert caught.value.what == (
        "the hook 'no-such-command' failed after batch 3: [Errno 2] No such file or "
        "directory: 'no-such-command'"
    )


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started() -> None:
    begun = time.monotonic()
    with pytest.raises(HookFailed) as caught:
        command(
            'import subprocess; subprocess.run(["sleep", "600"])',
            timeout=0.5,
        )(BATCH)
    assert caught.value.what.endswith("after batch 3: it took more than 0.5 s")
    assert time.monotonic() - begun < 200


def test_an_entry_point_gets_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    function(monkeypatch, "remember")(BATCH)
    assert [BATCH.plain()] == SEEN
    with pytest.raises(HookFailed) as caught:
        function(monkeypatch, "stumble")(BATCH)
    assert caught.value.what == "the hook 'mine' failed after batch 3: ValueError: no"
    with pytest.raises(HookFailed) as caught:
        function(monkeypatch, "nothing")
    assert caught.value.what.startswith("the hook 'mine' cannot be loaded: ")


@pytest.mark.long("several pipelines on Spark")
@pytest.mark.parametrize("policy", ["warn", "fail"])
def test_a_failed_hook_warns_or_ends_the_pipeline(
    spark: SparkSession, works: Works, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    works.topic("in", partitions=1).write(id=[*range(20)])
    out = works.topic("out")
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    path = works.pipeline(
        source + "maxOffsetsPerTrigger = 10\n" + SINK,
        hook_command=f"{sys.executable} -c 'raise SystemExit(3)'",
        hook_on_failure=policy,
        trigger="back-to-back",
        idle_stop_rounds=1,
    )
    (outcome,) = works.run(spark, path)
    if policy == "warn":
        assert outcome.failure is None
        assert out.column("id") == [*range(20)]
        assert caplog.text.count("ended with 3 after batch") == 2
    else:
        assert outcome.failure is not None
        assert outcome.failure.startswith("[hook_failed] the hook ")
        found = out.column("id")
        assert found == [*range(outcome.rows)]
