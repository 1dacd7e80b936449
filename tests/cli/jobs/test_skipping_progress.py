"""What the source of a copy that skips is told: acknowledgements, and its group."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.jobs.test_skipping import backfilled, following, late, sink

from streamfactory.spi import ConsumerFactory, Partition
from streamfactory.wiring.reading.metadata import Metadata

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.cli.jobs.conftest import Memory

    from streamfactory.spi import Position

__all__ = ["late", "sink"]

FIRST = Partition("from", 0)


def test_source_keeps_skipped_ranges_until_they_are_read(
    late: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "data"),
        "stream.file.topic.name": "to",
    }
    # Only what is durable is acknowledged.
    sink = tmp_path / "to.json"
    sink.write_text(json.dumps({"name": "to", "properties": properties}))
    acknowledged: list[int] = []

    def acknowledge(_: ConsumerFactory, position: Position) -> None:
        if FIRST in position:
            acknowledged.append(position[FIRST])

    monkeypatch.setattr(ConsumerFactory, "acknowledge", acknowledge)
    following(late, sink, lambda n: n == 60)
    assert set(acknowledged) == {0}
    backfilled(late, sink)
    assert acknowledged[-1] == 950
    following(late, sink, lambda n: True)  # forgets what was read
    following(late, sink, lambda n: True)
    assert acknowledged[-1] == 1000


def test_backfill_publishes_no_position_to_the_group_of_the_copy(
    memory: Memory, late: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = memory.stream("from", fresh__within__rows="100", progress__group="g")
    published: list[int] = []

    def publish(_: Metadata, group: str, position: Position) -> None:
        assert group == "g"
        published.append(position[FIRST])

    monkeypatch.setattr(Metadata, "publish_position", publish)
    following(source, sink, lambda n: n == 60)
    assert published[-1] == 1000
    before = len(published)
    backfilled(source, sink)
    assert len(published) == before
