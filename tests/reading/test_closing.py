"""R10: closing wakes, happens once, leaves nothing; and one thread fetches."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.specimens import PARTITION_0, Author, Dictionary, Words, envelopes, rows

from streamfactory.spi import (
    BatchState,
    ClosedError,
    ConnectionFailed,
    Fetched,
    MisuseError,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from tests.reading.conftest import Background

    from streamfactory.wiring.reading.reader import Reader

    Readers = Callable[..., Reader]
    Backgrounds = Callable[[Callable[[], object]], Background]

WITH_WORDS: dict[str, Any] = {"stream__script__decoder__class__name": "words"}


@pytest.mark.parametrize("wakes", [True, False])
def test_close_wakes_a_blocked_fetch(
    reader_of: Readers, background: Backgrounds, wakes: bool
) -> None:
    author = Author(wakes=wakes)
    reader = reader_of(author)
    reader.fetch(0, timeout=0)
    author.blocked.clear()
    fetching = background(lambda: reader.fetch(0, timeout=600))
    assert author.blocked.wait(120)
    begun = time.monotonic()
    reader.close()
    fetching.join(120)
    assert fetching.ended - begun < 15
    assert isinstance(fetching.error, ClosedError)
    assert author.made[0].closed == 1


def test_close_ends_the_wait_between_attempts(
    reader_of: Readers, background: Backgrounds
) -> None:
    failed = threading.Event()

    def fail(*_: object) -> Fetched:
        failed.set()
        raise ConnectionError

    author = Author(*[fail] * 99)
    options = {"retry__initial__millis": "60000", "retry__max__millis": "60000"}
    reader = reader_of(author, **options)
    fetching = background(lambda: reader.fetch(0, timeout=600))
    assert failed.wait(120)
    begun = time.monotonic()
    reader.close()
    fetching.join(120)
    assert fetching.ended - begun < 15
    assert isinstance(fetching.error, ClosedError)


def test_close_ends_a_look_up_that_is_tried_again(
    reader_of: Readers, background: Backgrounds
) -> None:
    author = Author()
    author.refusals.extend(ConnectionFailed("away") for _ in range(99))
    options = {"retry__initial__millis": "20000", "retry__max__millis": "20000"}
    reader = reader_of(author, **options)
    fetching = background(lambda: reader.fetch(0, timeout=600))
    deadline = time.monotonic() + 60
    while not author.looked_up and time.monotonic() < deadline:
        time.sleep(0.001)
    begun = time.monotonic()
    reader.close()
    fetching.join(120)
    assert fetching.ended - begun < 15
    assert isinstance(fetching.error, ClosedError)


def test_closing_twice_closes_once(reader_of: Readers) -> None:
    author = Author(rows(0, 1))
    reader = reader_of(author)
    reader.fetch(0)
    reader.close()
    reader.close()
    assert author.made[0].closed == 1


def test_closing_unused_makes_nothing(reader_of: Readers) -> None:
    author = Author()
    reader_of(author).close()
    assert author.made == []


def test_use_after_close_is_reported(reader_of: Readers) -> None:
    reader = reader_of(Author(rows(0, 1)))
    reader.close()
    for end in (None, 0):
        with pytest.raises(ClosedError) as caught:
            reader.fetch(0, end=end)
        assert caught.value.what == "the reader is closed"
        assert caught.value.partition == PARTITION_0


def test_second_thread_is_refused_and_the_first_continues(
    reader_of: Readers, background: Backgrounds
) -> None:
    author = Author()
    reader = reader_of(author)
    fetching = background(lambda: reader.fetch(0, timeout=1))
    assert author.blocked.wait(120)
    with pytest.raises(MisuseError) as caught:
        reader.fetch(0)
    assert caught.value.what == "two threads use one reader"
    fetching.join(120)
    assert fetching.error is None
    assert fetching.result.state is BatchState.IDLE  # type: ignore[attr-defined]


def test_failed_creation_leaves_nothing_and_the_next_fetch_tries_again(
    reader_of: Readers,
) -> None:
    author = Author(rows(0, 1))
    answers = [PermissionError("no"), None]

    def creating(_: object) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    author.creating = creating
    before = threading.active_count()
    reader = reader_of(author)
    with pytest.raises(Exception, match="PermissionError"):
        reader.fetch(0)
    assert (author.made, threading.active_count()) == ([], before)
    assert reader.fetch(0).num_rows == 1


def test_close_that_fails_does_not_hide_anything(reader_of: Readers) -> None:
    def failing() -> None:
        msg = "already gone"
        raise OSError(msg)

    author = Author(rows(0, 1), ConnectionFailed("reset"), rows(1, 1))
    reader = reader_of(author)
    reader.fetch(0)
    author.made[0].close = failing  # type: ignore[method-assign]
    assert reader.fetch(1, timeout=5).num_rows == 1
    reader.close()


# --- decoders are closed --------------------------------------------------------------


def test_every_decoder_is_closed_once() -> None:
    before = Words.opened
    author = Author(envelopes(b"a"), schema=envelope_schema())
    source = author.source(plugins=[Dictionary()], **WITH_WORDS)
    assert source.schema.names == ["word"]
    assert Words.opened == before
    reader = source.reader(PARTITION_0)
    assert reader.fetch(0).num_rows == 1
    assert Words.opened == before + 1
    reader.close()
    reader.close()
    source.close()
    assert Words.opened == before


def test_decoder_without_a_schema_is_closed_and_translated() -> None:
    class Lost(Words):
        def schema(self) -> pa.Schema:
            msg = "registry"
            raise KeyError(msg)

    before = Words.opened
    author = Author(schema=envelope_schema())
    source = author.source(plugins=[Dictionary(Lost)], **WITH_WORDS)
    with pytest.raises(Exception, match="the plug-in raised KeyError"):
        source.reader(PARTITION_0)
    assert Words.opened == before
    source.close()


def test_refused_columns_close_the_decoder() -> None:
    before = Words.opened
    author = Author(schema=envelope_schema())
    source = author.source(
        plugins=[Dictionary()],
        fields=["verse"],
        **WITH_WORDS,
    )
    with pytest.raises(
        Exception, match="column 'verse' does not exist; available are word"
    ):
        source.reader(PARTITION_0)
    assert Words.opened == before
    source.close()
