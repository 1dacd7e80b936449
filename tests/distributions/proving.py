"""``make prove PATHS=distributions``: the command for authors, on NATS and Redis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.distributions.installing import SERVERS, Installed, build
from tests.kafka.jars import Unavailable
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill as many writers, and as many members of groups, on each server."""
    verdict, wheels = Verdict(), build(place / "wheels")
    for kind in SERVERS:
        try:
            installed = wheels.with_server(kind)
        except Unavailable as reason:
            verdict.notes.append(f"{kind}: NOT PROVED, {reason}")
            continue
        folder = place / kind
        folder.mkdir()
        verdict += prove_one(installed, kind, folder, rounds, seed)
    return verdict


def prove_one(
    installed: Installed, kind: str, folder: Path, rounds: int, seed: int = 0
) -> Verdict:
    """Kill writers and group members by the command that authors have."""
    words = ("--rounds", str(rounds), "--seed", str(seed), "--json")
    found = json.loads(
        installed.run("streamfactory", "prove", kind, *words, cwd=folder)
    )
    assert found["problem"] is None, found["problem"]
    made = {part["what"]: part["rounds"] for part in found["parts"]}
    assert made == {"writers": rounds, "groups": rounds}
    assert all(part["kills"] for part in found["parts"])
    kills = sum(part["kills"] for part in found["parts"])
    return Verdict(lost=found["lost"], twice=found["twice"], kills=kills)
