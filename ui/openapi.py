"""The description of ``/api/v1`` in OpenAPI 3.1, made from what its routes declare."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flask import current_app

from streamfactory.transfer.auditing import SCHEMA as AUDIT
from streamfactory.ui.parameters import parameters_of
from streamfactory.ui.problems import PROBLEM, STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from werkzeug.routing import Rule

    from streamfactory.ui.parameters import Parameter

F = TypeVar("F", bound="Callable[..., object]")
"""A function of a route."""

_ANSWERS: Final = "streamfactory_answers"
_INTEGER: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": "string"}
_MAYBE: Final = {"type": ["string", "null"]}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    """An object that has these members, and maybe others."""
    found: dict[str, Any] = {"type": "object", "required": required.split()}
    return {**found, "properties": properties}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_PROBLEMS: Final = _list(_object("level text", level=_TEXT, text=_TEXT))
SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "OpenApi": _object("openapi info paths", openapi=_TEXT),
    "Names": _object(
        "items count page",
        items=_list(_object("name href", name=_TEXT, href=_TEXT)),
        count={"type": "integer", "minimum": 0},
        page={"type": "integer", "minimum": 1},
    ),
    "Stream": _object(
        "name description origin type problems guarantees effective",
        name=_TEXT,
        description=_TEXT,
        origin=_TEXT,
        type=_MAYBE,
        problems=_PROBLEMS,
        guarantees=_list(_object("role guarantee reasons", guarantee=_MAYBE)),
        effective=_list({"type": "object"}),
        decoder=_MAYBE,
        dead_letters=_MAYBE,
        spool=_MAYBE,
    ),
    "Partitions": _object(
        "partitions held latest schema",
        partitions=_list(
            _object(
                "topic partition earliest latest held state incarnation",
                topic=_TEXT,
                partition={"type": "integer", "minimum": 0},
                earliest=_INTEGER,
                latest=_INTEGER,
                held=_INTEGER,
                state=_TEXT,
                incarnation=_MAYBE,
            )
        ),
        held=_INTEGER,
        latest=_INTEGER,
        schema=_list(_object("name type null", name=_TEXT, type=_TEXT)),
    ),
    "Lags": _object(
        "items",
        items=_list(
            _object("name stream behind", name=_TEXT, stream=_TEXT, behind=_INTEGER)
        ),
    ),
    "Rows": _object(
        "items next previous more",
        items=_list({"type": "object"}),
        next=_TEXT,
        previous=_TEXT,
        more={"type": "boolean"},
    ),
    "Audit": _object(
        "items previous more",
        items=_list(
            _object(" ".join(AUDIT.names), **dict.fromkeys(AUDIT.names, _TEXT))
        ),
        previous=_TEXT,
        more={"type": "boolean"},
    ),
    "Pipeline": _object(
        "name description problems steps sinks sources guarantee",
        name=_TEXT,
        description=_TEXT,
        problems=_PROBLEMS,
        steps=_list({"type": "object"}),
        sinks=_list({"type": "object"}),
        sources=_list(_TEXT),
    ),
    "Metrics": _object(
        "items",
        items=_list(
            _object(
                "name labels value",
                name=_TEXT,
                labels={"type": "object"},
                value={"type": ["number", "null"]},
            )
        ),
    ),
    "Problem": _object(
        "type title status detail",
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        code=_TEXT,
        right=_TEXT,
        remedy=_MAYBE,
        stream=_MAYBE,
        partition=_MAYBE,
        offset=_INTEGER,
    ),
}
"""What routes answer, by name."""


def answers(schema: str, *kinds: str) -> Callable[[F], F]:
    """Declare what a route answers.

    Args:
        schema: A name of `SCHEMAS`, of its JSON.
        kinds: Further media types that it answers with.
    """

    def declare(function: F) -> F:
        setattr(function, _ANSWERS, (schema, kinds))
        return function

    return declare


def described(prefix: str, server: str) -> dict[str, Any]:
    """The document.

    Args:
        prefix: Of the paths that it describes.
        server: Where clients find them.
    """
    paths: dict[str, Any] = {}
    for rule in current_app.url_map.iter_rules():
        if rule.rule.startswith(prefix):
            path = re.sub(r"<(\w+)>", r"{\1}", rule.rule.removeprefix(prefix))
            paths[path] = {"get": _operation(rule)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamfactory", "version": "1"},
        "servers": [{"url": server}],
        "security": [{}, {"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(rule: Rule) -> dict[str, Any]:
    function = current_app.view_functions[rule.endpoint]
    schema, kinds = getattr(function, _ANSWERS)
    summary, _, more = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    content: dict[str, Any] = {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    }
    content |= {kind: {} for kind in kinds}
    refused = {
        "description": "A problem",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    codes = sorted({*STATUSES, 401, 403, 404, 406, 421})
    return {
        "operationId": rule.endpoint.partition(".")[2],
        "summary": summary,
        "description": more,
        "parameters": [*_of_path(rule), *map(_of_query, parameters_of(rule.endpoint))],
        "responses": {
            "200": {"description": "What was asked for", "content": content},
            "304": {"description": "The client has it: its ETag was sent"},
            **{str(code): refused for code in codes},
        },
    }


def _of_path(rule: Rule) -> Iterator[dict[str, Any]]:
    for name in sorted(rule.arguments):
        yield {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _of_query(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if one.least is not None:
        schema = {"type": "integer", "minimum": one.least, "maximum": one.most}
    elif one.words:
        schema["enum"] = list(one.words)
    return {
        "name": one.name,
        "in": "query",
        "required": one.required,
        "description": one.doc,
        "schema": schema,
    }
