"""The ladder: every problem of a configuration at once, in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spi import (
    INTEGER,
    PERIOD,
    Backend,
    ConfigError,
    Decoder,
    NotInstalled,
    Option,
    UnknownPlugin,
    Yields,
    choice,
    hookimpl,
)
from streamfactory.wiring.config.configure import configure, inspect
from streamfactory.wiring.config.definition import StreamDefinition, from_mapping
from streamfactory.wiring.config.settled import Configured
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.wiring.config.crosschecks import Checked

MEMORY = {"streamType": "memory", "stream.memory.topic.name": "clicks"}
TINY = {
    "streamType": "tiny",
    "stream.tiny.topic.name": "clicks",
    "stream.tiny.host": "localhost",
}


class TinyBackend:
    """One option of each kind."""

    def __init__(self, yields: Yields = Yields.EITHER) -> None:
        self._yields = yields

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(
            name="tiny",
            doc="Tiny.",
            spi_level=1,
            yields=self._yields,
            consumer_factory=PluginManager({}).backend("memory").consumer_factory,
            client_namespaces=frozenset({"consumer"}),
            owned_client_keys={"group.id": "set the option group.id"},
            bare_names={"tinyconsumer.port": "port"},
            bare_hints={"tinyconsumer.tries": "say retry.max.attempts"},
            options=(
                Option("host", "Host.", required=True, example="localhost"),
                Option("port", "Port.", INTEGER, default="7", minimum=1, maximum=65535),
                Option(
                    "wait.millis", "W.", PERIOD, aliases=("waiting", "wait.for.millis")
                ),
                Option("mode", "Mode.", choice("fast", "safe"), deprecated="pace"),
                Option("pin", "Pin.", secret=True, aliases=("code",)),
                Option("depth", "Depth.", no_effect="there is no depth here"),
                Option("fsync", "Fsync.", applies=frozenset({"write"})),
                Option(
                    "even",
                    "Even.",
                    INTEGER,
                    validator=lambda v: "is odd" if v % 2 else None,
                ),
            ),
        )


class UpperDecoder:
    """A decoder with options of its own."""

    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        return Decoder(
            name="upper",
            doc="Upper case.",
            spi_level=1,
            options=(
                Option("max.length", "M.", INTEGER, default="10"),
                Option("key", "K.", secret=True),
            ),
        )


@pytest.fixture
def plugins() -> PluginManager:
    manager = PluginManager({})
    manager.register(TinyBackend())
    manager.register(UpperDecoder())
    return manager


@pytest.fixture
def check(plugins: PluginManager) -> Any:
    """Inspects properties, a tiny stream's unless others are given."""

    def check_them(
        properties: dict[str, Any], base: dict[str, str] = TINY, **how: Any
    ) -> Checked:
        return inspect(from_mapping({**base, **properties}), plugins, **how)

    return check_them


def problem_texts(result: Checked) -> list[str]:
    """Problems without their origin, warnings marked."""
    return [
        ("" if p.level == "error" else f"{p.level}: ")
        + str(p).removesuffix(f" [{p.origin}]")
        for p in result.problems
    ]


# --- the type -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "problems"),
    [
        ({}, ["streamType: is required; for example memory"]),
        (
            {"streamType": ""},
            ["streamType: is empty, but required; for example memory"],
        ),
        (
            {"streamType": "tiny", "stream.type": "memory"},
            [
                (
                    "streamType: is 'tiny', but stream.type is 'memory' [argument]; "
                    "keep one of them"
                )
            ],
        ),
        (
            {"streamType": "${env:NOT_SET}"},
            [
                (
                    "streamType: ${env:NOT_SET} cannot be resolved: the environment "
                    "variable is not set"
                )
            ],
        ),
    ],
)
def test_a_type_that_cannot_be_determined(
    check: Any, properties: dict[str, str], problems: list[str]
) -> None:
    result = check(properties, base={})
    assert problem_texts(result)[: len(problems)] == problems
    assert result.config is None


def test_unknown_type_lists_the_known_and_the_nearest(
    check: Any, plugins: PluginManager
) -> None:
    result = check({"streamType": "tinny"}, base={})
    known = ", ".join(plugins.names("streamfactory.backends"))
    assert problem_texts(result)[0] == (
        f"streamType: unknown stream type 'tinny'; known are {known}; did you mean "
        "'tiny'?"
    )


def test_type_may_be_a_reference(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPE", "Tiny")
    result = check({**TINY, "streamType": "${env:TYPE}"}, base={})
    assert problem_texts(result) == []
    assert result.config.type == "tiny"


def test_known_type_that_is_not_installed_is_a_warning_until_it_is_used(
    plugins: PluginManager,
) -> None:
    definition = from_mapping(
        {
            "streamType": "pulsar",
            "stream.pulsar.topic.name": "clicks",
            "stream.pulsar.made.up": "1",
        }
    )
    result = inspect(definition, plugins)
    assert problem_texts(result) == [
        (
            "warning: streamType: is not installed here; no plug-in is "
            "known; docs/spi.md shows how to write one"
        )
    ]
    assert result.config is not None
    with pytest.raises(UnknownPlugin) as caught:
        configure(definition, plugins, use="read")
    assert caught.value.what.startswith("unknown stream type 'pulsar'; known are ")


def test_known_decoder_that_is_not_installed_is_a_warning_until_it_is_used(
    plugins: PluginManager,
) -> None:
    definition = from_mapping(
        {
            **TINY,
            "stream.tiny.decoder.class.name": "clplog",
            "stream.tiny.decoder.prop.fields": "a",
        }
    )
    result = inspect(definition, plugins)
    assert problem_texts(result) == [
        (
            "warning: stream.tiny.decoder.class.name: is not installed here; no "
            "plug-in is known; docs/spi.md shows how to write one"
        )
    ]
    with pytest.raises(UnknownPlugin):
        configure(definition, plugins, use="read")


def test_missing_client_is_a_warning_until_it_is_used(
    plugins: PluginManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = NotInstalled("'tiny' needs x", remedy="run: pip install 'y[x]'")

    def backend(name: str) -> Backend:
        raise absent

    monkeypatch.setattr(plugins, "backend", backend)
    definition = from_mapping(TINY)
    assert problem_texts(inspect(definition, plugins)) == [
        "warning: streamType: 'tiny' needs x; run: pip install 'y[x]'"
    ]
    with pytest.raises(NotInstalled) as caught:
        configure(definition, plugins, use="read")
    assert caught.value is absent


# --- one option -----------------------------------------------------------------------

HOST = "stream.tiny.host"
NOT_REMOVED = (
    "an empty value does not remove a property: remove it from the definition (with "
    "--unset on the command line), or set the default"
)


@pytest.mark.parametrize(
    ("properties", "problems"),
    [
        # bad values
        ({"stream.tiny.port": "x"}, ["stream.tiny.port: 'x' is not a whole number"]),
        (
            {"stream.tiny.port": ""},
            [f"stream.tiny.port: '' is not a whole number; {NOT_REMOVED}"],
        ),
        (
            {"stream.tiny.port": "  "},
            [f"stream.tiny.port: '  ' is not a whole number; {NOT_REMOVED}"],
        ),
        (
            {"stream.tiny.port": "\u0667"},
            ["stream.tiny.port: '\u0667' is not a whole number"],
        ),
        (
            {"stream.tiny.port": "9" * 5000},
            [f"stream.tiny.port: '{'9' * 77}'... does not fit 64 bits"],
        ),
        (
            {"stream.tiny.port": "0"},
            ["stream.tiny.port: '0' is below the minimum, 1"],
        ),
        (
            {"stream.tiny.port": "65536"},
            ["stream.tiny.port: '65536' is above the maximum, 65535"],
        ),
        ({"stream.tiny.even": "3"}, ["stream.tiny.even: '3' is odd"]),
        (
            {"startingOffsetsByTimestampStrategy": "latst"},
            [
                (
                    "startingOffsetsByTimestampStrategy: 'latst' is not one of error, "
                    "latest; did you mean latest?"
                )
            ],
        ),
        (
            {"stream.tiny.wait.millis": "fast"},
            [
                (
                    "stream.tiny.wait.millis: 'fast' is not a duration: write 250ms, "
                    "30s, 5m, 4h30m, 1d, or plain milliseconds"
                )
            ],
        ),
        # required
        ({HOST: ""}, [f"{HOST}: is empty, but required; for example localhost"]),
        ({HOST: "  "}, [f"{HOST}: is empty, but required; for example localhost"]),
        # references
        (
            {HOST: "${HOST}"},
            [
                (
                    f"{HOST}: ${{HOST}} is not a reference: write ${{env:NAME}} or "
                    "${file:PATH}"
                )
            ],
        ),
        (
            {"stream.tiny.pin": "${vault:x}"},
            [
                (
                    "stream.tiny.pin: refers to vault; unknown reference scheme "
                    "'vault'; known are env, file; install streamfactory-vault"
                )
            ],
        ),
        (
            {"stream.tiny.pin": "${hunter2:x}"},
            [
                (
                    "stream.tiny.pin: contains a malformed reference; write "
                    "${env:NAME} or ${file:PATH}, and $${ for a literal ${"
                )
            ],
        ),
        # advice
        (
            {"stream.tiny.mode": "fast"},
            ["warning: stream.tiny.mode: is deprecated; write pace"],
        ),
        (
            {"stream.tiny.depth": "3"},
            ["warning: stream.tiny.depth: has no effect: there is no depth here"],
        ),
        (
            {"stream.tiny.pin": "1234"},
            [
                (
                    "warning: stream.tiny.pin: contains a literal secret; write "
                    "${env:NAME} or ${file:PATH}"
                )
            ],
        ),
        # spelled twice
        (
            {"stream.tiny.waiting": "5s", "stream.tiny.wait.millis": "6000"},
            [
                (
                    "stream.tiny.waiting: is '5s', but stream.tiny.wait.millis is "
                    "'6000' [argument]; keep one of them"
                )
            ],
        ),
        ({"stream.tiny.waiting": "5s", "stream.tiny.wait.millis": "5000"}, []),
        ({"failOnDataLoss": "false", "out.of.range": "earliest"}, []),
        (
            {"failOnDataLoss": "true", "out.of.range": "latest"},
            [
                (
                    "failOnDataLoss: is 'true', but out.of.range is 'latest' "
                    "[argument]; keep one of them"
                )
            ],
        ),
        (
            {"stream.tiny.pin": "1234", "stream.tiny.code": "4321"},
            [
                (
                    "stream.tiny.pin: is ***, but stream.tiny.code is *** "
                    "[argument]; keep one of them"
                )
            ],
        ),
        # the same word in two cases, as Spark's lower-casing leaves it
        ({"streamtype": "tiny", "STREAM.TINY.HOST": "localhost"}, []),
        ({"startingoffsets": "latest", "startingOffsets": "largest"}, []),
        (
            {"startingoffsets": "latest", "startingOffsets": "earliest"},
            [
                (
                    "startingoffsets: is 'latest', but startingOffsets is "
                    "'earliest' [argument]; keep one of them"
                )
            ],
        ),
        (
            {"streamtype": "memory"},
            [
                (
                    "streamType: is 'tiny', but streamtype is 'memory' [argument]; "
                    "keep one of them"
                )
            ],
        ),
        # unknown
        (
            {"stream.tiny.hots": "x"},
            [("stream.tiny.hots: unknown option; did you mean stream.tiny.host?")],
        ),
        (
            {"startingOfsets": "x"},
            [("startingOfsets: unknown option; did you mean startingOffsets?")],
        ),
        (
            {"stream.tinny.wait.millis": "5"},
            [
                (
                    "stream.tinny.wait.millis: unknown option; did you "
                    "mean stream.tiny.wait.millis?"
                )
            ],
        ),
        (
            {"straem.tiny.wait.millis": "5"},
            [
                (
                    "straem.tiny.wait.millis: unknown option; did you mean "
                    "stream.tiny.wait.millis?"
                )
            ],
        ),
        (
            {"stream.kafka.topic.name": "x"},
            [
                (
                    "stream.kafka.topic.name: unknown option; this stream "
                    "is of type 'tiny'"
                )
            ],
        ),
        (
            {"stream.zzz.frobnicate": "x"},
            [("stream.zzz.frobnicate: unknown option; this stream is of type 'tiny'")],
        ),
        ({"qqq": "x" * 200}, ["qqq: unknown option"]),
        (
            {"fetch.timeout.millis": "5s"},
            [
                (
                    "fetch.timeout.millis: unknown option; did you mean "
                    "stream.tiny.fetch.timeout.millis?"
                )
            ],
        ),
        ({"stream.tiny.": "x"}, ["stream.tiny.: unknown option"]),
        (
            {"stream.tiny.pinn": "1234"},
            [("stream.tiny.pinn: unknown option; did you mean stream.tiny.pin?")],
        ),
    ],
)
def test_rungs(check: Any, properties: dict[str, str], problems: list[str]) -> None:
    result = check(properties)
    assert problem_texts(result) == problems
    assert (result.config is None) == bool(result.errors)


def test_required_option_that_is_misspelt_is_not_missing_too(check: Any) -> None:
    keys = {"streamType": "tiny", "stream.tiny.topic.nam": "x", "stream.tiny.host": "h"}
    assert problem_texts(check(keys, base={})) == [
        ("stream.tiny.topic.nam: unknown option; did you mean stream.tiny.topic.name?")
    ]


def test_required_option_of_another_type_is_missing(check: Any) -> None:
    keys = {"streamType": "tiny", "stream.kafka.host": "h"}
    assert problem_texts(check(keys, base={})) == [
        ("stream.kafka.host: unknown option; this stream is of type 'tiny'"),
        "stream.tiny.topic.name: is required; for example clicks",
        "stream.tiny.host: is required; for example localhost",
    ]


def test_required_option_that_is_missing_has_its_whole_key(check: Any) -> None:
    result = check({"streamType": "tiny"}, base={})
    assert problem_texts(result) == [
        "stream.tiny.topic.name: is required; for example clicks",
        "stream.tiny.host: is required; for example localhost",
    ]


def test_every_problem_is_reported_at_once_with_its_origin(
    plugins: PluginManager,
) -> None:
    definition = StreamDefinition.of(
        "clicks",
        {
            "streamType": "tiny",
            "stream.tiny.port": "x",
            "stream.tiny.hots": "h",
            "batch.rows": "0",
            "maxTriggerDelay": "5m",
        },
        origin="clicks.toml:3",
    )
    with pytest.raises(ConfigError) as caught:
        configure(definition, plugins, use="read")
    assert str(caught.value) == (
        "4 problems in the configuration (stream 'clicks')\n"
        "  stream.tiny.hots: unknown option; did you mean "
        "stream.tiny.host? [clicks.toml:3]\n"
        "  batch.rows: '0' is below the minimum, 1 [clicks.toml:3]\n"
        "  stream.tiny.topic.name: is required; for example clicks\n"
        "  stream.tiny.port: 'x' is not a whole number [clicks.toml:3]"
    )


def test_defaults_and_values_have_their_origin(check: Any) -> None:
    config = check({"stream.tiny.port": "0011"}).config
    assert (config["port"], config.settings["port"].origin) == (11, "argument")
    assert config.settings["batch.rows"].origin == "default"
    assert config["batch.bytes"] == 8 * 1024**2
    assert "wait.millis" not in config


@pytest.mark.parametrize(
    ("use", "problems"),
    [
        (None, []),
        ("write", []),
        (
            "read",
            ["note: stream.tiny.fsync: has no effect here: it applies to write"],
        ),
    ],
)
def test_options_without_effect_here_are_reported(
    check: Any, use: str | None, problems: list[str]
) -> None:
    assert problem_texts(check({"stream.tiny.fsync": "always"}, use=use)) == problems


@pytest.mark.parametrize("key", [HOST, "stream.tiny.port", "startingOffsets"])
def test_reference_that_is_not_set_here_is_a_warning_offline_an_error_in_use(
    check: Any, key: str
) -> None:
    what = (
        f"{key}: ${{env:NOT_SET}} cannot be resolved: the environment variable is not "
        "set"
    )
    offline = check({key: "${env:NOT_SET}"})
    where = "it has to be resolved where the stream is used"
    assert problem_texts(offline) == [f"warning: {what}; {where}"]
    short = key.removeprefix("stream.tiny.")
    assert offline.config.settings[short].value is None
    assert offline.config.settings[short].text == "${env:NOT_SET}"
    assert problem_texts(check({key: "${env:NOT_SET}"}, use="read")) == [what]


def test_decoder_that_is_a_reference_is_left_unchecked_offline(
    plugins: PluginManager,
) -> None:
    plugins.unregister("streamfactory.backends", "tiny")
    plugins.register(TinyBackend(Yields.ENVELOPE))
    keys = {
        **TINY,
        "stream.tiny.decoder.class.name": "${env:NOT_SET}",
        "stream.tiny.decoder.prop.x": "1",
    }
    result = inspect(from_mapping(keys), plugins)
    assert len(result.warnings) == 1
    assert result.errors == []


def test_secrets_are_not_resolved_by_configuring(check: Any) -> None:
    result = check({"stream.tiny.pin": "${env:NOT_SET}"}, use="read")
    assert problem_texts(result) == []
    with pytest.raises(ConfigError) as caught:
        result.config["pin"]
    assert str(caught.value) == (
        "${env:NOT_SET} cannot be resolved: the environment variable is not set"
    )


# --- pass-through ---------------------------------------------------------------------

PROP = "stream.tiny.consumer.prop"


def test_client_properties_keep_their_case_and_are_not_judged(check: Any) -> None:
    result = check({f"STREAM.tiny.Consumer.Prop.{key}": "v" for key in ("Ab", "ab")})
    assert problem_texts(result) == []
    assert result.config.client_properties("consumer") == {"Ab": "v", "ab": "v"}
    assert "Ab" not in result.config


def test_bare_names_of_another_connector_mean_what_the_backend_says(
    check: Any,
) -> None:
    result = check({"tinyConsumer.port": "9"})
    assert problem_texts(result) == []
    assert result.config["port"] == 9


def test_a_bare_name_that_means_nothing_is_reported_with_what_comes_close(
    check: Any,
) -> None:
    assert problem_texts(check({"tinyConsumer.tries": "9"})) == [
        "tinyConsumer.tries: unknown option; say retry.max.attempts"
    ]


@pytest.mark.parametrize(
    ("properties", "problems"),
    [
        (
            {f"{PROP}.group.id": "g"},
            [
                (
                    f"{PROP}.group.id: is set by streamfactory itself; set the option "
                    "group.id"
                )
            ],
        ),
        (
            {f"{PROP}.Group.ID": "g"},
            [
                (
                    f"{PROP}.Group.ID: is set by streamfactory itself; set the option "
                    "group.id"
                )
            ],
        ),
        (
            {"stream.tiny.producer.prop.acks": "all"},
            [
                (
                    "stream.tiny.producer.prop.acks: has no effect: stream type "
                    "'tiny' has no producer client"
                )
            ],
        ),
        ({f"{PROP}.": "x"}, [f"{PROP}.: lacks the name of a property"]),
        (
            {f"{PROP}.x": "${HOME}"},
            [
                (
                    f"{PROP}.x: contains a malformed reference; write ${{env:NAME}} or "
                    "${file:PATH}, and $${ for a literal ${"
                )
            ],
        ),
        (
            {f"{PROP}.x": "1", "stream.TINY.consumer.prop.x": "2"},
            [
                (
                    "stream.TINY.consumer.prop.x: conflicts with "
                    "stream.tiny.consumer.prop.x [argument]; keep one of them"
                )
            ],
        ),
        ({f"{PROP}.x": "1", "stream.TINY.consumer.prop.x": "1"}, []),
        ({f"{PROP}.auto.offset.reset": "2d"}, []),
        (
            {f"{PROP}.auto.offset.reset": "somewhen"},
            [
                (
                    f"{PROP}.auto.offset.reset: 'somewhen' is none of smallest, "
                    "largest, earliest, latest, a period such as 2d, a date such as "
                    "2022-08-09 (in UTC), a time such as "
                    "2022-08-09T12:31:38.222Z, or milliseconds"
                )
            ],
        ),
    ],
)
def test_pass_through(
    check: Any, properties: dict[str, str], problems: list[str]
) -> None:
    assert problem_texts(check(properties)) == problems


def test_annotations_are_carried_and_never_read(check: Any) -> None:
    result = check({"stream.meta.Owner": "${team}", "Stream.Meta.tier": "1"})
    assert problem_texts(result) == []
    assert result.config.meta == {"Owner": "${team}", "tier": "1"}


# --- decoders -------------------------------------------------------------------------

DECODER = "stream.tiny.decoder.class.name"


def test_decoder_options_are_parsed_and_strict(check: Any) -> None:
    good = check({DECODER: "UPPER", "stream.tiny.decoder.prop.Max.Length": "5"})
    assert problem_texts(good) == []
    assert good.config.decoder == "upper"
    assert good.config.decoder_options() == {"max.length": 5}
    bad = check(
        {
            DECODER: "upper",
            "stream.tiny.decoder.prop.max.lenght": "5",
            "stream.tiny.decoder.prop.max.length": "x",
            "stream.tiny.decoder.prop.qqq": "1",
            "stream.tiny.decoder.prop.key": "hunter2",
        }
    )
    prefix = "stream.tiny.decoder.prop"
    assert problem_texts(bad) == [
        (
            f"{prefix}.max.lenght: the decoder 'upper' has no such option; did you "
            f"mean {prefix}.max.length?"
        ),
        f"{prefix}.qqq: the decoder 'upper' has no such option",
        f"{prefix}.max.length: 'x' is not a whole number",
        (
            f"warning: {prefix}.key: contains a literal secret; write ${{env:NAME}} "
            "or ${file:PATH}"
        ),
    ]


@pytest.mark.parametrize(
    ("yields", "properties", "problem"),
    [
        (
            Yields.ENVELOPE,
            {},
            (
                f"{DECODER}: is required: stream type 'tiny' yields undecoded "
                f"messages; known are "
                "{known}"
            ),
        ),
        (
            Yields.TYPED,
            {DECODER: "upper"},
            f"{DECODER}: has no effect: stream type 'tiny' yields typed rows; omit it",
        ),
        (
            Yields.EITHER,
            {"stream.tiny.decoder.prop.x": "1"},
            f"stream.tiny.decoder.prop.x: is set, but {DECODER} is not",
        ),
        (
            Yields.EITHER,
            {DECODER: "uper"},
            (
                f"{DECODER}: unknown decoder 'uper'; known are {{known}}; did you "
                "mean 'upper'?"
            ),
        ),
        (
            Yields.EITHER,
            {DECODER: "com.acme.MyDecoder"},
            (
                f"{DECODER}: names 'com.acme.MyDecoder'; a Java class cannot run "
                "here: docs/spi.md shows how to write a plug-in"
            ),
        ),
        (
            Yields.EITHER,
            {DECODER: "org.apache.pinot.plugin.inputformat.json.JSONMessageDecoder"},
            (
                f"{DECODER}: names 'org.apache.pinot.plugin.inputformat.json."
                "JSONMessageDecoder'; the equivalent is json"
            ),
        ),
    ],
)
def test_decoder_that_does_not_fit(
    plugins: PluginManager, yields: Yields, properties: dict[str, str], problem: str
) -> None:
    plugins.unregister("streamfactory.backends", "tiny")
    plugins.register(TinyBackend(yields))
    result = inspect(from_mapping({**TINY, **properties}), plugins)
    known = ", ".join(plugins.names("streamfactory.decoders"))
    assert problem_texts(result) == [problem.replace("{known}", known)]


# --- classes --------------------------------------------------------------------------

FACTORY = "stream.tiny.consumer.factory.class.name"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tiny", None),
        (" Tiny ", None),
        (
            "memory",
            "is 'memory', but the stream's type is 'tiny'; write tiny, or omit it",
        ),
        (
            "com.acme.kafka.FastConsumerFactory",
            (
                "is 'com.acme.kafka.FastConsumerFactory', but the stream's type is "
                "'tiny'; a Java class cannot run here: docs/spi.md shows how to write "
                "a plug-in"
            ),
        ),
        (
            "org.apache.pinot.plugin.stream.kafka30.KafkaConsumerFactory",
            (
                "is 'org.apache.pinot.plugin.stream.kafka30.KafkaConsumerFactory', "
                "but the stream's type is 'tiny'; the equivalent is kafka"
            ),
        ),
        (
            "tiny_stream:DESCRIPTOR",
            (
                "'tiny_stream:DESCRIPTOR' is a class path, which requires "
                "`allow_class_paths=True`"
            ),
        ),
    ],
)
def test_factory_class_names(check: Any, text: str, problem: str | None) -> None:
    expected = [] if problem is None else [f"{FACTORY}: {problem}"]
    assert problem_texts(check({FACTORY: text})) == expected


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module on the path that is no plug-in, only holds descriptors."""
    source = """
from streamfactory.spi import Backend, Decoder, Option
from streamfactory.wiring.plugins.manager import PluginManager

factory = PluginManager({}).backend("memory").consumer_factory
words = {"name": "tiny", "doc": "D.", "consumer_factory": factory}
GOOD = Backend(spi_level=1, options=(Option("host", "H."),), **words)
LATER = Backend(spi_level=9, **words)
TWICE = Backend(spi_level=1, options=(Option("a", "A."),) * 2, **words)
OTHER = Backend(spi_level=1, **{**words, "name": "other"})
LOUD = Decoder(name="loud", doc="L.", spi_level=1)
NUMBER = 3
"""
    (tmp_path / "by_path_module.py").write_text(source)
    (tmp_path / "by_path_exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "by_path_module"
    sys.modules.pop("by_path_module", None)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("{}:GOOD", None),
        (
            "{}:LATER",
            "cannot be used: 'tiny' requires SPI level 9, but this is level 1",
        ),
        ("{}:TWICE", "cannot be used: plug-in '{}:TWICE' declares 'a' twice"),
        ("{}:NUMBER", "is a int, expected a Backend"),
        ("{}:LOUD", "is a Decoder, expected a Backend"),
        (
            "{}:GONE",
            ("cannot be loaded: AttributeError: module '{}' has no attribute 'GONE'"),
        ),
        (
            "no_such_module:X",
            ("cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ),
        (":X", "cannot be loaded: ValueError: Empty module name"),
        ("by_path_exits:X", "cannot be loaded: SystemExit: 3"),
    ],
)
def test_class_paths_where_they_are_allowed(
    check: Any, module: str, path: str, problem: str | None
) -> None:
    written = path.replace("{}", module)
    result = check({FACTORY: written}, allow_class_paths=True)
    expected = []
    if problem is not None:
        expected = [f"{FACTORY}: {written!r} {problem.replace('{}', module)}"]
    assert problem_texts(result) == expected


def test_class_path_of_another_type_and_of_a_decoder(check: Any, module: str) -> None:
    result = check({FACTORY: f"{module}:OTHER"}, allow_class_paths=True)
    assert f"{FACTORY}: {module}:OTHER is of type 'other', not 'tiny'" in problem_texts(
        result
    )
    result = check({DECODER: f"{module}:LOUD"}, allow_class_paths=True)
    assert problem_texts(result) == []
    assert result.config.decoder == "loud"


def test_nothing_is_imported_where_class_paths_are_not_allowed(
    check: Any, module: str
) -> None:
    check({FACTORY: f"{module}:GOOD"})
    assert module not in sys.modules


# --- several options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "use", "problems"),
    [
        (
            {"subscribe": "a,b"},
            "read",
            [
                (
                    "subscribe: and stream.memory.topic.name exclude each other; keep "
                    "one of them"
                )
            ],
        ),
        (
            {
                "realtime.segment.flush.threshold.rows": "10",
                "realtime.segment.flush.threshold.segment.size": "1M",
            },
            "write",
            [
                (
                    "realtime.segment.flush.threshold.segment.size: and "
                    "realtime.segment.flush.threshold.rows exclude each other; keep "
                    "one of them"
                )
            ],
        ),
        (
            {
                "realtime.segment.flush.threshold.rows": "0",
                "realtime.segment.flush.threshold.segment.size": "1M",
            },
            "write",
            [],
        ),
        (
            {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"},
            "spark",
            ["minOffsetsPerTrigger: 10 is greater than maxOffsetsPerTrigger, 9"],
        ),
        (
            {"retry.initial.millis": "20s"},
            "read",
            ["retry.initial.millis: 20s is greater than retry.max.millis, 10000"],
        ),
        (
            {"retry.initial.millis": "${env:NOT_SET}"},
            None,
            [
                (
                    "warning: retry.initial.millis: ${env:NOT_SET} cannot be resolved: "
                    "the environment variable is not set; it has to be resolved where "
                    "the stream is used"
                )
            ],
        ),
        (
            {"maxTriggerDelay": "5m"},
            "spark",
            ["warning: maxTriggerDelay: has no effect without minOffsetsPerTrigger"],
        ),
        (
            {"includeHeaders": "true"},
            "read",
            ["warning: includeHeaders: has no effect without metadata.columns"],
        ),
        ({"includeHeaders": "true", "metadata.columns": "true"}, "read", []),
        (
            {"stream.memory.consumer.type": "highlevel"},
            "read",
            [
                "group.id: is required by consumer.type=highlevel",
                "checkpoint.location: is required by consumer.type=highlevel",
            ],
        ),
        (
            {
                "stream.memory.consumer.type": "highlevel",
                "group.id": "${env:NOT_SET}",
                "checkpoint.location": "c",
            },
            None,
            [
                (
                    "warning: group.id: ${env:NOT_SET} cannot be resolved: the "
                    "environment variable is not set; it has to be resolved where the "
                    "stream is used"
                )
            ],
        ),
        (
            {"stream.memory.consumer.type": "highlevel"},
            "write",
            [
                (
                    "note: stream.memory.consumer.type: has no effect here: it "
                    "applies to read and spark"
                )
            ],
        ),
    ],
)
def test_options_that_do_not_go_together(
    check: Any, properties: dict[str, str], use: str | None, problems: list[str]
) -> None:
    assert problem_texts(check(properties, base=MEMORY, use=use)) == problems


def test_topics_may_be_chosen_otherwise(check: Any) -> None:
    for key, text in (("subscribe", "a"), ("subscribePattern", "a.*")):
        result = check({"streamType": "memory", key: text}, base={})
        assert problem_texts(result) == []
        assert result.config.name == "memory:*"


# --- the front ------------------------------------------------------------------------


def test_configured_holds_what_is_to_be_used(plugins: PluginManager) -> None:
    found = configure(
        from_mapping({**TINY, DECODER: "upper"}, "clicks"), plugins, use="read"
    )
    assert isinstance(found, Configured)
    assert (found.config.name, found.config.type) == ("clicks", "tiny")
    assert found.backend.name == "tiny"
    assert found.decoder is not None
    assert found.decoder.name == "upper"


def test_unnamed_stream_is_called_by_type_and_topic(check: Any) -> None:
    assert check({}).config.name == "tiny:clicks"


def test_warnings_go_with_the_configuration(plugins: PluginManager) -> None:
    found = configure(
        from_mapping({**TINY, "stream.tiny.depth": "1"}), plugins, use="read"
    )
    assert [warning.key for warning in found.config.warnings] == ["stream.tiny.depth"]


def test_a_map_is_a_map_of_strings() -> None:
    properties: dict[Any, Any] = {
        "a": "x",
        "b": 7,
        "c": True,
        "d": 1.5,
        "e": None,
        "f": ["x"],
        3: "y",
    }
    with pytest.raises(ConfigError) as caught:
        from_mapping(properties)
    assert str(caught.value) == (
        "the configuration must be a map of strings\n"
        "  3: the key is a int, expected a string\n"
        "  d: is a float, expected a string [argument]\n"
        "  e: is a NoneType, expected a string [argument]\n"
        "  f: is a list, expected a string [argument]"
    )
    good = from_mapping({k: properties[k] for k in "abc"})
    assert [p.text for p in good.properties] == ["x", "7", "true"]


def test_overrides_replace_whatever_the_case() -> None:
    definition = from_mapping({"streamType": "memory", "Batch.Rows": "1"})
    changed = definition.with_overrides({"batch.rows": "2"})
    assert [(p.key, p.text, p.origin) for p in changed.properties] == [
        ("streamType", "memory", "argument"),
        ("batch.rows", "2", "argument"),
    ]


@pytest.mark.parametrize(
    ("written", "key", "full_key"),
    [
        ("writer.memory", "writer.memory.millis", "writer.memory.millis"),
        (
            "stream.memory.Retention.Age",
            "retention.age.millis",
            "stream.memory.retention.age.millis",
        ),
    ],
)
def test_former_spelling_works_and_names_the_new_one(
    written: str, key: str, full_key: str
) -> None:
    found = inspect(from_mapping({**MEMORY, written: "5s"}), PluginManager({}))
    assert found.config is not None
    assert found.config[key] == 5000
    assert [str(problem) for problem in found.problems] == [
        f"{written}: is deprecated; write {full_key} [argument]"
    ]
    assert found.problems[0].level == "warning"
    newer = inspect(from_mapping({**MEMORY, full_key: "5s"}), PluginManager({}))
    assert newer.problems == ()


def test_former_spelling_that_disagrees_with_the_new_one_is_an_error() -> None:
    both = {"writer.memory": "5s", "writer.memory.millis": "6s"}
    with pytest.raises(ConfigError) as caught:
        configure(from_mapping({**MEMORY, **both}), PluginManager({}), use="write")
    assert [problem.level for problem in caught.value.problems] == ["error"]


def test_plugins_are_listed_once_for_many_unknown_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The metadata of all installed packages are read for it."""
    manager, calls = PluginManager({}), list[str]()
    names = manager.names

    def counted(group: str) -> list[str]:
        calls.append(group)
        return names(group)

    monkeypatch.setattr(manager, "names", counted)
    more = {f"stream.memory.wrong.{number}": "x" for number in range(50)}
    problems = inspect(from_mapping({**MEMORY, **more}), manager).problems
    assert len([one for one in problems if one.what == "unknown option"]) == 50
    assert len(calls) == 1
