"""The steps of a configuration, each called as a function of the one before."""

from __future__ import annotations

from typing import Any

import pytest

from streamfactory.spi import INTEGER, ConfigError, Option, Problem, StreamConfig
from streamfactory.spi.config import Setting
from streamfactory.wiring.config.classification import (
    Classified,
    OptionGroup,
    StreamPlugins,
    classify,
    group_properties,
)
from streamfactory.wiring.config.crosschecks import Checked, check_rules
from streamfactory.wiring.config.definition import Property, from_mapping
from streamfactory.wiring.config.resolution import (
    Resolved,
    resolve_options,
    resolve_values,
)
from streamfactory.wiring.config.settled import settle
from streamfactory.wiring.plugins.manager import PluginManager

PORT = Option("port", "Port.", INTEGER, default="7", aliases=("p",))
HOST = Option("host", "Host.", required=True)


def prop(key: str, text: str = "1") -> Property:
    return Property(key, text, "here:1")


def classified(properties: dict[str, str], **how: Any) -> Classified:
    base = {"streamType": "memory", "stream.memory.topic.name": "t"}
    return classify(from_mapping({**base, **properties}), PluginManager({}), **how)


def test_classifying_sorts_properties_by_what_they_set() -> None:
    found = classified(
        {
            "BATCH.rows": "many",
            "stream.memory.decoder.class.name": "JSON",
            "stream.memory.decoder.prop.Schema": "a string",
            "stream.memory.consumer.prop.Any.Key": "x",
            "stream.meta.Owner": "me",
            "stream.memory.tpoic.name": "x",
        }
    )
    assert found.type == "memory"
    assert found.decoder == "json"
    assert set(found.framework.given) == {"streamType", "batch.rows"}
    assert set(found.own.given) == {"topic.name", "decoder.class.name"}
    assert set(found.decoder_options.given) == {"schema"}
    assert [key for key, _ in found.client["consumer"]] == ["Any.Key"]
    assert [key for key, _ in found.meta] == ["Owner"]
    [unknown] = found.problems  # a bad value is a problem of the next step
    assert unknown.key == "stream.memory.tpoic.name"


def test_classifying_reads_no_value_but_names_of_plugins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEP_TYPE", "Memory")
    found = classified(
        {
            "streamType": "${env:STEP_TYPE}",
            "stream.memory.decoder.class.name": "${env:STEP_UNSET}",
            "batch.rows": "${env:STEP_UNSET}",
        }
    )
    assert (found.type, found.decoder, found.problems) == ("memory", None, ())


def test_grouping_returns_the_properties_of_no_option() -> None:
    given, other = prop("a.P"), prop("a.q")
    group, others = group_properties([PORT], [("P", given), ("q", other)], "a.")
    assert group == OptionGroup("a.", (PORT,), {"port": [given]})
    assert others == [other]


def test_resolving_returns_settings_and_problems_and_keeps_its_argument() -> None:
    group = OptionGroup("a.", (PORT, HOST), {"port": [prop("a.port", "x")]})
    settings, problems = resolve_options(group, "read")
    assert settings == {}
    assert [str(problem) for problem in problems] == [
        "a.port: 'x' is not a whole number [here:1]",
        "a.host: is required",
    ]
    assert group.given == {"port": [prop("a.port", "x")]}
    settings, problems = resolve_options(OptionGroup("a.", (PORT,)), "read")
    assert settings == {"port": Setting("port", "a.port", "7", 7, "default")}
    assert problems == []


def test_resolving_adds_its_problems_after_those_of_classifying() -> None:
    before = Problem("k", "is odd")
    value = Classified(
        from_mapping({}),
        (before,),
        framework=OptionGroup("", (PORT,), {"port": [prop("port", "x")]}),
    )
    found = resolve_values(value, "read")
    assert found.problems[0] is before
    assert [problem.key for problem in found.problems] == ["k", "port"]


def test_checking_leaves_no_configuration_if_there_is_an_error() -> None:
    rows = [
        Setting(key, key, text, int(text), "here:1")
        for key, text in (("minOffsetsPerTrigger", "9"), ("maxOffsetsPerTrigger", "3"))
    ]
    config = StreamConfig("s", "memory", {row.key: row for row in rows})
    found = check_rules(Resolved("s", config, StreamPlugins(), ()))
    assert found.config is None
    assert [str(problem) for problem in found.errors] == [
        "minOffsetsPerTrigger: 9 is greater than maxOffsetsPerTrigger, 3 [here:1]"
    ]
    warning = Problem("k", "is odd", level="warning")
    fine = StreamConfig("s", "memory", {"minOffsetsPerTrigger": rows[0]})
    found = check_rules(Resolved("s", fine, StreamPlugins(), (warning,)))
    assert found.config is not None
    assert found.config.warnings == (warning,)


def test_settling_raises_every_error_at_once_and_no_warning() -> None:
    problems = (
        Problem("a", "is bad"),
        Problem("b", "is odd", level="warning"),
        Problem("c", "is worse"),
    )
    with pytest.raises(ConfigError) as caught:
        settle(Checked("s", None, StreamPlugins(), problems), PluginManager({}))
    assert caught.value.problems == (problems[0], problems[2])
    assert caught.value.what == "2 problems in the configuration"


def test_settling_takes_plugins_that_were_found() -> None:
    backend = PluginManager({}).backend("memory")
    config = StreamConfig("s", "not.installed")
    checked = Checked("s", config, StreamPlugins(backend), ())
    assert settle(checked, PluginManager({})).backend is backend
