"""Schemes of references: deadlines, values that are kept, renewal, and masks."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spi import (
    BrokenPlugin,
    ConfigError,
    ConnectionFailed,
    ContractBroken,
    NotAuthorized,
    StreamConfig,
    StreamError,
    StreamTimeout,
)
from streamfactory.spi.config import Setting
from streamfactory.spi.hooks import (
    REFERENCES,
    ReferenceScheme,
    ResolvedReference,
    hookimpl,
)
from streamfactory.spi.references import (
    MAX_RESOLVED,
    forget,
    malformed,
    resolve,
    values_to_mask,
)
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.references import lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = itertools.count()


class Scheme:
    """A plug-in with one scheme of a new name."""

    def __init__(self, answer: Callable[[str, float], Any], **fields: Any) -> None:
        self.name = f"test{next(COUNT)}"
        self.asked: list[str] = []
        self.answer = answer
        self.fields = {"remote": True, "timeout_seconds": 5.0, **fields}

    def look_up(self, what: str, seconds: float) -> Any:
        self.asked.append(what)
        return self.answer(what, seconds)

    def of(self, what: str) -> str:
        return f"${{{self.name}:{what}}}"

    @hookimpl
    def streamfactory_reference(self) -> ReferenceScheme:
        return ReferenceScheme(
            **{
                "name": self.name,
                "doc": "For tests.",
                "spi_level": 1,
                "example": self.of("WHAT"),
                "lookup": self.look_up,
                **self.fields,
            }
        )


@pytest.fixture
def add() -> Iterator[Callable[..., Scheme]]:
    added = []

    def add_(answer: Any, **fields: Any) -> Scheme:
        scheme = Scheme(answer, **fields)
        default_manager().register(scheme)
        added.append(scheme.name)
        return scheme

    yield add_
    for name in added:
        default_manager().unregister(REFERENCES, name)


def kept(value: str, seconds: float = 60.0) -> Callable[[str, float], Any]:
    return lambda _what, _seconds: ResolvedReference(value, seconds)


def test_kept_value_is_looked_up_once_by_many_threads(add: Any) -> None:
    def slowly(_what: str, _seconds: float) -> ResolvedReference:
        time.sleep(0.05)
        return ResolvedReference("hunter22", 60.0)

    scheme, found = add(slowly), list[str]()
    threads = [
        threading.Thread(target=lambda: found.append(resolve(scheme.of("a"))))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["hunter22"] * 16
    assert scheme.asked == ["a"]


def test_value_is_looked_up_again_after_its_time_and_after_a_refusal(add: Any) -> None:
    values = iter(["one", "two", "three"])
    scheme = add(lambda *_: ResolvedReference(next(values), 0.02))
    assert resolve(scheme.of("a")) == "one"
    time.sleep(0.03)
    assert resolve(scheme.of("a")) == "two"
    time.sleep(0.03)
    assert forget(scheme.of("a"))  # a client was created with it, and was refused now
    numbers = itertools.count(1)
    long = add(lambda *_: ResolvedReference(f"v{next(numbers)}", 60.0))
    assert resolve(f"{long.of('a')}{long.of('a')}") == "v1v1"
    assert not forget(long.of("never looked up"))
    assert forget(long.of("a"))
    assert forget(long.of("a"))  # by the second of two readers that are refused
    assert resolve(long.of("a")) == "v2"
    assert not forget("${env:HOME}")


def test_lookup_that_hangs_is_left_at_its_deadline(add: Any) -> None:
    release = threading.Event()
    scheme = add(
        lambda *_: ResolvedReference(str(release.wait(30))), timeout_seconds=0.1
    )
    started = time.monotonic()
    for _ in range(3):
        with pytest.raises(StreamTimeout, match=r"did not answer in 0\.1 s") as caught:
            resolve(scheme.of("a"))
        assert caught.value.retryable
    assert time.monotonic() - started < 5
    release.set()
    assert scheme.asked == ["a"]  # the three waited for the same one


def test_lookup_without_a_thread_is_retried(
    add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    scheme = add(kept("hunter22"))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ConnectionFailed, match="no thread can be started"):
            resolve(scheme.of("a"))
    assert resolve(scheme.of("a")) == "hunter22"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("there is no key x"), ConfigError),
        (NotAuthorized("the token may not read it"), NotAuthorized),
        (ConnectionRefusedError("secret hunter22"), ConnectionFailed),
        (TimeoutError("secret hunter22"), StreamTimeout),
        (RuntimeError("secret hunter22"), ContractBroken),
        (SystemExit("secret hunter22"), ContractBroken),
    ],
)
@pytest.mark.parametrize("remote", [True, False])
def test_errors_of_a_scheme_are_typed_and_quote_no_foreign_text(
    add: Any, error: BaseException, kind: type[StreamError], *, remote: bool
) -> None:
    def fail(*_: Any) -> None:
        raise error

    scheme = add(fail, remote=remote)
    with pytest.raises(kind) as caught:
        resolve(scheme.of("a#b"))
    assert str(caught.value).startswith(f"{scheme.of('a#b')} cannot be resolved: ")
    assert "hunter22" not in str(caught.value)
    with pytest.raises(kind):  # a failure is not kept
        resolve(scheme.of("a#b"))
    assert len(scheme.asked) == 2
    first = resolve_error(scheme.of("a#b"))
    assert str(first).count("cannot be resolved") == 1


def resolve_error(text: str) -> StreamError:
    with pytest.raises(StreamError) as caught:
        resolve(text)
    return caught.value


@pytest.mark.parametrize("answer", [None, "plain", ResolvedReference(b"x")])  # type: ignore[arg-type]
def test_answer_of_another_kind_breaks_the_contract(add: Any, answer: Any) -> None:
    scheme = add(lambda *_: answer)
    with pytest.raises(ContractBroken, match="expected a ResolvedReference with text"):
        resolve(scheme.of("a"))


def test_time_that_is_no_number_breaks_the_contract(add: Any) -> None:
    scheme = add(lambda *_: ResolvedReference("x", "60"))  # type: ignore[arg-type]
    with pytest.raises(ContractBroken, match="keep_seconds is a str"):
        resolve(scheme.of("a"))


def test_value_that_is_too_long_is_not_kept(add: Any) -> None:
    scheme = add(kept("x" * (MAX_RESOLVED + 1)))
    for _ in range(2):
        with pytest.raises(ConfigError, match="longer than 1 MiB"):
            resolve(scheme.of("a"))
    assert scheme.asked == ["a", "a"]
    assert values_to_mask(scheme.of("a")) == set()


def test_masks_know_values_of_the_past_and_ask_for_none(add: Any) -> None:
    numbers = itertools.count(1)
    scheme = add(lambda *_: ResolvedReference(f"hunter-{next(numbers)}", 60.0))
    config = StreamConfig(
        name="s",
        type="t",
        settings={"password": Setting("password", "p", scheme.of("a"), None, "", True)},
    )
    assert config.mask("hunter-1") == "hunter-1"
    assert scheme.asked == []
    assert config["password"] == "hunter-1"
    assert config.renew()
    assert config["password"] == "hunter-2"
    assert config.mask("hunter-1 hunter-2 hunter-3") == "*** *** hunter-3"
    assert values_to_mask(scheme.of("a")) == {"hunter-1", "hunter-2"}
    assert b"hunter" not in pickle.dumps(config)
    assert "hunter" not in repr(config) + repr(lookup._kept)


def test_unknown_scheme_names_those_that_there_are(add: Any) -> None:
    assert malformed("${evn:A}") == (
        "${evn:A} is not a reference: unknown reference scheme 'evn'; known are env, "
        "file; did you mean 'env'?"
    )
    scheme = add(kept("x"))
    what = malformed("${nothing-like-it:A}")
    assert what is not None
    assert scheme.name in what
    assert "write ${env:NAME} or ${file:PATH}" in what


def test_validation_looks_up_no_secret_and_reports_what_cannot_be_reached(
    add: Any,
) -> None:
    def away(*_: Any) -> None:
        raise ConnectionRefusedError

    scheme = add(away)
    result = inspect(
        from_mapping(
            {
                "streamType": "flight",
                "stream.flight.topic.name": scheme.of("topic"),
                "stream.flight.location": "grpc://localhost:1",
                "stream.flight.token": scheme.of("token"),
            }
        ),
        default_manager(),
    )
    assert set(scheme.asked) == {"topic"}
    (found,) = (p for p in result.problems if "topic.name" in p.key)
    reason = f"{scheme.of('topic')} cannot be resolved: ConnectionRefusedError"
    assert found.what == reason
    assert found.suggestion == "it has to be resolved where the stream is used"
    assert found.level == "warning"


def test_validation_waits_once_for_a_server_that_is_silent(add: Any) -> None:
    silent = threading.Event()

    def hangs(_what: str, seconds: float) -> None:
        silent.wait(seconds)
        raise TimeoutError

    for scheme in (
        add(hangs, timeout_seconds=0.5),  # it keeps its deadline
        add(lambda *_: silent.wait(60), timeout_seconds=0.5),
    ):
        values = {f"stream.kafka.consumer.prop.x{n}": scheme.of(f"{n}") for n in "abc"}
        values |= {
            "stream.kafka.topic.name": scheme.of("topic"),
            "stream.kafka.broker.list": scheme.of("brokers"),
            "retry.initial.millis": scheme.of("millis"),
            "decode.on.error": scheme.of("policy"),
        }
        result = inspect(
            from_mapping({"streamType": "kafka", **values}), default_manager()
        )
        shown = [p for p in result.problems if "did not answer" in p.what]
        shown += [p for p in result.problems if "TimeoutError" in p.what]
        assert len(shown) >= 4
        assert len(scheme.asked) == 1
        time.sleep(0.6)
        with pytest.raises(StreamTimeout):  # asked again, after as long again
            resolve(scheme.of("topic"))
        assert len(scheme.asked) == 2
    silent.set()


def test_scheme_that_answers_again_is_asked_for_everything(add: Any) -> None:
    release = threading.Event()

    def slowly(what: str, _seconds: float) -> ResolvedReference:
        release.wait(30)
        return ResolvedReference(f"hunter-{what}", 60.0)

    scheme = add(slowly, timeout_seconds=0.3)
    with pytest.raises(StreamTimeout):
        resolve(scheme.of("a"))
    with pytest.raises(StreamTimeout):
        resolve(scheme.of("b"))
    assert scheme.asked == ["a"]
    release.set()
    deadline = time.monotonic() + 30
    while not values_to_mask(scheme.of("a")):  # the look-up that was left has returned
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert resolve(scheme.of("a")) == "hunter-a"
    assert resolve(scheme.of("b")) == "hunter-b"
    assert scheme.asked == ["a", "b"]


def test_lookup_that_never_returns_blocks_no_other_one(add: Any) -> None:
    release = threading.Event()
    answers = iter([True, True, True, True])

    def stuck(_what: str, _seconds: float) -> ResolvedReference:
        if next(answers, False):
            release.wait(60)
        return ResolvedReference("hunter22", 60.0)

    scheme = add(stuck, timeout_seconds=0.05)
    deadline = time.monotonic() + 30
    while len(scheme.asked) < 3:
        assert time.monotonic() < deadline
        with pytest.raises(StreamTimeout):
            resolve(scheme.of("a"))
    for _ in range(5):  # three threads of one reference wait, and no more
        time.sleep(0.11)
        with pytest.raises(StreamTimeout):
            resolve(scheme.of("a"))
    assert len(scheme.asked) == 3
    release.set()
    found = ""
    while not found:
        assert time.monotonic() < deadline
        with suppress(StreamTimeout):
            found = resolve(scheme.of("a"))
    assert found == "hunter22"


def test_descriptor_that_cannot_work_is_refused() -> None:
    for fields, what in (
        ({"example": "${other:X}"}, "which is not one of its references"),
        ({"timeout_seconds": 0.0}, "has a timeout of 0.0 s"),
        ({"timeout_seconds": 3600.0}, "has a timeout of 3600.0 s"),
    ):
        with pytest.raises(BrokenPlugin, match=what):
            PluginManager().register(Scheme(kept("x"), **fields))


def test_list_of_allowed_plugins_leaves_the_schemes_of_the_framework() -> None:
    manager = PluginManager({"STREAMFACTORY_PLUGINS_ALLOW": "kafka"})
    assert manager.scheme("env").name == "env"
    blocked = PluginManager({"STREAMFACTORY_PLUGINS_BLOCK": "file"})
    with pytest.raises(StreamError, match="'file' is blocked"):
        blocked.scheme("file")


def test_configuration_resolves_where_only_the_contract_was_imported() -> None:
    config = StreamConfig(
        name="s",
        type="t",
        settings={"a": Setting("a", "a", "${env:ONLY_THERE}", None, "", True)},
    )
    code = (
        "import sys, pickle; config = pickle.loads(sys.stdin.buffer.read()); "
        "assert 'streamfactory.wiring' not in sys.modules; print(config['a'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(config),
        env={**os.environ, "ONLY_THERE": "there"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == [b"there"]


def test_child_of_a_fork_looks_up_what_its_parent_waits_for(add: Any) -> None:
    release, parent = threading.Event(), os.getpid()

    def in_parent_forever(*_: Any) -> ResolvedReference:
        if os.getpid() == parent:
            release.wait(30)
        return ResolvedReference("there", 60.0)

    scheme = add(in_parent_forever, timeout_seconds=10.0)
    waiting = threading.Thread(target=lambda: resolve(scheme.of("a")))
    waiting.start()
    while not scheme.asked:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        os._exit(0 if resolve(scheme.of("a")) == "there" else 1)
    release.set()
    waiting.join()
    assert os.waitpid(child, 0)[1] == 0
