"""Rules over several options: the stream type's own, and the guarantee."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from streamfactory.backends.memory.reading import MemoryConsumerFactory
from streamfactory.backends.memory.writing import MemoryProducerFactory
from streamfactory.spi import (
    BOOLEAN,
    Backend,
    ConfigError,
    Option,
    Problem,
    Role,
    StreamConfig,
    hookimpl,
)
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import StreamDefinition, from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.config.crosschecks import Checked

ASKED: list[Role | None] = []
"""The roles that the rules of `ruled` were called with."""


def rules(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    ASKED.append(role)
    if config["odd"] and config["even"]:
        yield config.problem("odd", "excludes even", "keep one of them")
    if config.given("hint"):
        yield config.problem("hint", "has no effect", level="warning")
    if config.get("hint") == "crash":
        msg = "oh"
        raise ZeroDivisionError(msg)


class Ruled:
    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(
            name="ruled",
            doc="For tests.",
            spi_level=1,
            options=(
                Option("odd", "One.", BOOLEAN, default="false"),
                Option("even", "Other.", BOOLEAN, default="false"),
                Option("hint", "Third."),
            ),
            consumer_factory=MemoryConsumerFactory,
            producer_factory=MemoryProducerFactory,
            check_options=rules,
        )


@pytest.fixture
def plugins() -> PluginManager:
    manager = PluginManager()
    manager.register(Ruled())
    ASKED.clear()
    return manager


def ruled(**options: str) -> StreamDefinition:
    own = {f"stream.ruled.{key}": text for key, text in options.items()}
    topic = {"stream.ruled.topic.name": "t"}
    return from_mapping({"streamType": "ruled", **topic, **own})


def found(definition: StreamDefinition, use: str | None = None) -> Checked:
    return inspect(definition, default_manager(), use=use)


def of(kind: str, /, **options: str) -> StreamDefinition:
    """A definition, with ``__`` for a dot; ``x_`` begins a word of the framework."""
    given = {"streamType": kind}
    for key, value in options.items():
        name = key.replace("__", ".")
        own = not name.startswith("x_")
        given[f"stream.{kind}.{name}" if own else name.removeprefix("x_")] = value
    return from_mapping(given)


def problem_texts(inspection: Checked) -> list[str]:
    """Every problem with its level, without its origin."""
    return [
        f"{p.level}: {p}".removesuffix(f" [{p.origin}]") for p in inspection.problems
    ]


# --- the hook -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "role"),
    [("read", Role.READ), ("write", Role.WRITE), ("spark", None), (None, None)],
)
def test_rules_are_called_with_the_role(
    plugins: PluginManager, use: str | None, role: Role | None
) -> None:
    result = inspect(ruled(odd="true", even="true"), plugins, use=use)
    assert [role] == ASKED
    assert result.config is None
    assert [str(problem) for problem in result.errors] == [
        "stream.ruled.odd: excludes even; keep one of them [argument]"
    ]


def test_a_role_on_spark_can_be_said(plugins: PluginManager) -> None:
    inspect(ruled(), plugins, use="spark", role=Role.WRITE)
    assert ASKED == [Role.WRITE]


def test_a_warning_of_a_rule_forbids_nothing(plugins: PluginManager) -> None:
    result = inspect(ruled(hint="x"), plugins)
    assert result.config is not None
    assert [str(one) for one in result.config.warnings] == [
        "stream.ruled.hint: has no effect [argument]"
    ]


def test_rules_are_called_only_where_every_option_is_valid(
    plugins: PluginManager,
) -> None:
    result = inspect(ruled(odd="perhaps", even="true"), plugins)
    assert ASKED == []
    assert len(result.errors) == 1


def test_rules_are_not_called_without_a_value_of_each_reference(
    plugins: PluginManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SURELY_NOT_SET", raising=False)
    result = inspect(ruled(odd="${env:SURELY_NOT_SET}", even="true"), plugins)
    assert ASKED == []
    assert (result.errors, len(result.warnings)) == ([], 1)


def test_a_rule_that_fails_is_a_problem_of_its_type(plugins: PluginManager) -> None:
    assert problem_texts(inspect(ruled(hint="crash"), plugins)) == [
        (
            "error: stream.ruled: checking its options failed: ZeroDivisionError: oh; "
            "report it to the author of the stream type 'ruled'"
        )
    ]


def test_opening_runs_the_rules_and_logs_their_warnings(
    plugins: PluginManager, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_stream(ruled(odd="true", even="true"), plugins=plugins)
    assert "excludes even" in str(caught.value)
    with pytest.raises(ConfigError):
        open_sink(ruled(odd="true", even="true"), plugins=plugins)
    with caplog.at_level(logging.WARNING):
        open_sink(ruled(hint="x"), plugins=plugins).close()
    assert "stream.ruled.hint: has no effect [argument]" in caplog.text


def test_an_option_for_another_use_is_a_warning_where_it_was_given_for_this_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "schema": "id bigint",
    }
    reading = {"stream.file.idle.timeout.millis": "7"}
    file = StreamDefinition.of("t", {**given, **reading}, origin="t.toml")
    with caplog.at_level(logging.WARNING):
        open_sink(file).close()
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        open_sink(given, options=reading).close()
        open_sink(given, options=reading).close()
    what = "idle.timeout.millis: has no effect here: it applies to read"
    assert caplog.text.count(what) == 1, "once in a process"


# --- the built-in types ---------------------------------------------------------------

BROKER = {"broker__list": "localhost:9092", "decoder__class__name": "raw"}


@pytest.mark.parametrize(
    ("definition", "problems"),
    [
        pytest.param(
            of("socket"),
            ["error: stream.socket.listen: or connect is required; set one of them"],
            id="a socket without an address",
        ),
        pytest.param(
            of("socket", listen="127.0.0.1:1", connect="127.0.0.1:2"),
            ["error: stream.socket.listen: excludes connect; set one of them"],
            id="a socket with both addresses",
        ),
        pytest.param(
            of("socket", connect="127.0.0.1:1", schema__timeout__millis="1s"),
            [
                (
                    "warning: stream.socket.schema.timeout.millis: has no effect "
                    "without listen: it applies to accepted connections"
                )
            ],
            id="a deadline for nobody",
        ),
        pytest.param(
            of("socket", listen="127.0.0.1:1", tls__ca="/ca.pem"),
            ["warning: stream.socket.tls.ca: has no effect without tls=true"],
            id="certificates without TLS",
        ),
        pytest.param(
            of("file", path="/data", fsync__interval__millis="2s"),
            [
                (
                    "warning: stream.file.fsync.interval.millis: has no effect without "
                    "fsync=interval"
                )
            ],
            id="an interval without fsync=interval",
        ),
        pytest.param(
            of("file", path="/data", storage__region="eu"),
            [
                (
                    "warning: stream.file.storage.region: has no effect: path is not "
                    "in an object store"
                )
            ],
            id="a region of a folder",
        ),
        pytest.param(
            of("file", path="gs://b/x", storage__region="eu"),
            [
                (
                    "error: stream.file.storage.region: has no effect for gs://; "
                    "omit it, or check path"
                )
            ],
            id="a region of another store",
        ),
        pytest.param(
            of("file", path="/data", names="*.arrow"),
            [
                (
                    "warning: stream.file.names: has no effect with format=log: it "
                    "applies to files of other programs"
                )
            ],
            id="names of foreign files for a log",
        ),
        pytest.param(
            of("file", path="/data", format="stream", segment__format="parquet"),
            [
                (
                    "warning: stream.file.segment.format: has no effect with "
                    "format=stream: it applies to topics"
                )
            ],
            id="the segments of a log for foreign files",
        ),
        pytest.param(
            of(
                "kafka",
                **BROKER,
                topic__name="t",
                isolation__level="read_committed",
                consumer__prop__isolation__level="read_uncommitted",
            ),
            [
                (
                    "error: stream.kafka.isolation.level: 'read_committed' disagrees "
                    "with stream.kafka.consumer.prop.isolation.level; set it once"
                )
            ],
            id="two isolation levels",
        ),
        pytest.param(
            of(
                "kafka",
                **BROKER,
                consumer__type="highlevel",
                x_group__id="g",
                x_assign='{"t": [0]}',
            ),
            [
                (
                    "error: assign: is not supported in a group: Kafka assigns "
                    "partitions to its members; set topic.name, subscribe or "
                    "subscribePattern"
                )
            ],
            id="assigned partitions of a group",
        ),
        pytest.param(
            of(
                "kafka",
                **BROKER,
                topic__name="t",
                commit__mode="task",
                staging__age__millis="2d",
            ),
            [
                (
                    "warning: stream.kafka.staging.age.millis: has no effect with "
                    "commit.mode=task: no rows are staged"
                )
            ],
            id="staging without stages",
        ),
    ],
)
def test_options_of_built_in_types_are_held_against_one_another(
    definition: StreamDefinition, problems: list[str]
) -> None:
    assert problem_texts(found(definition)) == problems


# --- guarantees -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "refused"),
    [
        (of("socket", listen="127.0.0.1:1", x_guarantee="at-least-once"), True),
        (of("socket", listen="127.0.0.1:1", x_guarantee="at-most-once"), False),
        (of("memory", topic__name="t", x_guarantee="exactly-once"), False),
        (of("file", path="/data", x_guarantee="exactly-once"), False),
        (
            of(
                "file",
                path="/data",
                fsync="never",
                x_guarantee="exactly-once",
                x_out__of__range="latest",
            ),
            True,
        ),
    ],
)
def test_a_guarantee_that_no_use_can_give_is_refused_offline(
    definition: StreamDefinition, *, refused: bool
) -> None:
    errors = found(definition).errors
    assert [problem.key for problem in errors] == ["guarantee"] * refused
    if refused:
        assert "is required, but this stream has as a source at-most-once: " in str(
            errors[0]
        )


def test_a_role_in_which_the_guarantee_is_refused_is_named() -> None:
    words = {"x_guarantee": "exactly-once", "x_out__of__range": "earliest"}
    checked = found(of("file", path="/data", **words))
    assert not checked.errors
    (warning,) = checked.warnings
    assert warning.key == "guarantee"
    assert warning.what.startswith("exactly-once is required, but this stream has as a")
    assert warning.what.endswith("it is refused as a source")
