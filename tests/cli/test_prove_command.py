"""The command ``prove``: kills over a harness, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfactory.conformance.proving import prove_writing
from streamfactory.conformance.specimens.durable import DurableHarness
from streamfactory.conformance.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome

DURABLE = "streamfactory.conformance.specimens.durable:DurableHarness"
REDELIVERING = "streamfactory.conformance.specimens.redelivering:RedeliveringHarness"


@pytest.mark.slow("kills processes")
def test_a_sound_backend_loses_nothing(streamfactory: Callable[..., Outcome]) -> None:
    words = ("prove", "durable", "--harness", DURABLE, "--rounds", "8", "--json")
    outcome = streamfactory(*words, "--seed", "3")
    assert outcome.status == 0
    found = outcome.json
    assert (found["lost"], found["twice"], found["problem"]) == (0, 0, None)
    writers, groups = found["parts"]
    assert (writers["what"], writers["rounds"]) == ("writers", 8)
    # Each second round dies inside commit; those at random moments may be too late.
    assert writers["kills"] >= 4
    assert (groups["what"], groups["rounds"]) == ("groups", 8)
    assert groups["kills"] >= 2
    assert found["kills"] == writers["kills"] + groups["kills"]


@pytest.mark.slow("kills processes")
def test_a_backend_that_stores_the_epoch_before_its_rows_is_found(
    tmp_path: Path,
) -> None:
    from tests.zoo.matrix import plugins_for
    from tests.zoo.registry import ZOO

    backend = ZOO["StoresTheEpochBeforeItsRows"].backend
    subject = Subject(backend, DurableHarness, plugins_for(backend))
    last = None
    for last in prove_writing(subject, tmp_path, 40, seed=0):
        if not last.good:
            break
    assert last is not None
    assert (last.lost, last.twice) == (20, 0)


def test_what_cannot_be_proved_gives_the_reason(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("prove", "memory")
    assert outcome.status == 2
    why = "'memory' cannot be proved: writers: not claimed: durable; "
    assert why + "groups: not claimed: shared" in outcome.err


@pytest.mark.slow("kills processes")
def test_a_part_that_cannot_be_proved_gives_the_reason(
    streamfactory: Callable[..., Outcome],
) -> None:
    words = ("prove", "redelivering", "--harness", REDELIVERING, "--rounds", "1")
    outcome = streamfactory(*words)
    assert outcome.status == 0
    groups, writers, verdict = outcome.out.splitlines()
    assert groups.startswith("redelivering, groups: 1 round, 1 kill in ")
    assert writers == ("redelivering, writers: not proved: the type cannot be written")
    assert verdict == "lost=0 twice=0"
