"""What happened to configurations of others. Numbers are Apache Pinot's."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.configure import configure, inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from tests.scenarios.conftest import Environment

    from streamfactory.spi import Problem


def problems(stream: Environment, **options: str) -> dict[str, Problem]:
    definition = from_mapping(stream.properties(**options))
    found = inspect(definition, PluginManager(), use="read").problems
    return {problem.key: problem for problem in found}


def test_unknown_keys_are_reported_all_at_once_with_the_nearest(
    stream: Environment,
) -> None:
    """apache/pinot #7476, #5942, #8514: unknown keys were log lines of a client."""
    typo = f"stream.{stream.broker.kind}.fetch.timeout.milis"
    options = {typo.replace(".", "__"): "5", "startingOfsets": "earliest"}
    found = problems(stream, **options)
    assert set(found) == {typo, "startingOfsets"}
    assert found["startingOfsets"].suggestion == "did you mean startingOffsets?"
    near = f"did you mean stream.{stream.broker.kind}.fetch.timeout.millis?"
    assert found[typo].suggestion == near
    assert {problem.level for problem in found.values()} == {"error"}


def test_key_that_does_nothing_is_not_accepted(stream: Environment) -> None:
    """apache/pinot #13378: stream.kafka.consumer.group.id does nothing."""
    key = f"stream.{stream.broker.kind}.consumer.group.id"
    found = problems(stream, **{key.replace(".", "__"): "mine"})
    assert found[key].level == "error"
    assert found[key].what == "unknown option"


def test_key_without_effect_here_is_reported(stream: Environment) -> None:
    """apache/pinot #5551, #9260: settings that were silently ignored."""
    found = problems(stream, maxOffsetsPerTrigger="100", includeHeaders="true")
    assert "has no effect here" in found["maxOffsetsPerTrigger"].what
    assert found["includeHeaders"].what == "has no effect without metadata.columns"
    assert "error" not in {problem.level for problem in found.values()}


def test_bad_value_is_no_default(stream: Environment) -> None:
    """apache/pinot #9260, #8514: a value that cannot be read fell back to a default."""
    found = problems(stream, out__of__range="soonest", metadata__refresh__millis="1x")
    assert set(found) == {"out.of.range", "metadata.refresh.millis"}
    assert {problem.level for problem in found.values()} == {"error"}


def test_two_words_for_one_thing_may_not_disagree(stream: Environment) -> None:
    """apache/pinot #8309, #12608: two settings, nearly the same name, one ignored."""
    options = {"out__of__range": "latest", "failOnDataLoss": "true"}
    with pytest.raises(ConfigError) as caught:
        stream.open(options=options)
    [problem] = caught.value.problems
    assert "out.of.range" in str(problem)
    assert "failOnDataLoss" in str(problem)
    agreed = {"out__of__range": "fail", "failOnDataLoss": "true"}
    assert problems(stream, **agreed) == {}


def test_secrets_are_references_and_masked_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """apache/pinot #6232, #6271, #6823, #13983, #19184: secrets in table configs."""
    from tests.specimens import Author

    secret = "hunter2-hunter2"
    monkeypatch.setenv("PASSWORD", secret)
    author = Author()
    author.bounds(0, 0)
    by_reference = {"stream.script.password": "${env:PASSWORD}"}
    with author.open(options=by_reference) as opened:
        config = opened.config
        assert config["password"] == secret
        assert secret.encode() not in pickle.dumps(config)
        assert config.mask(f"refused: {secret}") == "refused: ***"
    literal = from_mapping(author.properties(stream__script__password=secret))
    configured = configure(literal, author.manager(), use="read")
    assert secret not in repr(configured.config)
    [warning] = configured.config.warnings
    assert warning.what == "contains a literal secret"
    assert secret not in str(warning)
