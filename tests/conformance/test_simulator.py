"""The simulator of Spark's driver: right backends pass, and what is wrong is caught."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance import broken

from streamfactory.backends.memory import MemoryConsumerFactory
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance import Subject
from streamfactory.conformance.case import CASES
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.spark.source import SparkSource
from streamfactory.spi import Position, hookimpl
from streamfactory.wiring.microbatch import BatchOffset
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from streamfactory.conformance.runner import Result
    from streamfactory.spi import Backend

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def plugins() -> PluginManager:
    all_cases()
    return PluginManager()


@pytest.fixture
def memory(plugins: PluginManager) -> Backend:
    return plugins.backend("memory")


@pytest.fixture
def outcome(plugins: PluginManager) -> Callable[..., Result]:
    """Runs one case."""

    def prove(backend: Backend, name: str, harness: Any = MemoryHarness) -> Result:
        (result,) = run(Subject(backend, harness, plugins), cases=[CASES[name]])
        return result

    return prove


class BrokenHarness(MemoryHarness):
    """Memory under another name."""

    def properties(self) -> dict[str, str]:
        given = super().properties()
        renamed = {k.replace(".memory.", ".broken."): v for k, v in given.items()}
        return {**renamed, "streamType": "broken"}


@pytest.fixture
def altered(memory: Backend) -> Callable[..., Result]:
    """Runs one case over memory with another factory."""

    def prove(name: str, **factories: Any) -> Result:
        class Plugin:
            @hookimpl
            def streamfactory_backend(self) -> Backend:
                return replace(memory, name="broken", **factories)

        plugins = PluginManager()
        plugins.register(Plugin())
        backend = plugins.backend("broken")
        (result,) = run(Subject(backend, BrokenHarness, plugins), cases=[CASES[name]])
        return result

    return prove


@pytest.fixture
def failure(altered: Callable[..., Result]) -> Callable[..., Result]:
    """The same, where the case has to fail."""

    def prove(name: str, **factories: Any) -> Result:
        result = altered(name, **factories)
        assert result.outcome is Outcome.FAILED
        assert result.script[0].startswith("create(partitions=")
        return result

    return prove


def simulated() -> list[str]:
    all_cases()
    chapter = "streamfactory.conformance.cases.spark"
    return [n for n, c in CASES.items() if c.body.__module__.startswith(chapter)]


@pytest.mark.parametrize("name", simulated())
def test_a_right_backend_passes(
    name: str, memory: Backend, outcome: Callable[..., Result]
) -> None:
    result = outcome(memory, name)

    if "shared" in CASES[name].claims:
        assert result.reason == "not claimed: shared"
    elif "epoch_visibility=task" in CASES[name].claims:
        assert result.reason == "not claimed: epoch_visibility=task"
    else:
        assert result.outcome is Outcome.PASSED, result.trace


@pytest.mark.parametrize(
    "name",
    [
        "an_attempt_that_failed_before_its_commit_leaves_no_row",
        "no_restart_loses_an_epoch",
    ],
)
def test_a_sink_that_shows_tasks_keeps_what_it_claims(
    name: str, altered: Callable[..., Result]
) -> None:
    result = altered(name, producer_factory=broken.ShowsTasks)

    assert result.outcome is Outcome.PASSED, result.trace


def test_every_case_has_a_hint_and_says_what_it_expects() -> None:
    for name in simulated():
        assert CASES[name].hint
        assert CASES[name].doc.endswith(".")


# --- authors who are wrong ---------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "name", "message"),
    [
        (
            broken.consuming(broken.SkipsARowWhenReadAgain),
            "a_batch_whose_commit_was_lost_is_replayed_identically",
            "rows of batch 0, replayed: expected",
        ),
        (
            broken.consuming(broken.SkipsARowWhenReadAgain),
            "a_plan_made_twice_is_the_same",
            "the rows of the plan, read again: expected",
        ),
        (
            broken.consuming(broken.SkipsARowWhenReadAgain),
            "a_restart_between_any_two_calls_loses_and_repeats_nothing",
            "rows of partition 0 out of the query: expected",
        ),
        (
            broken.consuming(broken.SharesACursor),
            "a_task_that_runs_twice_at_once_reads_the_same_rows",
            "the two attempts of Range(",
        ),
        (
            broken.consuming(broken.BeginsAtAFullBlock),
            "a_batch_in_more_tasks_is_the_same_batch",
            "the batch in 2 tasks a partition: expected",
        ),
        (
            broken.ForgetsWhatIsGone,
            "expiry_under_a_batch_is_reported",
            "expired after 'commit log 0': the query raised None",
        ),
        (
            broken.ForgetsWhatIsGone,
            "a_task_skips_expired_messages_and_reports_them",
            "5 messages before 5 were deleted, and the losses are []",
        ),
        (
            broken.providing(broken.LatestGoesBack),
            "an_idle_stream_makes_no_batch",
            "OffsetOutOfRange",
        ),
        (
            broken.providing(broken.MakesUpIncarnations),
            "a_plan_made_twice_is_the_same",
            "IncarnationChanged",
        ),
        (
            broken.providing(broken.NumbersIncarnations),
            "equal_positions_have_equal_text",
            "PositionRefused",
        ),
        (
            broken.AnotherLifeUnnoticed,
            "a_topic_recreated_under_a_batch_is_reported",
            "recreated after 'commit log 0': the query raised nothing",
        ),
        (
            broken.providing(broken.ListsPartitionsOnce),
            "partitions_that_appear_between_any_two_calls_are_read_whole",
            "rows of partition 1 out of the query: expected",
        ),
        (broken.HoldsALock, "a_factory_pickles", "cannot pickle"),
    ],
)
def test_a_broken_source_is_caught(
    factory: type,
    name: str,
    message: str,
    failure: Callable[..., Result],
) -> None:
    result = failure(name, consumer_factory=factory)

    assert message in result.reason


@pytest.mark.parametrize(
    ("factory", "name", "message"),
    [
        (
            broken.ForgetsEpochs,
            "a_driver_that_dies_between_any_two_steps_writes_each_epoch_once",
            "was there, and was committed again",
        ),
        (
            broken.ForgetsEpochs,
            "a_replay_with_other_rows_and_tasks_is_drained",
            "rows that were drained: expected 4, got 0",
        ),
        (
            broken.ShowsTasksEarly,
            "an_attempt_that_failed_anywhere_leaves_no_row",
            "visible twice, or of tries that did not win: [0, 1, 2, 3]",
        ),
        (
            broken.ShowsTasksEarly,
            "of_two_committed_attempts_one_is_visible",
            "visible twice, or of tries that did not win: [1000, 1001",
        ),
        (
            broken.ShowsTasksEarly,
            "a_zombie_that_commits_after_the_decision_is_not_seen",
            "visible twice, or of tries that did not win: [1001, 1002, 1003, 1004]",
        ),
        (
            broken.ShowsWhatWasWrittenAtOnce,
            "an_attempt_that_failed_anywhere_leaves_no_row",
            "visible twice, or of tries that did not win: [0, 1]",
        ),
        (
            broken.ShowsRows,
            "an_attempt_that_failed_before_its_commit_leaves_no_row",
            "visible twice, or of tries that did not win: [0, 1]",
        ),
        (
            broken.CommitsWhatIsStaged,
            "of_two_committed_attempts_one_is_visible",
            "visible twice, or of tries that did not win: [1000, 1001",
        ),
        (
            broken.CommitsWhatIsStaged,
            "a_zombie_that_commits_after_the_decision_is_not_seen",
            "visible twice, or of tries that did not win: [1001, 1002, 1003, 1004]",
        ),
        (
            broken.SaysDoneBeforeItIs,
            "no_restart_loses_an_epoch",
            "epoch 1 is not whole: seen are [",
        ),
        (
            broken.ForgetsOldEpochs,
            "a_driver_that_was_replaced_changes_nothing",
            "the old driver's commit says that it was made",
        ),
        (
            broken.WritesAgainAfterALostReply,
            "a_commit_whose_verdict_was_lost_counts_once",
            "was there, and was committed again",
        ),
        (
            broken.AbortTakesTheEpoch,
            "an_aborted_epoch_is_written_again",
            "staged no longer exists",
        ),
    ],
)
def test_a_broken_sink_is_caught(
    factory: type,
    name: str,
    message: str,
    failure: Callable[..., Result],
) -> None:
    result = failure(name, producer_factory=factory)

    assert message in result.reason


# --- drivers that are wrong -----------------------------------------------------


def test_a_driver_that_does_not_pin_its_start_is_caught(
    memory: Backend, outcome: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = SparkSource.partitions

    def trusting(self: Any, start: str, end: str, pieces: int = 1) -> Any:
        asked = BatchOffset.parse(start)
        begun = asked.begun if asked.at is None else BatchOffset.parse(end).begun
        after = BatchOffset(BatchOffset.parse(end).at, begun)
        return pinned(self, start, after.to_text(), pieces)

    monkeypatch.setattr(SparkSource, "partitions", trusting)

    result = outcome(memory, "the_start_of_a_new_query_is_pinned_by_its_first_batch")

    assert result.outcome is Outcome.FAILED
    assert "PositionRefused: the batch has no start of" in result.reason
    assert result.script[-1] != "create(partitions=2)"


def test_a_target_that_moves_is_caught(
    memory: Backend, outcome: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSource, "prepare_for_available_now", lambda self: None)

    result = outcome(memory, "available_now_ends_while_the_stream_grows")

    assert result.outcome is Outcome.FAILED
    assert result.reason == "batches come without end"


def test_an_offset_log_that_is_read_leniently_is_caught(
    memory: Backend, outcome: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = BatchOffset.parse

    def lenient(text: str) -> BatchOffset:
        return strict(text) if text.startswith("{") else BatchOffset(Position())

    monkeypatch.setattr(BatchOffset, "parse", lenient)

    result = outcome(memory, "a_foreign_checkpoint_is_refused")

    assert result.outcome is Outcome.FAILED
    assert "an offset log that is empty was accepted: ''" in result.reason


# --- processes ------------------------------------------------------------------


class LinesHarness:
    """Writes numbers into the files of the example backend."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, partitions: int) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        for number in range(partitions):
            self._path(number).touch()

    def properties(self) -> dict[str, str]:
        return {
            "streamType": "lines",
            "stream.lines.topic.name": "numbers",
            "stream.lines.folder": str(self._folder),
        }

    def partitions(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.iterdir())

    def write(self, partition: int, numbers: list[int]) -> None:
        with self._path(partition).open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(line) for line in rows.column("line").to_pylist()]

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, partition: int) -> Path:
        return self._folder / f"{partition}.log"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.syspath_prepend(EXAMPLES)
    sys.modules.pop("lines", None)
    backend: Backend = importlib.import_module("lines").streamfactory_backend()
    yield backend
    del sys.modules["lines"]


def test_a_task_runs_in_a_separate_process(
    lines: Backend, outcome: Callable[..., Result], plugins: PluginManager
) -> None:
    if "lines" not in plugins.names("streamfactory.backends"):
        plugins.register(sys.modules["lines"])

    result = outcome(
        lines, "a_task_in_another_process_reads_the_same_rows", LinesHarness
    )

    assert result.outcome is Outcome.PASSED, result.trace


def test_a_stream_that_its_process_keeps_for_itself_is_caught(
    memory: Backend, outcome: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = replace(MemoryConsumerFactory.CLAIMS, shared=True)
    monkeypatch.setattr(MemoryConsumerFactory, "CLAIMS", claims)

    result = outcome(memory, "a_task_in_another_process_reads_the_same_rows")

    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("in another process: ")
    assert "does not exist in memory" in result.reason
