"""Patterns of topic names: what they match, and that none takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.options.patterns import check_pattern, matching_topics
from streamfactory.wiring.plugins.manager import PluginManager

BACKTRACKING = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from streamfactory.wiring.options.patterns import check_pattern, matching_topics
for pattern in ("(a+)+$", "(a|aa)+$", "(.*a){20}", "(x+x+)+y"):
    check_pattern(pattern)
    assert matching_topics(pattern, ["a" * 248 + "!", "x" * 249]) == []
"""

RE2 = "RE2 has neither look-ahead nor back references"


def test_pattern_that_backtracks_takes_no_time() -> None:
    # In a process of its own: a pattern that runs is not to be interrupted.
    subprocess.run([sys.executable, "-c", BACKTRACKING], check=True)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("click", []),
        ("clicks", ["clicks"]),
        ("^clicks$", ["clicks"]),
        ("(?i)CLICKS|views", ["clicks", "views"]),
        ("click.*", ["clicks", "clicks.eu"]),
        (r"\w+\.eu", ["clicks.eu"]),
        (".*", ["clicks", "clicks.eu", "views"]),
    ],
)
def test_pattern_matches_whole_names(pattern: str, matched: list[str]) -> None:
    check_pattern(pattern)
    assert matching_topics(pattern, ["clicks", "clicks.eu", "views"]) == matched
    assert matching_topics(pattern, []) == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing ): ("),
        ("a|b)(c", "unexpected ): a|b)(c"),
        (
            "(?!_).*",
            f"invalid perl operator: (?! ({RE2})",
        ),
        (
            r"(a)\1",
            rf"invalid escape sequence: \1 ({RE2})",
        ),
    ],
)
def test_bad_pattern_is_a_problem_of_the_configuration(
    pattern: str, reason: str
) -> None:
    properties = {"streamType": "memory", "subscribePattern": pattern}
    with pytest.raises(ConfigError) as caught:
        configure(from_mapping(properties), PluginManager({}), use="read")
    assert [problem.what for problem in caught.value.problems] == [
        f"{pattern!r} is not a regular expression of RE2: {reason}"
    ]


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({"stream.memory.topic.name": ""}, "is empty, but required"),
        ({"stream.memory.topic.name": "${env:EMPTY}"}, "${env:EMPTY} is empty"),
        ({"stream.memory.topic.name": "a\nb"}, "'a\\nb' contains a control character"),
        (
            {"stream.memory.topic.name": "x" * 250},
            f"'{'x' * 77}'... is longer than 249 characters",
        ),
        (
            {"subscribe": f"a,{'x' * 250}"},
            f"'a,{'x' * 75}'... names a topic that is longer than 249 characters",
        ),
        (
            {"assign": '{" ": [0]}'},
            """'{" ": [0]}' is not JSON such as {"topic": [0, 1]}""",
        ),
    ],
)
def test_name_that_no_topic_has_is_a_problem_of_the_configuration(
    properties: dict[str, str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    definition = from_mapping({"streamType": "memory", **properties})
    with pytest.raises(ConfigError) as caught:
        configure(definition, PluginManager({}), use="read")
    assert [problem.what for problem in caught.value.problems] == [what]


@pytest.mark.parametrize("kind", ["file", "socket"])
def test_name_of_a_type_with_a_topic_by_default_is_checked_too(kind: str) -> None:
    own = {
        "file": {"stream.file.path": "/nowhere"},
        "socket": {"stream.socket.connect": "127.0.0.1:1"},
    }
    properties = {"streamType": kind, f"stream.{kind}.topic.name": "x" * 300}
    definition = from_mapping(properties | own[kind])
    with pytest.raises(ConfigError, match="is longer than 249 characters"):
        configure(definition, PluginManager({}), use="read")


def test_name_that_no_folder_can_have_is_a_problem_of_the_configuration() -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": "/nowhere",
        "stream.file.topic.name": "\u00e4" * 40,
    }
    with pytest.raises(
        ConfigError, match="longer than 200 characters when URL-encoded"
    ):
        configure(from_mapping(properties), PluginManager({}), use="read")
