"""R10, R11: secrets, deadlines, what is not there, and what crosses a process."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.bench import BYTES
from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import (
    Excluded,
    expect,
    expect_error,
    require,
)
from streamfactory.conformance.harness import HasNowhere
from streamfactory.spi import (
    ErrorClass,
    FetchLimits,
    Partition,
    Position,
    StreamError,
    TopicNotFound,
    UntranslatedError,
)
from streamfactory.spi.references import resolve
from streamfactory.wiring.config.describing import effective
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamfactory.conformance.bench import Bench

_NEVER: Final = 2**31 - 1
"""Id of a partition that no stream has."""


# --- secrets --------------------------------------------------------------------


@case("R11", hint="a secret is kept resolved, or put into a message or a log record")
def a_referenced_secret_is_never_shown(bench: Bench) -> None:
    """The value behind ${env:...} is in no text, pickle, error or log record."""
    keys = _secret_keys(bench)
    bench.create(messages=3)
    planted, environment = {}, {}
    for index, key in enumerate(keys):
        name = f"CONFORMANCE_{uuid.uuid4().hex}_{index}"
        environment[name] = _value(bench, key)
        planted[key] = f"${{env:{name}}}"
    bench.note(f"plant {', '.join(keys)}")
    with _environment(environment), _log_records() as records:
        shown = _everything(bench, planted, pickles=True)
        _search([*shown, *records], environment.values())


@case("R11", hint="a message quotes what the configuration masks")
def a_literal_secret_is_masked(bench: Bench) -> None:
    """A secret in the clear is masked in every text, error and log record."""
    keys = _secret_keys(bench)
    bench.create(messages=3)
    planted = {key: _value(bench, key) for key in keys}
    with _log_records() as records:
        shown = _everything(bench, planted, pickles=False)
        _search([*shown, *records], planted.values())


def _secret_keys(bench: Bench) -> list[str]:
    prefix = f"stream.{bench.backend.name}."
    keys = [prefix + option.key for option in bench.backend.options if option.secret]
    spaces = sorted(bench.backend.client_namespaces)
    keys += [f"{prefix}{space}.prop.sasl.password" for space in spaces]
    owned = {key.lower() for key in bench.backend.owned_client_keys}
    if "sasl.password" in owned:
        keys = [key for key in keys if not key.endswith(".prop.sasl.password")]
    if not keys:
        msg = "no secrets: the type declares none, and has no client to pass one to"
        raise Excluded(msg)
    return keys


def _value(bench: Bench, key: str) -> str:
    """The secret that works, where the harness has one; else a made-up one."""
    given = bench.harness.properties().get(key)
    return f"planted-{uuid.uuid4().hex}" if given is None else resolve(given)


def _everything(
    bench: Bench, planted: Mapping[str, str], *, pickles: bool
) -> list[tuple[str, str]]:
    """All that a user can come to see, each with a name."""
    made = bench.configured(**planted)
    source = bench.closing(Source(made))
    number = bench.first()
    reader = bench.closing(source.reader(bench.partition(number)))
    things: dict[str, Any] = {
        "configuration": made.config,
        "configured stream": made,
        "effective values": effective(made.config),
        "factory": source.factory,
        "source": source,
        "metadata": source.metadata,
        "reader": reader,
        "position": Position({bench.partition(number): 0}).to_json(),
    }
    with contextlib.suppress(StreamError):  # who checks a made-up secret refuses it
        things["partitions"] = source.metadata.partitions()
        batch = reader.fetch(things["partitions"][0].earliest, timeout=1.0)
        things["batch"] = (batch.partition, batch.state, batch.incarnation)
    errors = _errors(bench, source, planted)
    things |= {f"error {index}": error for index, error in enumerate(errors)}
    texts = [
        (f"{how.__name__} of {name}", how(thing))
        for name, thing in things.items()
        for how in (repr, str)
    ]
    texts += [(f"to_dict of {error.code}", str(error.to_dict())) for error in errors]
    if pickles:
        for name in ("reader", "source", "metadata", "configured stream"):
            del things[name]  # these stay in their process
        texts += [
            (f"pickle of {name}", pickle.dumps(thing).decode("latin-1"))
            for name, thing in things.items()
        ]
    return texts


def _errors(
    bench: Bench, source: Source, planted: Mapping[str, str]
) -> list[StreamError]:
    """Errors of many kinds; some quote the secret, as a client's own do."""
    secrets = [resolve(text) for text in planted.values()]
    quoting = [OSError(f"login with {secret!r} refused") for secret in secrets]
    found = [source.guard.translate(error) for error in quoting]
    closed = source.reader(bench.partition(bench.first()))
    lost = bench.closing(source.reader(Partition(bench.topic, _NEVER)))
    closed.close()
    tries: list[Callable[[], Any]] = [
        lambda: closed.fetch(0),
        lambda: lost.fetch(0, timeout=0.1),
        lambda: bench.configured(**{f"{key}x": text for key, text in planted.items()}),
        lambda: _ask_nowhere(bench, planted),
    ]
    for attempt in tries:
        try:
            attempt()
        except StreamError as error:
            found.append(error)
    return found


def _search(texts: list[tuple[str, str]], secrets: Any) -> None:
    for secret in secrets:
        shown = [name for name, text in texts if secret in text]
        expect(shown, [], "where a secret shows")


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


@contextlib.contextmanager
def _log_records() -> Iterator[list[tuple[str, str]]]:
    """Every record of every logger, as a file would have it, tracebacks included."""
    found: list[tuple[str, str]] = []
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append((f"log of {record.name}", formatter.format(record)))

    root, keeper = logging.getLogger(), Keeper()
    level = root.level
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        root.removeHandler(keeper)
        root.setLevel(level)


# --- deadlines ------------------------------------------------------------------


@case("R1", hint="the time is given to each of several waits, or not at all")
def deadlines_are_honoured(bench: Bench) -> None:
    """Where nothing comes, author and Reader are back in their time, whatever it is."""
    number = bench.create()
    start = bench.infos()[number].earliest
    consumer = bench.consumer(number)
    for timeout in (0.0, 0.03, 0.12):
        limits = FetchLimits(100, BYTES, timeout)
        bench.note(f"author.fetch(timeout={timeout})")
        bench.within(
            timeout,
            f"the author's fetch within {timeout} s",
            partial(consumer.fetch_messages, start, None, limits),
        )
    reader = bench.reader(number)
    reader.fetch(start, timeout=0.0)  # which connects: that has a separate timeout
    for timeout in (0.0, 0.03, 0.12, 0.6):
        bench.note(f"reader.fetch(timeout={timeout})")
        bench.within(
            timeout,
            f"a fetch within {timeout} s",
            partial(reader.fetch, start, timeout=timeout),
        )


# --- what is not there ----------------------------------------------------------


@case("R10", hint="something is opened before what can fail, or is not given back")
def failing_constructors_leave_nothing_open(bench: Bench) -> None:
    """A consumer of a missing partition raises a typed error and leaks nothing."""
    bench.create(messages=3)
    source, factory = bench.source(), bench.factory()
    missing = Partition(bench.topic, _NEVER)
    for _ in range(3):
        try:
            consumer = factory.create_partition_level_consumer("conformance", missing)
        except Exception as error:  # noqa: BLE001 - the translation is what is tried
            _translated(source, error)
        else:
            bench.closing(consumer)
    reader = bench.closing(source.reader(missing))
    fetch = partial(reader.fetch, 0, timeout=0.2)
    found = expect_error(StreamError, "reading a missing partition", fetch)
    kinds = (ErrorClass.PERMANENT, ErrorClass.DATA_LOSS)
    require(found.error_class in kinds, f"a missing partition is {found!r}")


@case("M2", hint="an unknown topic is answered with no partitions, or made")
def an_unknown_topic_is_not_found(bench: Bench) -> None:
    """Asking for a topic that is not there is TopicNotFound; nothing is left open."""
    bench.create(messages=3)
    try:
        answer = _ask_nowhere(bench, {})
    except StreamError as error:
        require(isinstance(error, TopicNotFound), f"an unknown topic is {error!r}")
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        expect(str(copied), str(error), "the error after pickling")
        return
    if answer == len(bench.written) and not bench.has(HasNowhere):
        msg = "no ability: nowhere (topic.name is but a label here)"
        raise Excluded(msg)
    require(False, f"a topic that is not there answered {answer} partitions")


def _ask_nowhere(bench: Bench, options: Mapping[str, str]) -> int:
    key = f"stream.{bench.backend.name}.topic.name"
    elsewhere: Mapping[str, str] = {key: f"{bench.topic}-nowhere"}
    if bench.has(HasNowhere):
        elsewhere = bench.use(HasNowhere).nowhere()
    bench.note(f"metadata.partitions() with {elsewhere}")
    source = bench.closing(Source(bench.configured(**{**options, **elsewhere})))
    return len(source.metadata.partitions())


def _translated(source: Source, error: Exception) -> None:
    found = source.guard.translate(error)
    foreign = isinstance(found, UntranslatedError)
    require(not foreign, f"no translation for {type(error).__name__}: {error}")


# --- what crosses, and where it goes ----------------------------------------------


@case("R11", hint="something holds on to a connection, a lock, or a local class")
def objects_sent_to_processes_pickle(bench: Bench) -> None:
    """Configuration, partitions, batches and positions are the same after pickling."""
    number, source = bench.create(messages=5), bench.source()
    infos = source.metadata.partitions()
    reader = bench.closing(source.reader(bench.partition(number)))
    batch = reader.fetch(infos[0].earliest, timeout=1.0)
    here = Position({bench.partition(number): batch.next_offset})
    for thing in (source.config, infos, batch, here):
        copied = pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own
        expect(copied, thing, f"{type(thing).__name__} after pickling")
