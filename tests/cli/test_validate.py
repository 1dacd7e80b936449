# ruff: noqa: E501 - exact texts
"""Every mistake at once, offline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import Backend, ConsumerFactory, Option, StreamConfig, hookimpl
from streamfactory.spi.hooks import BACKENDS
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proving.commands import Outcome

MISTAKES = """\
name = "clicks"

[properties]
streamType = "guarded"
"stream.guarded.host" = "localhost"
"stream.guarded.linger" = "5s"
"stream.guarded.pasword" = "hunter1"
"stream.guarded.fetch.timeout.millis" = "soon"
"stream.guarded.password" = "hunter2"
"stream.memory.partitions" = 3
"out.of.range" = "latest"
failOnDataLoss = true
"""

EXPECTED = """\
clicks (mistakes.toml): 6 errors, 1 warning
  error: stream.guarded.linger: unknown option; did you mean stream.guarded.linger.millis? [mistakes.toml:6]
  error: stream.guarded.pasword: unknown option; did you mean stream.guarded.password? [mistakes.toml:7]
  error: stream.memory.partitions: unknown option; this stream is of type 'guarded' [mistakes.toml:10]
  error: out.of.range: is 'latest', but failOnDataLoss is 'true' [mistakes.toml:12]; keep one of them [mistakes.toml:11]
  error: stream.guarded.topic.name: is required; for example clicks
  error: stream.guarded.fetch.timeout.millis: 'soon' is not a duration: write 250ms, 30s, 5m, 4h30m, 1d, or plain milliseconds [mistakes.toml:8]
  warning: stream.guarded.password: contains a literal secret; write ${env:NAME} or ${file:PATH} [mistakes.toml:9]
"""

PROBLEM_KEYS = ["key", "what", "origin", "suggestion", "level"]


class NeverMade(ConsumerFactory):
    """Validation must not make it."""

    def __init__(self, config: StreamConfig) -> None:
        msg = "a factory was made"
        raise AssertionError(msg)


class Guarded:
    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(
            name="guarded",
            doc="For tests.",
            spi_level=1,
            consumer_factory=NeverMade,
            client_namespaces=frozenset({"consumer"}),
            options=(
                Option("host", "Where."),
                Option("linger.millis", "How long."),
                Option("password", "To get in.", secret=True),
            ),
        )


@pytest.fixture(autouse=True)
def guarded() -> Iterator[None]:
    """A type with a secret, whose factory cannot be made."""
    default_manager().register(Guarded())
    yield
    default_manager().unregister(BACKENDS, "guarded")


@pytest.fixture
def mistakes(tmp_path: Path) -> str:
    (tmp_path / "mistakes.toml").write_text(MISTAKES)
    return "mistakes.toml"


def test_all_mistakes_are_reported_at_once(
    streamfactory: Callable[..., Outcome], mistakes: str
) -> None:
    outcome = streamfactory("validate", mistakes)
    assert (outcome.status, outcome.err) == (2, "")
    assert outcome.out == EXPECTED
    assert "hunter" not in outcome.out


def test_problems_have_stable_keys(
    streamfactory: Callable[..., Outcome], mistakes: str
) -> None:
    outcome = streamfactory("validate", mistakes, "--json")
    assert outcome.status == 2
    assert list(outcome.json) == ["valid", "streams"]
    [stream] = outcome.json["streams"]
    assert list(stream) == [
        "stream", "origin", "type", "valid", "errors", "warnings", "effective",
    ]  # fmt: skip
    assert (len(stream["errors"]), len(stream["warnings"])) == (6, 1)
    assert list(stream["errors"][0]) == PROBLEM_KEYS
    assert stream["errors"][0]["origin"] == "mistakes.toml:6"
    assert "hunter" not in outcome.out


def test_warnings_alone_are_fine(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    text = (
        "streamType=guarded\nstream.guarded.topic.name=t\nstream.guarded.password=p\n"
    )
    (tmp_path / "fine.properties").write_text(text)
    outcome = streamfactory("validate", "fine.properties")
    assert outcome.status == 0
    assert outcome.out == (
        "fine (fine.properties): ok, 1 warning\n"
        "  warning: stream.guarded.password: contains a literal secret; "
        "write ${env:NAME} or ${file:PATH} [fine.properties:3]\n"
    )


def test_effective_values_have_origins_and_no_secrets(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter3")
    text = (
        "streamType=guarded\nstream.guarded.topic.name=t\n"
        "stream.guarded.password=hunter2\nstream.meta.owner.password=hunter1\n"
        "stream.guarded.consumer.prop.sasl.password=${env:PASSWORD}\n"
    )
    (tmp_path / "fine.properties").write_text(text)
    outcome = streamfactory(
        "validate", "fine.properties", "--effective", "--json", "--set", "batch.rows=7"
    )
    assert outcome.status == 0
    lines = outcome.json["streams"][0]["effective"]
    assert all(list(line) == ["key", "value", "origin"] for line in lines)
    values = {line["key"]: (line["value"], line["origin"]) for line in lines}
    assert values["batch.rows"] == ("7", "argument")
    assert values["batch.bytes"] == ("8M", "default")
    assert values["stream.guarded.topic.name"] == ("t", "fine.properties:2")
    assert values["stream.guarded.password"] == ("***", "fine.properties:3")
    assert values["stream.meta.owner.password"][0] == "***"
    assert values["stream.guarded.consumer.prop.sasl.password"] == (
        "${env:PASSWORD}",
        "fine.properties:5",
    )
    assert "hunter" not in outcome.out


def test_several_targets_are_all_validated(
    streamfactory: Callable[..., Outcome], tmp_path: Path, mistakes: str
) -> None:
    streams = tmp_path / "configs" / "streams"
    streams.mkdir(parents=True)
    good = {"properties": {"streamType": "guarded", "stream.guarded.topic.name": "t"}}
    (streams / "good.json").write_text(json.dumps(good))
    (streams / "torn.toml").write_text("[properties\n")
    outcome = streamfactory("validate", "godo", "good", mistakes, "torn")
    assert outcome.status == 2
    blocks = outcome.out.replace(EXPECTED, "").splitlines()
    assert blocks == [
        "godo: 2 errors",
        (
            "  error: godo: no stream is named 'godo'; known in configs/streams are good; "
            "did you mean 'good'?"
        ),
        (
            "  error: configs/streams/torn.toml: could not be read, so its streams are unknown; to see why: streamfactory validate configs/streams/torn.toml"
        ),
        "good (configs/streams/good.json): ok",
        "torn: 1 error",
        (
            "  error: torn.toml: is not TOML: Expected ']' at the end of a table "
            "declaration (line 1, column 12) [configs/streams/torn.toml:1:12]"
        ),
    ]


def test_the_whole_catalogue_is_validated_by_default(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    empty = streamfactory("validate")
    assert (empty.status, "name a stream or a file" in empty.err) == (2, True)
    streams, pipelines = tmp_path / "configs" / "streams", tmp_path / "configs"
    streams.mkdir(parents=True)
    (pipelines / "pipelines").mkdir()
    good = {"properties": {"streamType": "guarded", "stream.guarded.topic.name": "t"}}
    (streams / "good.json").write_text(json.dumps(good))
    (streams / "torn.toml").write_text("[properties\n")
    text = '[source]\nstream = "good"\n[[sinks]]\nstream = "none"\n'
    (pipelines / "pipelines" / "late.toml").write_text(text)
    outcome = streamfactory("validate", "--no-spark", "--json")
    found = [(one["stream"], one["valid"]) for one in outcome.json["streams"]]
    assert (outcome.status, found) == (
        2,
        [("good", True), ("configs/streams/torn.toml", False), ("late", False)],
    )


def test_the_name_of_a_stream_precedes_that_of_a_pipeline(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    configs = tmp_path / "configs"
    for name in ("streams", "pipelines"):
        (configs / name).mkdir(parents=True)
    good = {"properties": {"streamType": "guarded", "stream.guarded.topic.name": "t"}}
    (configs / "streams" / "late.json").write_text(json.dumps(good))
    text = '[source]\nstream = "late"\n[[sinks]]\nstream = "none"\n'
    for name in ("late", "alone"):
        (configs / "pipelines" / f"{name}.toml").write_text(text)
    assert streamfactory("validate", "late").status == 0
    assert streamfactory("validate", "alone", "--no-spark").status == 2
    both = ("late", "configs/pipelines/late.toml")
    assert streamfactory("validate", *both, "--no-spark").status == 2


def test_pinot_and_hop_files_are_read(
    streamfactory: Callable[..., Outcome], request: pytest.FixtureRequest
) -> None:
    data = request.config.rootpath / "tests" / "data"
    pinot = streamfactory("validate", str(data / "pinot" / "legacy.json"), "--json")
    assert pinot.json["streams"][0]["type"] == "kafka"
    hop = streamfactory("validate", str(data / "hop" / "flight.json"), "--json")
    assert (hop.status, hop.json["streams"][0]["type"]) == (0, "flight")


def test_examples_in_the_catalogue_are_valid(
    streamfactory: Callable[..., Outcome], request: pytest.FixtureRequest
) -> None:
    files = sorted((request.config.rootpath / "configs" / "streams").glob("*.toml"))
    outcome = streamfactory("validate", *map(str, files), "--json")
    assert (outcome.status, len(outcome.json["streams"])) == (0, len(files))
    assert not any(stream["warnings"] for stream in outcome.json["streams"])


def test_class_paths_are_refused_unless_allowed(
    program: Callable[..., Outcome], stranger: Callable[..., Path]
) -> None:
    path = str(stranger(constructor="raise SystemExit"))
    refused = program("validate", path)
    assert refused.status == 2
    assert "'stranger:BACKEND' is a class path, which requires --allow-class-paths" in (
        refused.out
    )
    allowed = program("validate", path, "--allow-class-paths")
    assert (allowed.status, allowed.out) == (0, f"strange ({path}): ok\n")


def test_unset_removes_a_property_and_an_empty_value_does_not(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "lines.toml"
    path.write_text(
        "[properties]\nstreamType = 'memory'\n"
        "'stream.memory.topic.name' = 'lines'\n'batch.rows' = 7\n"
        "'stream.memory.decoder.class.name' = 'csv'\n"
        "'stream.memory.decoder.prop.null.value' = 'NULL'\n"
        "schema = 'id bigint'\n"
    )
    effective = ("validate", path, "--effective", "--json")
    done = streamfactory(
        *effective, "--unset", "Batch.Rows",
        "--set", "stream.memory.decoder.prop.null.value=",
    )  # fmt: skip
    assert done.status == 0, done.out + done.err
    values = {one["key"]: one for one in done.json["streams"][0]["effective"]}
    assert values["batch.rows"]["origin"] == "default"
    assert values["stream.memory.decoder.prop.null.value"]["value"] == ""
    refused = streamfactory(*effective, "--set", "batch.rows=")
    assert refused.status == 2
    assert "--unset" in refused.json["streams"][0]["errors"][0]["suggestion"]


def test_only_properties_of_the_definition_are_unset(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    done = streamfactory("check", clicks, "--unset", "batch.rows", "--json")
    assert done.status == 2
    problem = done.json["steps"][0]["error"]["problems"][0]
    assert (problem["key"], problem["what"]) == (
        "batch.rows",
        f"is not set in {clicks}",
    )
    near = streamfactory("schema", clicks, "--unset", "streamTyp", "--json")
    assert near.error["problems"][0]["suggestion"] == "did you mean streamType?"
    both = streamfactory("check", clicks, "--set", "a=1", "--unset", "A")
    assert (both.status, both.err) == (
        2, "error: [usage] --set and --unset both name a. (see streamfactory check --help)\n",
    )  # fmt: skip


def test_properties_of_the_kafka_client_that_no_text_stands_for_are_errors(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    properties = {
        "streamType": "kafka",
        "stream.kafka.topic.name": "t",
        "stream.kafka.broker.list": "127.0.0.1:9092",
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.consumer.prop.rebalance_cb": "print",
        "stream.kafka.consumer.prop.opaque": "1",
        "stream.kafka.producer.prop.max.request.size": "2000000",
        "stream.kafka.producer.prop.max.request.sise": "2000000",
    }
    (tmp_path / "k.json").write_text(json.dumps({"properties": properties}))
    done = streamfactory("validate", "k.json")
    lines = done.out.splitlines()
    remedy = "its value is an object of a program, which no text stands for"
    assert done.status == 2
    assert [line.split(": ")[1] for line in lines if remedy in line] == [
        "stream.kafka.consumer.prop.rebalance_cb",
        "stream.kafka.consumer.prop.opaque",
    ]
    assert [line for line in lines if "did you mean max.request.size?" in line]
    assert not [line for line in lines if "prop.max.request.size:" in line]
