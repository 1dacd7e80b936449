"""Retries, translation and masking of errors, and that all of it pickles (R11)."""

from __future__ import annotations

import logging
import pickle
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.schemes import remote_scheme
from tests.specimens import PARTITION_0, Author, envelopes, ids, rows

from streamfactory.spi import (
    BatchState,
    Cancelled,
    ConnectionFailed,
    ErrorTable,
    Fetched,
    IncarnationChanged,
    Loss,
    MessageBatch,
    NotAuthorized,
    OffsetOutOfRange,
    PermanentError,
    ReferenceScheme,
    ResolvedReference,
    StreamError,
    StreamTimeout,
    TransientError,
    UntranslatedError,
)
from streamfactory.spi.hooks import REFERENCES, hookimpl
from streamfactory.spi.references import forget, resolve
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.testing.faults import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.wiring.reading.reader import Reader

    Readers = Callable[..., Reader]

SECRET = "hunter2-hunter2"


class ClientError(Exception):
    """What a client library raises."""


# --- retries --------------------------------------------------------------------------


def test_passing_trouble_is_tried_again_with_a_new_consumer(reader_of: Readers) -> None:
    author = Author(ConnectionFailed("reset"), StreamTimeout("slow"), rows(0, 3))
    reader = reader_of(author)
    assert reader.fetch(0, timeout=5).num_rows == 3
    assert (len(author.made), author.open_consumers) == (3, 1)
    assert (reader.counters.retries, reader.counters.recreated) == (2, 2)


def test_failed_creation_is_tried_again_too(reader_of: Readers) -> None:
    author = Author(rows(0, 3))
    failures = [ConnectionFailed("not yet")]

    def creating(_: object) -> None:
        if failures:
            raise failures.pop()

    author.creating = creating
    assert reader_of(author).fetch(0, timeout=5).num_rows == 3


def test_attempts_count_across_fetches_and_the_last_error_reports_it(
    reader_of: Readers,
) -> None:
    author = Author(*[ConnectionFailed("the broker is away") for _ in range(9)])
    reader = reader_of(author, retry__max__attempts="3")

    def fetch_often() -> None:
        for _ in range(1000):
            reader.fetch(0, timeout=0)

    with pytest.raises(ConnectionFailed) as caught:
        fetch_often()
    error = caught.value
    assert error.attempts == len(author.calls) == 3
    assert error.what == "fetch failed after 3 attempts in 0.0 s: the broker is away"
    assert (error.stream, error.partition, error.offset) == (
        "script:script",
        PARTITION_0,
        0,
    )


PAUSES = {"retry__initial__millis": "100", "retry__max__millis": "1000"}


def test_a_server_that_was_there_is_waited_for_by_time() -> None:
    clock = SimulatedClock()
    away = [ConnectionFailed("connection refused") for _ in range(12)]
    author = Author(rows(0, 1), *away, rows(1, 1))
    source = author.source(clock=clock, **PAUSES)
    reader = source.reader(PARTITION_0)
    assert reader.fetch(0, timeout=5).next_offset == 1
    before = clock.now()
    while not (batch := reader.fetch(1, timeout=1)).num_rows:
        assert batch.state is BatchState.IDLE
    assert batch.next_offset == 2
    assert 0 < clock.now() - before <= 30
    reader.close()
    source.close()


def test_a_server_that_stays_away_is_given_up_after_the_time_for_connecting() -> None:
    clock = SimulatedClock()
    away = [ConnectionFailed("connection refused") for _ in range(500)]
    author = Author(rows(0, 1), *away)
    source = author.source(clock=clock, **PAUSES)
    reader = source.reader(PARTITION_0)
    reader.fetch(0, timeout=5)
    before = clock.now()

    def fetch_on() -> None:
        for _ in range(1000):
            reader.fetch(1, timeout=1)

    with pytest.raises(ConnectionFailed, match=r"fetch failed after \d+ attempts in "):
        fetch_on()
    assert 30 <= clock.now() - before < 45
    reader.close()
    source.close()


def test_a_server_that_starts_later_is_waited_for_by_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SimulatedClock()
    author = Author(rows(0, 1))
    author.refusals.extend(ConnectionFailed("connection refused") for _ in range(12))
    source = author.source(clock=clock, **PAUSES)
    before = clock.now()
    with caplog.at_level(logging.WARNING, logger="streamfactory"):
        assert len(source.metadata.partitions()) == 1
    assert author.looked_up == 13
    assert 0 < clock.now() - before <= 30
    [warning] = caplog.messages
    assert warning.endswith("retrying for 30 s (connection.timeout.millis)")
    source.close()


def test_a_wrong_address_is_given_up_after_the_time_for_connecting() -> None:
    clock = SimulatedClock()
    away = [ConnectionFailed("connection refused") for _ in range(500)]
    source = Author(*away).source(clock=clock, **PAUSES)
    reader = source.reader(PARTITION_0)
    before = clock.now()

    def fetch_on() -> None:
        for _ in range(1000):
            reader.fetch(0, timeout=1)

    with pytest.raises(ConnectionFailed, match=r"fetch failed after \d+ attempts in "):
        fetch_on()
    assert 30 <= clock.now() - before < 45
    reader.close()
    source.close()


def test_only_failures_to_connect_are_retried_by_time() -> None:
    source = Author().source()
    away, late = ConnectionFailed("connection refused"), StreamTimeout("no answer")
    assert not source.guard.gives_up(away, failures=5, elapsed=0.5)
    assert source.guard.gives_up(away, failures=5, elapsed=30.0)
    assert source.guard.gives_up(late, failures=5, elapsed=0.5)
    source.close()
    source = Author().source(retry__max__attempts="5")
    assert source.guard.gives_up(away, failures=5, elapsed=0.5)
    source.close()


def test_success_begins_a_new_count(reader_of: Readers) -> None:
    away = [ConnectionFailed("away") for _ in range(4)]
    author = Author(away[0], rows(0, 1), away[1], rows(1, 1), away[2], rows(2, 1))
    reader = reader_of(author, retry__max__attempts="2")
    assert [reader.fetch(n, timeout=5).next_offset for n in range(3)] == [1, 2, 3]


def test_short_fetches_do_not_hammer_a_source_that_fails() -> None:
    clock = SimulatedClock()
    author = Author(*[ConnectionFailed("away") for _ in range(50)])
    source = author.source(
        clock=clock,
        retry__initial__millis="3600000",
        retry__max__millis="3600000",
        retry__max__attempts="50",
    )
    reader = source.reader(PARTITION_0)
    states = {reader.fetch(0, timeout=0).state for _ in range(100)}
    assert states == {BatchState.IDLE}
    assert len(author.calls) < 5
    reader.close()
    source.close()


@pytest.mark.parametrize(
    "error", [PermanentError("no"), NotAuthorized("no"), ClientError("no")]
)
def test_permanent_trouble_is_raised_at_once(
    reader_of: Readers, error: Exception
) -> None:
    author = Author(error, rows(0, 1))
    reader = reader_of(author)
    with pytest.raises(StreamError):
        reader.fetch(0)
    assert (len(author.calls), author.open_consumers) == (1, 0)
    assert reader.fetch(0).num_rows == 1


def test_interrupted_fetch_drops_its_consumer(reader_of: Readers) -> None:
    def interrupt(*_: object) -> Fetched:
        raise KeyboardInterrupt

    author = Author(interrupt, rows(0, 1))
    reader = reader_of(author)
    with pytest.raises(KeyboardInterrupt):
        reader.fetch(0)
    assert author.open_consumers == 0
    assert reader.fetch(0).num_rows == 1


# --- translation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientError("401"), NotAuthorized),
        (BrokenPipeError("gone"), ConnectionFailed),
        (TimeoutError("slow"), StreamTimeout),
        (KeyError("topic"), UntranslatedError),
    ],
)
def test_foreign_exceptions_are_translated(
    reader_of: Readers, error: Exception, kind: type[StreamError]
) -> None:
    author = Author(error, translate=ErrorTable({ClientError: NotAuthorized}))
    with pytest.raises(StreamError) as caught:
        reader_of(author, retry__max__attempts="1").fetch(7)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is error
    assert caught.value.cause_text == f"{type(error).__name__}: {error}"
    assert (caught.value.partition, caught.value.offset) == (PARTITION_0, 7)


class PanicException(BaseException):
    """As a library in Rust raises it."""


def test_panics_of_libraries_are_translated_and_interrupts_are_not(
    reader_of: Readers,
) -> None:
    with pytest.raises(UntranslatedError, match="raised PanicException: no runtime"):
        reader_of(Author(PanicException("no runtime"))).fetch(0)
    for ends in (KeyboardInterrupt(), SystemExit(1)):
        with pytest.raises(type(ends)):
            reader_of(Author(ends)).fetch(0)


def test_factory_that_fails_foreignly_is_translated(reader_of: Readers) -> None:
    author = Author()

    def creating(_: object) -> None:
        msg = "no such shard"
        raise ClientError(msg)

    author.creating = creating
    with pytest.raises(UntranslatedError) as caught:
        reader_of(author).fetch(0)
    assert caught.value.what == "the plug-in raised ClientError: no such shard"


# --- masking --------------------------------------------------------------------------


def leaking(kind: str) -> Exception:
    text = f"sasl.password={SECRET} was refused"
    if kind == "foreign":
        return ClientError(text)
    if kind == "ours":
        return ConnectionFailed(text, remedy=f"do not use {SECRET}")
    outer = ConnectionFailed("cannot connect")
    outer.__cause__ = ClientError(text) if kind == "foreign cause" else None
    if kind == "our cause":
        outer.__cause__ = NotAuthorized(text)
    return outer


@pytest.mark.parametrize("kind", ["foreign", "ours", "foreign cause", "our cause"])
def test_secret_is_masked_in_all_that_an_error_carries(
    reader_of: Readers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    options = {"stream__script__password": "${env:PASSWORD}"}
    author = Author(leaking(kind))
    with pytest.raises(StreamError) as caught:
        reader_of(author, retry__max__attempts="1", **options).fetch(0)
    error = caught.value
    shown = [str(error), repr(error), str(error.to_dict()), str(error.cause_text)]
    assert not any(SECRET in text for text in shown)
    assert SECRET.encode() not in pickle.dumps(error)
    assert b"***" in pickle.dumps(error)


def test_secret_is_masked_in_the_log(
    reader_of: Readers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    caplog.set_level(logging.DEBUG, "streamfactory")
    author = Author(leaking("ours"), rows(0, 1))
    reader = reader_of(author, stream__script__password="${env:PASSWORD}")
    reader.fetch(0, timeout=5)

    def failing() -> None:
        msg = f"goodbye {SECRET}"
        raise ClientError(msg)

    author.made[-1].close = failing  # type: ignore[method-assign]
    reader.close()
    assert "retrying" in caplog.text
    assert "closing the consumer failed" in caplog.text
    assert SECRET not in caplog.text


# --- pickling -------------------------------------------------------------------------


def state_of(error: StreamError) -> dict[str, Any]:
    return {**error.__dict__, "text": str(error), "type": type(error)}


def raised_by(reader: Reader, **how: Any) -> StreamError:
    with pytest.raises(StreamError) as caught:
        reader.fetch(5, **how)
    return caught.value


def test_errors_cross_processes_with_all_that_they_say(reader_of: Readers) -> None:
    gone = Author()
    gone.bounds(10, 20)
    errors = [
        raised_by(reader_of(gone)),
        raised_by(reader_of(Author(ClientError("x"))), timeout=1),
        raised_by(
            reader_of(Author(ConnectionFailed("x")), retry__max__attempts="1"),
        ),
        raised_by(
            reader_of(Author(ConnectionError("x")), retry__max__attempts="1"),
        ),
    ]
    gone.refusals.extend([ConnectionFailed("metadata")] * 9)
    errors.append(raised_by(reader_of(gone, retry__max__attempts="3")))
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert state_of(copy) == state_of(error)
    kinds = [OffsetOutOfRange, UntranslatedError, *[ConnectionFailed] * 3]
    assert [type(error) for error in errors] == kinds


def test_error_of_a_change_crosses_processes() -> None:
    error = IncarnationChanged(
        "changed", expected="a", found="b", partition=PARTITION_0
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.expected, copy.found, copy.partition) == ("a", "b", PARTITION_0)


def test_final_error_keeps_its_first_cause_and_is_not_its_own(
    reader_of: Readers,
) -> None:
    first = ConnectionError("refused")
    error = raised_by(reader_of(Author(first), retry__max__attempts="1"))
    assert error.__cause__ is first
    ours = raised_by(reader_of(Author(ConnectionFailed("x")), retry__max__attempts="1"))
    assert ours.__cause__ is None
    assert isinstance(ours, TransientError)


def test_batches_cross_processes(reader_of: Readers) -> None:
    batch = MessageBatch(
        PARTITION_0,
        ids(4, 5),
        4,
        6,
        BatchState.DATA,
        latest=9,
        losses=(Loss(PARTITION_0, 1, 4, "retention"),),
        end=Cancelled("a test"),
    )
    copy = pickle.loads(pickle.dumps(batch))
    for field in fields(batch):
        assert getattr(copy, field.name) == getattr(batch, field.name)
    read = reader_of(Author(rows(0, 2))).fetch(0)
    assert pickle.loads(pickle.dumps(read)) == read
    assert pickle.loads(pickle.dumps(envelopes(b"x").rows)) == envelopes(b"x").rows


def test_configuration_crosses_processes_with_its_secret_by_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    source = Author().source(stream__script__password="${env:PASSWORD}")
    dumped = pickle.dumps(source.config)
    source.close()
    assert SECRET.encode() not in dumped
    copy = pickle.loads(dumped)
    assert copy == source.config
    assert copy["password"] == SECRET


# --- secrets that were replaced -------------------------------------------------------


class Rotated:
    """A scheme of references whose value is another one at each look-up."""

    asked = 0

    def look_up(self, _what: str, _seconds: float) -> ResolvedReference:
        self.asked += 1
        return ResolvedReference(f"secret-{self.asked}", 60.0)

    @hookimpl
    def streamfactory_reference(self) -> ReferenceScheme:
        return remote_scheme("rotated", self.look_up)


@pytest.fixture
def rotated() -> Iterator[Rotated]:
    scheme = Rotated()
    default_manager().register(scheme)
    yield scheme
    default_manager().unregister(REFERENCES, "rotated")
    forget("${rotated:key}")


def test_refused_reader_tries_once_more_with_secrets_that_are_looked_up_again(
    reader_of: Readers, rotated: Rotated
) -> None:
    refused = [NotAuthorized("secret-1 is refused") for _ in range(4)]
    author = Author(refused[0], rows(0, 3), refused[1], refused[2])
    seen = []
    author.creating = lambda _: seen.append(resolve("${rotated:key}"))
    reader = reader_of(author, group__id="${rotated:key}")
    assert reader.fetch(0, timeout=5).num_rows == 3
    assert seen == ["secret-1", "secret-2"]
    with pytest.raises(NotAuthorized) as caught:
        reader.fetch(3, timeout=5)
    assert "secret" not in str(caught.value).replace("***", "")
    assert (seen[-1], rotated.asked) == ("secret-3", 3)


def test_refused_call_is_repeated_once_with_secrets_that_are_looked_up_again(
    rotated: Rotated,
) -> None:
    author = Author()
    author.refusals.extend(NotAuthorized("no") for _ in range(3))
    source = author.source(group__id="${rotated:key}")
    with pytest.raises(NotAuthorized):
        source.metadata.partitions()
    assert len(author.refusals) == 1
    assert rotated.asked <= 2
    source.close()


def test_refused_reader_without_secrets_to_look_up_fails_at_once(
    reader_of: Readers,
) -> None:
    author = Author(NotAuthorized("no"), rows(0, 3))
    with pytest.raises(NotAuthorized):
        reader_of(author).fetch(0, timeout=5)
    assert len(author.made) == 1
