"""Dead letters of a copy that skips: each once, whatever a crash leaves undone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import Partition
from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.skipping import Skipping
from streamfactory.wiring.reading.skipping import Freshness
from streamfactory.wiring.writing.epochs import Epochs

if TYPE_CHECKING:
    from tests.decoding.conftest import Streams

    from streamfactory.spi import Position
    from streamfactory.transfer.copying import Copied

FROM = Partition("from", 0)
GOOD = [f"w{n}" for n in range(24) if n % 2 == 0]
BAD = [f"w{n}!".encode() for n in range(24) if n % 2]


class Crash(BaseException):
    """The end of the process."""


def run(streams: Streams, *, follow: bool = False, backfill: bool = False) -> Copied:
    stop = threading.Event()
    with open_copy("from", "to", plugins=streams.plugins, backfill=backfill) as copy:
        return copy.run(
            stop,
            follow=follow,
            on_progress=lambda rows: stop.set() if follow and rows > 2 else None,
        )


@pytest.fixture
def skipping(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """A copy that skips from offset 4 to offset 20, once it has read the first four."""
    values = [f"w{n}!".encode() if n % 2 else f"w{n}".encode() for n in range(24)]
    streams.messages("from", values)
    streams.define(
        "from",
        stream__memory__decoder__class__name="words",
        decode__on__error="dead-letter",
        dead__letter__stream="dead",
        fresh__within__rows="100",
        batch__rows="4",
    )
    streams.define("to", realtime__segment__flush__threshold__time="1h")
    streams.define("dead", realtime__segment__flush__threshold__time="1h")
    look = Skipping.look

    def look_now(self: Skipping, *given: object, **named: object) -> object:
        self._look = 0.0
        return look(self, *given, **named)  # type: ignore[arg-type]

    def late(_: Freshness, position: Position) -> dict[Partition, int]:
        return {FROM: 20} if 0 < position[FROM] < 20 else {}

    monkeypatch.setattr(Skipping, "look", look_now)
    monkeypatch.setattr(Freshness, "late", late)
    return streams


def words(streams: Streams) -> list[str]:
    return sorted((row["word"] for row in streams.rows("to")), key=lambda w: int(w[1:]))


def letters(streams: Streams) -> list[bytes]:
    found = [row["value"] for row in streams.rows("dead")]
    return sorted(found, key=lambda value: int(value[1:-1]))


def test_letters_of_skipped_rows_are_written_by_the_backfill(skipping: Streams) -> None:
    done = run(skipping, follow=True)
    assert [(one.start, one.end) for one in done.skipped] == [(4, 20)]
    filled = run(skipping, backfill=True)
    assert (filled.rows, filled.dead_letters) == (8, 8)
    assert (words(skipping), letters(skipping)) == (GOOD, BAD)


def test_crash_before_the_commit_of_a_jump_loses_no_letter(
    skipping: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Epochs.commit

    def die(self: Epochs, position: Position) -> None:
        if position.skipped and self._sink.config.name == "to":
            raise Crash
        commit(self, position)

    with monkeypatch.context() as crash:
        crash.setattr(Epochs, "commit", die)
        with pytest.raises(Crash):
            run(skipping, follow=True)
    # The next run does not skip: it reads what the last one would have.
    assert run(skipping).skipped == ()
    assert (words(skipping), letters(skipping)) == (GOOD, BAD)
