"""A copy that is killed, again and again, keeps each row and each dead letter once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

CHILD = Path(__file__).with_name("copying_child.py")
MESSAGES = 3000
KILLS = 8
SEED = 7


def properties(folder: Path, topic: str, **options: str) -> dict[str, str]:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": topic,
        "stream.file.fsync": "never",
        **given,
    }


def define(folder: Path, topic: str, **options: str) -> None:
    text = {"name": topic, "properties": properties(folder, topic, **options)}
    (folder / f"{topic}.json").write_text(json.dumps(text))


def column(folder: Path, topic: str, name: str) -> Counter[Any]:
    with open_stream(properties(folder, topic)) as stream:
        return Counter(stream.to_reader().read_all().column(name).to_pylist())


@pytest.mark.long("a series of kills")
@pytest.mark.slow("kills commands")
def test_kills_lose_nothing_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(tmp_path))
    few = {"realtime__segment__flush__threshold__rows": "20"}
    define(tmp_path, "to", **few)
    define(tmp_path, "dead", **few)
    define(
        tmp_path,
        "from",
        stream__file__decoder__class__name="words",
        decode__on__error="dead-letter",
        dead__letter__stream="dead",
        batch__rows="20",
    )
    values = [b"w%d!" % n if n % 7 == 0 else b"w%d" % n for n in range(MESSAGES)]
    created = [sys.executable, "-m", "streamfactory", "topics", "create", "from"]
    arguments = ["--messages", "--partitions", "2", "--set"]
    raw = "stream.file.decoder.class.name=raw"
    subprocess.run([*created, *arguments, raw], check=True, capture_output=True)
    with open_sink(
        properties(tmp_path, "from", stream__file__decoder__class__name="raw")
    ) as sink:
        numbers = pa.array([n % 2 for n in range(MESSAGES)], pa.int32())
        sink.put(pa.table({"value": values, "_partition": numbers}))
    dice = random.Random(SEED)
    killed = 0
    for turn in range(KILLS + 1):
        child = subprocess.Popen(
            [sys.executable, str(CHILD)], stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            if turn < KILLS:
                time.sleep(dice.uniform(0, 0.12))  # the time of a kill is the test
                child.kill()
                killed += child.wait(120) != 0
                continue
            assert child.wait(120) == 0
            break
    assert killed > KILLS // 2
    bad = [value for value in values if value.endswith(b"!")]
    good = [value.decode() for value in values if not value.endswith(b"!")]
    assert column(tmp_path, "dead", "value") == Counter(bad)
    assert column(tmp_path, "to", "word") == Counter(good)
