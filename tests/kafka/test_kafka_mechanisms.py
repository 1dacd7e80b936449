"""Mechanisms of SASL that the client does not have, or has no tokens for. No broker."""

from __future__ import annotations

import confluent_kafka
import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.logins import prop

from streamfactory.backends.kafka import rules
from streamfactory.backends.kafka.security import MECHANISMS, java_security
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager


def problems_of(more: dict[str, str]) -> dict[str, str]:
    """What is wrong with the mechanisms of a configuration, and the remedies."""
    definition = from_mapping(stream_of("a:1", "t") | more)
    found = inspect(definition, default_manager()).problems
    return {
        problem.key.removeprefix(
            "stream.kafka."
        ): f"{problem.what}; {problem.suggestion}"
        for problem in found
        if problem.level == "error"
    }


NO_TOKENS = (
    "has no source of tokens; set stream.kafka.sasl.oauthbearer.token, or "
    "sasl.oauthbearer.method=oidc"
)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sasl.mechanism": "PLAIN"}, None),
        ({"sasl.mechanisms": "SCRAM-SHA-512"}, None),
        ({"sasl.mechanism": "GSSAPI"}, None),
        ({"sasl.mechanism": "${env:MECHANISM_OF_TESTS}"}, None),
        (
            {"sasl.mechanism": "AWS_MSK_IAM"},
            (
                "is a login of Java's client; set "
                "stream.kafka.sasl.oauthbearer.token=aws-msk-iam"
            ),
        ),
        (
            {"sasl.mechanisms": "AWS_MSK_IAM"},
            (
                "is a login of Java's client; set "
                "stream.kafka.sasl.oauthbearer.token=aws-msk-iam"
            ),
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER"},
            NO_TOKENS,
        ),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}, None),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
            },
            None,
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "false",
            },
            NO_TOKENS,
        ),
        (
            {"sasl.mechanism": "scram-sha-256"},
            "is no mechanism of the client; write SCRAM-SHA-256",
        ),
        (
            {"sasl.mechanism": "EXTERNAL"},
            (
                "is no mechanism of the client; write one of GSSAPI, OAUTHBEARER, "
                "PLAIN, "
                "SCRAM-SHA-256, SCRAM-SHA-512, AWS_MSK_IAM"
            ),
        ),
        (
            {"sasl.mechanism": "PLAIN,SCRAM-SHA-256"},
            (
                "is no mechanism of the client; write one of GSSAPI, OAUTHBEARER, "
                "PLAIN, "
                "SCRAM-SHA-256, SCRAM-SHA-512, AWS_MSK_IAM"
            ),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_mechanism_that_cannot_work_is_refused(
    given: dict[str, str], problem: str | None, kind: str
) -> None:
    space = f"stream.kafka.{kind}.prop."
    found = problems_of({space + key: text for key, text in given.items()})
    key = f"{kind}.prop.{next(iter(given))}"
    assert found.get(key) == problem


def test_tokens_make_a_mechanism_work_wherever_they_are_set() -> None:
    consumer, producer = "stream.kafka.consumer.prop.", "stream.kafka.producer.prop."
    split = {
        f"{consumer}sasl.mechanism": "OAUTHBEARER",
        f"{producer}sasl.oauthbearer.client.id": "me",
    }
    assert "consumer.prop.sasl.mechanism" not in problems_of(split)
    for mechanism in ("AWS_MSK_IAM", "OAUTHBEARER"):
        given = {f"{consumer}sasl.mechanism": mechanism}
        given["stream.kafka.sasl.oauthbearer.token"] = "aws-msk-iam"
        assert not problems_of(given)


def test_signer_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda _: None)
    more = {"stream.kafka.sasl.oauthbearer.token": "aws-msk-iam"}
    more |= prop(sasl_mechanism="AWS_MSK_IAM")
    found = inspect(from_mapping(stream_of("a:1", "t") | more), default_manager())
    [warning] = [p for p in found.problems if "token" in p.key]
    assert warning.suggestion == "pip install 'streamfactory[kafka,msk]'"


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_login_of_msk_is_passed_on_as_that_of_tokens(key: str) -> None:
    assert java_security({key: "AWS_MSK_IAM"}) == {key: "OAUTHBEARER"}


@pytest.mark.parametrize("mechanism", sorted({*MECHANISMS} - {"GSSAPI"}))
def test_mechanisms_are_those_of_the_client(mechanism: str) -> None:
    login = {"sasl.mechanism": mechanism, "sasl.username": "a", "sasl.password": "b"}
    confluent_kafka.Producer({"security.protocol": "SASL_PLAINTEXT", **login})
