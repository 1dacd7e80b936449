"""Spark's own Kafka source reads the same: rows, types, ranges of offsets."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.conftest import unavailable
from tests.kafka.jars import Unavailable, jars
from tests.proving.sessions import missing_java

if TYPE_CHECKING:
    from tests.kafka.topics import Topics

pytestmark = pytest.mark.timeout(400)

PROGRAM = Path(__file__).with_name("oracle.py")


def filled(topics: Topics) -> dict[str, int]:
    """Topics of every kind, with the number of rows that can be read of each."""
    mark = uuid.uuid4().hex[:6]
    plain = topics.create(f"plain-{mark}", 2)
    for number in range(2):
        values = [f"{number}-{at}".encode() for at in range(600)]
        topics.send(plain, values, partition=number, key=b"k")
    mixed = topics.create(f"mixed-{mark}")
    topics.send(mixed, [b"a", None, b""], headers=[("h", b"1"), ("h", None)])
    topics.send(mixed, [b"no key"], key=None, timestamp=1_700_000_000_123)
    transactional = topics.create(f"transaction-{mark}")
    topics.send_in_transaction(transactional, [b"kept"] * 300)
    topics.send_in_transaction(transactional, [b"gone"] * 300, abort=True)
    topics.send_in_transaction(transactional, [b"kept"] * 10)
    skewed = topics.create(f"skewed-{mark}", 3)
    topics.send(skewed, [b"many"] * 1500, partition=2)
    topics.send(skewed, [b"one"], partition=0)
    cut = topics.create(f"cut-{mark}")
    topics.send(cut, [str(number).encode() for number in range(50)])
    topics.truncate(cut, 0, 20)
    compacted = topics.create_compacted(f"compacted-{mark}")
    held = topics.count(compacted)
    return {
        compacted: held,
        plain: 1200,
        mixed: 4,
        transactional: 310,
        skewed: 1501,
        cut: 30,
    }


@pytest.fixture
def compared(topics: Topics, tmp_path: Path) -> Any:
    """What both sources made of the topics."""
    reason = missing_java()
    if reason is not None:
        unavailable(Unavailable(reason))
    try:
        listed = ",".join(str(path) for path in jars("oracle"))
    except Unavailable as missing:
        unavailable(missing)
        raise
    wanted = filled(topics)
    done = subprocess.run(
        [sys.executable, PROGRAM, topics.bootstrap, tmp_path, listed, *wanted],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return wanted, json.loads(done.stdout.splitlines()[-1])


def test_both_sources_read_the_same(compared: Any) -> None:
    wanted, found = compared
    for topic, rows in wanted.items():
        same = {"theirs": rows, "ours": rows, "first": None}
        assert found[f"{topic} batch"] == same
        assert found[f"{topic} stream"] == same
        ends = found[f"{topic} ends"]
        assert ends["ours"][-1] == ends["theirs"][-1]
