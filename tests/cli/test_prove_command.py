"""The command ``prove``: kills of writers over a harness, and what they come to."""

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


@pytest.mark.slow("kills processes")
def test_a_sound_backend_loses_nothing(streamfactory: Callable[..., Outcome]) -> None:
    words = ("prove", "durable", "--harness", DURABLE, "--rounds", "8", "--json")
    outcome = streamfactory(*words, "--seed", "3")
    assert outcome.status == 0
    found = outcome.json
    assert (found["lost"], found["twice"], found["problem"]) == (0, 0, None)
    assert found["rounds"] == 8
    # Each second round dies inside commit; those at random moments may be too late.
    assert found["kills"] >= 4


@pytest.mark.slow("kills processes")
def test_a_backend_that_marks_before_it_places_is_found(tmp_path: Path) -> None:
    from tests.zoo.cage import ZOO
    from tests.zoo.matrix import plugins_for

    backend = ZOO["MarksBeforeItPlaces"].backend
    subject = Subject(backend, DurableHarness, plugins_for(backend))
    last = None
    for last in prove_writing(subject, tmp_path, 40, seed=0):
        if not last.good:
            break
    assert last is not None
    assert (last.lost, last.twice) == (20, 0)


def test_what_cannot_be_proved_says_why(streamfactory: Callable[..., Outcome]) -> None:
    outcome = streamfactory("prove", "memory")
    assert outcome.status == 2
    why = "writers of 'memory' cannot be proved: not claimed: durable"
    assert why in outcome.err
