"""The interface for programs, asked at random for what it describes and what not."""

from __future__ import annotations

from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)
from tests.ui.conftest import TOKEN, Client, World, application, recorded
from tests.ui.test_parameters import _DEFINITION

from streamfactory.ui.programs.bodies import TOML


@schemathesis.serializer(TOML)
def toml(ctx: Any, value: Any) -> Any:
    """Send the text of a definition as it is."""
    del ctx
    return str(value).encode("utf-8", "surrogatepass")


NAMES: Final = {"name": ("clicks", "delays", "letters", "edited"), "to": ("letters",)}
"""What there is, beside random names."""
LANGUAGES: Final = ("/rows", "/audit", "/events", "/letters", "/position")
"""Paths with places, expressions and names: not each text is one."""


@pytest.mark.parametrize(
    "examples",
    [4, pytest.param(30, marks=pytest.mark.long("30 examples of each operation"))],
)
def test_nothing_that_is_asked_for_fails(world: World, examples: int) -> None:
    """Asks for each operation, with as many examples."""
    world.letters({"code": b"x"})
    (world.catalogue / "edited.toml").write_text(_DEFINITION)
    with recorded(world) as trail, application(edit=True, trail=trail) as program:
        program.site.feeds.stop()  # they would read for each query; see the tests of it
        asked_at_random(program, examples)


def asked_at_random(program: Client, examples: int) -> None:
    app = program.client.application
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app)
    operations = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        operations += 1
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        strategy = st.one_of(
            *(operation.as_strategy(generation_mode=mode) for mode in modes)
        )
        check_operation(strategy, examples)
    document = program.get("/api/v1/openapi.json").get_json()
    described = sum(len(one) for one in document["paths"].values())
    assert operations == described - 1  # all but the document itself


def check_operation(
    strategy: st.SearchStrategy[schemathesis.Case[Any]], examples: int
) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, data=st.data())
    def ask(case: schemathesis.Case[Any], data: st.DataObject) -> None:
        known = data.draw(st.booleans())
        for name in NAMES if known else ():
            if name in case.path_parameters:
                case.path_parameters[name] = data.draw(st.sampled_from(NAMES[name]))
        sent = {"Host": "localhost"}
        if case.method != "GET":
            sent["Authorization"] = f"Bearer {TOKEN}"
        response = case.call(headers=sent)
        if case.path.endswith("/events") and response.status_code == 503:
            # There are no feeds here.
            assert response.json()["class"] == "transient"
            return
        assert response.status_code < 500, (case.path, response.text)
        assert TOKEN not in response.text
        left_out = [ignored_auth]  # the token is one
        if case.method != "GET" or case.path.endswith(LANGUAGES):
            # Changes depend on what there is, too.
            left_out.append(positive_data_acceptance)
        empty = any(value in ("", {}, []) for value in (case.query or {}).values())
        if known or empty:
            # An empty value is as good as none; the name that was wrong is another.
            left_out.append(negative_data_rejection)
        case.validate_response(response, excluded_checks=left_out)

    ask()
