"""A copy that is killed, again and again, keeps each row and each dead letter once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.proving.verdict import Verdict

from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

CHILD: Final = Path(__file__).with_name("copying_child.py")
MESSAGES: Final = 400
"""For each kill: the copy is not done before the last one."""


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill a copy so many times, then let it end; compare both of its targets."""
    environment = {**os.environ, "STREAMFACTORY_STREAMS": str(place)}
    bad, good = _prepare(place, MESSAGES * rounds, environment)
    chance, kills, turns = random.Random(seed), 0, 0
    while kills < rounds and turns < 3 * rounds:
        turns += 1
        # The moment of a kill is the test.
        kills += _run(environment, chance.uniform(0, 0.12))
    assert not _run(environment, None)
    verdict = Verdict(kills=kills)
    for found, wanted in (
        (column(place, "dead", "value"), Counter(bad)),
        (column(place, "to", "word"), Counter(good)),
    ):
        verdict.lost += (wanted - found).total()
        verdict.twice += (found - wanted).total()
    return verdict


def prove_replays(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill replays into a new target, in which other letters fail again each time.

    Some letters are there twice, as two copies write them.
    """
    environment = {**os.environ, "STREAMFACTORY_STREAMS": str(place)}
    bad, _ = _prepare(place, MESSAGES * rounds, environment)
    assert not _run(environment, None)
    command = [sys.executable, "-m", "streamfactory", "topics"]
    deleted = [*command, "delete", "to", "--yes"]
    subprocess.run(deleted, check=True, capture_output=True, env=environment)
    assert not _run(environment, None)
    define(place, "second", realtime__segment__flush__threshold__rows="5")
    created = [*command, "create", "second", "--schema", "word string"]
    subprocess.run(created, check=True, capture_output=True, env=environment)
    chance, kills, turns = random.Random(seed), 0, 0
    while kills < rounds and turns < 3 * rounds:
        turns += 1
        # The moment of a kill is the test.
        fails = str(chance.choice((2, 3, 5)))
        kills += _run(environment, chance.uniform(0, 0.12), fails)
    assert not _run(environment, None, "0")
    found = column(place, "second", "word")
    wanted = Counter(value.decode().strip("!") for value in bad)
    lost, twice = (wanted - found).total(), (found - wanted).total()
    return Verdict(kills=kills, lost=lost, twice=twice)


def _prepare(
    place: Path, messages: int, environment: Mapping[str, str]
) -> tuple[list[bytes], list[str]]:
    """Define and fill the streams; the bad messages, and the words of the others."""
    few = {"realtime__segment__flush__threshold__rows": "20"}
    define(place, "to", **few)
    define(place, "dead", **few)
    define(
        place,
        "from",
        stream__file__decoder__class__name="words",
        decode__on__error="dead-letter",
        dead__letter__stream="dead",
        batch__rows="20",
    )
    values = [b"w%d!" % n if n % 7 == 0 else b"w%d" % n for n in range(messages)]
    created = [sys.executable, "-m", "streamfactory", "topics", "create", "from"]
    arguments = ["--messages", "--partitions", "2", "--set"]
    raw = "stream.file.decoder.class.name=raw"
    subprocess.run(
        [*created, *arguments, raw], check=True, capture_output=True, env=environment
    )
    with open_sink(
        properties(place, "from", stream__file__decoder__class__name="raw")
    ) as sink:
        numbers = pa.array([n % 2 for n in range(messages)], pa.int32())
        sink.put(pa.table({"value": values, "_partition": numbers}))
    bad = [value for value in values if value.endswith(b"!")]
    return bad, [value.decode() for value in values if not value.endswith(b"!")]


def _run(environment: Mapping[str, str], delay: float | None, *arguments: str) -> bool:
    """Run the child; whether it was killed, that many seconds after it had begun."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        if delay is not None:
            time.sleep(delay)
            child.kill()
        status = child.wait(120)
    assert status in (0, -9)
    return status != 0


def properties(folder: Path, topic: str, **options: str) -> dict[str, str]:
    """The configuration of a topic."""
    given = {key.replace("__", "."): value for key, value in options.items()}
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": topic,
        "stream.file.fsync": "never",
        **given,
    }


def define(folder: Path, topic: str, **options: str) -> None:
    """Write the definition of a named stream."""
    text = {"name": topic, "properties": properties(folder, topic, **options)}
    (folder / f"{topic}.json").write_text(json.dumps(text))


def column(folder: Path, topic: str, name: str) -> Counter[Any]:
    """The values of a column, as a reader sees them."""
    with open_stream(properties(folder, topic)) as stream:
        return Counter(stream.to_reader().read_all().column(name).to_pylist())
