"""The interface for programs, asked at random for what it describes and what not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)
from tests.ui.conftest import TOKEN

if TYPE_CHECKING:
    from tests.ui.conftest import Client

_EXAMPLES = 15
"""Of each operation."""


def test_nothing_that_is_asked_for_fails(program: Client) -> None:
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

        @settings(
            max_examples=_EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def ask(case: schemathesis.Case[Any]) -> None:
            response = case.call(headers={"Host": "localhost"})
            assert response.status_code < 500, response.text
            assert TOKEN not in response.text
            left_out = list[Any]()
            if case.path.endswith(("/rows", "/audit")):
                # Places and expressions are languages: not each text is one.
                left_out.append(positive_data_acceptance)
            if any(value in ("", {}, []) for value in (case.query or {}).values()):
                # An empty value is as good as none.
                left_out.append(negative_data_rejection)
            case.validate_response(response, excluded_checks=left_out)

        ask()
    document = program.get("/api/v1/openapi.json").get_json()
    assert operations == len(document["paths"]) - 1  # all but the document itself
