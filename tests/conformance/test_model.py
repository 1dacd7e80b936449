"""Random walks find what single cases miss, and find it again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.conformance import CASES, Outcome, Subject
from streamfactory.conformance.runner import Result, all_cases, run_case
from streamfactory.conformance.specimens.durable import (
    DurableConsumer,
    DurableConsumerFactory,
    DurableHarness,
    DurableMetadata,
    streamfactory_backend,
)
from streamfactory.spi import Backend, Fetched, FetchLimits, hookimpl
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Partition, PartitionInfo

all_cases()
WALK = CASES["random_walks_agree_with_the_model"]


def walked(
    consumer: type[DurableConsumer] = DurableConsumer,
    metadata: type[DurableMetadata] = DurableMetadata,
    harness: type[DurableHarness] = DurableHarness,
    seed: int = 0,
) -> Result:
    """The case on the durable specimen, with a class of its own exchanged."""

    class Factory(DurableConsumerFactory):
        def create_partition_level_consumer(
            self,
            client_id: str,
            partition: Partition,
            fields_to_read: Sequence[str] | None = None,
        ) -> DurableConsumer:
            return consumer(self.config["path"], partition)

        def create_metadata_provider(self, client_id: str) -> DurableMetadata:
            return metadata(self.config["path"])

    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            correct = streamfactory_backend()
            return Backend(
                name=correct.name,
                doc=correct.doc,
                spi_level=1,
                consumer_factory=Factory,
                options=correct.options,
            )

    plugins = PluginManager()
    plugins.register(Plugin())
    return run_case(
        WALK, Subject(plugins.backend("durable"), harness, plugins), seed=seed
    )


class Stuck(DurableConsumer):
    """After two answers it goes on where it is, at any given position."""

    calls = 0
    at = 0

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        self.calls += 1
        answer = super().fetch_messages(
            start if self.calls < 3 else max(start, self.at), end, limits
        )
        self.at = answer.next_offset
        return answer


class Eager(DurableConsumer):
    """Takes the end for inclusive, and says that it is beyond it."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        shorter = None if end is None else max(start + 1, end - 1)
        answer = super().fetch_messages(start, shorter, limits)
        if shorter is None or answer.next_offset < shorter or shorter == end:
            return answer
        assert end is not None
        return Fetched(answer.rows, end, held_from=answer.held_from)


class Eternal(DurableMetadata):
    """A stream that begins again says that it is the same."""

    def fetch_partitions(self, *asked: Any) -> Sequence[PartitionInfo]:
        answer = super().fetch_partitions(*asked)
        for info in answer:
            object.__setattr__(info, "incarnation", "always")
        return answer


class EternalConsumer(DurableConsumer):
    """The consumer of `Eternal`."""

    def fetch_messages(self, *asked: Any) -> Fetched:
        self._topic.refresh()
        self._incarnation = self._topic.incarnation
        answer = super().fetch_messages(*asked)
        object.__setattr__(answer, "incarnation", "always")
        return answer


@pytest.mark.parametrize(
    "exchanged",
    [
        pytest.param({"consumer": Stuck}, marks=pytest.mark.long("fetches that wait")),
        {"consumer": Eager},
        pytest.param(
            {"metadata": Eternal, "consumer": EternalConsumer},
            marks=pytest.mark.long("fetches that wait"),
        ),
    ],
    ids=["stuck", "eager", "eternal"],
)
def test_defect_is_found_and_its_script_is_short(exchanged: dict[str, Any]) -> None:
    for seed in range(4):
        result = walked(**exchanged, seed=seed)
        assert result.outcome is Outcome.FAILED
        assert result.script[0] == "create(partitions=1)"
        assert f"`--seed {seed}` finds it again" in result.reason
        # Of 25 steps and more. Which walks are tried depends on the modules imported,
        # from which Hypothesis takes numbers: some cannot be cut in the tries allowed.
        if len(result.script) <= 10:
            return
    pytest.fail("no script is short")


@pytest.mark.long("two walks of a failing model")
def test_seed_finds_the_same_script_again() -> None:
    results = [walked(consumer=Eager, seed=7) for _ in range(2)]
    assert results[0].script == results[1].script
    assert results[0].reason.startswith("messages from 0 to 2: expected ")
    assert "`--seed 7` finds it again" in results[0].reason


@pytest.mark.long("three walks of the whole model")
def test_correct_stream_agrees_whatever_the_seed() -> None:
    assert [walked(seed=seed).reason for seed in (1, 2, 3)] == ["", "", ""]


def test_harness_without_abilities_is_walked_too() -> None:
    class Plain(DurableHarness):
        grow: Any = None
        truncate: Any = None
        recreate: Any = None

    assert walked(harness=Plain).outcome is Outcome.PASSED


def test_answers_by_chance_are_reported_as_such() -> None:
    class Moody(DurableConsumer):
        calls = 0

        def fetch_messages(self, *asked: Any) -> Fetched:
            Moody.calls += 1
            if Moody.calls == 40:
                return Fetched(None, asked[0] + 1)
            return super().fetch_messages(*asked)

    result = walked(consumer=Moody)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("by chance (the same walk goes well at times): ")


def test_creation_that_fails_by_chance_is_named() -> None:
    class Full(DurableHarness):
        streams = 0

        def create(self, partitions: int) -> None:
            Full.streams += 1
            if Full.streams == 5:
                msg = "the medium is full"
                raise OSError(msg)
            super().create(partitions)

    result = walked(harness=Full)
    assert result.outcome is Outcome.FAILED
    assert "the medium is full" in result.reason
    assert list(result.script) == ["create(partitions=1)"]


def test_without_hypothesis_the_case_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "streamfactory.conformance.model", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    result = walked()
    assert result.outcome is Outcome.SKIPPED
    assert result.reason == (
        "Hypothesis is not installed: run: pip install 'streamfactory[conformance]'"
    )
