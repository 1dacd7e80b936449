"""The description of ``/api/v1`` in OpenAPI 3.1, made from what its routes declare."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flask import current_app

from streamfactory.transfer.auditing import SCHEMA as AUDIT
from streamfactory.ui.parameters import parameters_of
from streamfactory.ui.problems import PROBLEM, STATUSES
from streamfactory.ui.programs.bodies import body_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from werkzeug.routing import Rule

    from streamfactory.ui.parameters import Parameter

F = TypeVar("F", bound="Callable[..., object]")
"""A function of a route."""

_ANSWERS: Final = "streamfactory_answers"
_CONDITION: Final = "streamfactory_condition"
_SAFE: Final = ("GET",)
_BOOLEAN: Final = {"type": "boolean"}
_INTEGER: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": "string"}
_MAYBE: Final = {"type": ["string", "null"]}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    """An object that has these members, and maybe others."""
    found: dict[str, Any] = {"type": "object", "required": required.split()}
    return {**found, "properties": properties}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_OBJECT_OR_NULL: Final = {"type": ["object", "null"]}
_JOB: Final = _object(
    "number title state rows streams result error",
    number={"type": "integer", "minimum": 1},
    title=_TEXT,
    state={"enum": ["running", "done", "failed"]},
    rows={"type": "integer", "minimum": 0},
    streams=_list(_TEXT),
    result=_OBJECT_OR_NULL,
    error=_OBJECT_OR_NULL,
)
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
    "Text": _TEXT,
    "Topics": _object(
        "items count", items=_list(_TEXT), count={"type": "integer", "minimum": 0}
    ),
    "Hop": _object(
        "element left_out", element={"type": "object"}, left_out=_list(_TEXT)
    ),
    "Checkpoint": _object(
        "history changes", history=_list({"type": "object"}), changes=_list(_TEXT)
    ),
    "Edit": _object(
        "name file what made difference users problems check href",
        name=_TEXT,
        file=_MAYBE,
        what=_TEXT,
        made=_BOOLEAN,
        difference=_list(_object("kind text", kind=_TEXT, text=_TEXT)),
        users=_list(_TEXT),
        problems=_list(_object("level key text line", line=_INTEGER)),
        check={"type": ["object", "null"]},
        href=_MAYBE,
    ),
    "Position": _object(
        "name stream position",
        name=_TEXT,
        stream=_MAYBE,
        position={"type": "object"},
    ),
    "Move": _object(
        "made before after moves again skipped",
        made=_BOOLEAN,
        before={"type": "object"},
        after={"type": "object"},
        moves=_list({"type": "object"}),
        again=_INTEGER,
        skipped=_INTEGER,
    ),
    "Topic": _object(
        "topic partitions facts",
        topic=_TEXT,
        partitions={"type": "integer", "minimum": 0},
        facts={"type": "object"},
    ),
    "Change": _object(
        "made what details", made=_BOOLEAN, what=_TEXT, details=_list(_TEXT)
    ),
    "Letters": _object("to letters", to=_TEXT, letters=_list({"type": "object"})),
    "Replay": _object(
        "made to resolved unresolved job", made=_BOOLEAN, to=_TEXT, job=_INTEGER
    ),
    "Jobs": _object("items", items=_list(_JOB)),
    "Job": _JOB,
    "Run": _object(
        "number state pace began", number=_INTEGER, state=_MAYBE, pace=_MAYBE
    ),
    "Control": _object(
        "job pause rate", job=_TEXT, pause=_OBJECT_OR_NULL, rate=_OBJECT_OR_NULL
    ),
    "Controls": _object("items", items=_list({"type": "object"})),
    "Events": _TEXT,
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


def answers(
    schema: str, *kinds: str, only: str = "", status: tuple[int, ...] = (200,)
) -> Callable[[F], F]:
    """Declare what a route answers.

    Args:
        schema: A name of `SCHEMAS`, of its JSON.
        kinds: Further media types that it answers with.
        only: A media type that it answers with instead of JSON.
        status: The status of answers.
    """
    types: dict[str, Any] = {kind: {} for kind in kinds}
    of_schema = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    content = {only or "application/json": of_schema, **types}

    def declare(function: F) -> F:
        setattr(function, _ANSWERS, (content, status))
        return function

    return declare


def takes_condition(*, creates: bool = False) -> Callable[[F], F]:
    """Declare that a route requires ``If-Match``.

    Args:
        creates: Whether it takes ``If-None-Match: *`` instead, which creates something.
    """

    def declare(function: F) -> F:
        setattr(function, _CONDITION, ("If-Match", "If-None-Match")[: 1 + creates])
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
            path = _NAME.sub(r"{\1}", rule.rule.removeprefix(prefix))
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                paths.setdefault(path, {})[method.lower()] = _operation(rule, method)
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


def _operation(rule: Rule, method: str) -> dict[str, Any]:
    function = current_app.view_functions[rule.endpoint]
    content, statuses = getattr(function, _ANSWERS)
    summary, _, more = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    refused = {
        "description": "A problem",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    found = {"description": _DONE[method], "content": content}
    responses = {str(status): found for status in statuses}
    codes = {*STATUSES, 401, 403, 404, 406, 421}
    if method in _SAFE:
        responses["304"] = {"description": "The client has it: its ETag was sent"}
    else:
        codes |= {412, 413, 415, 428}
    operation = {
        "operationId": rule.endpoint.partition(".")[2],
        "summary": summary,
        "description": more,
        "parameters": [
            *_of_path(rule),
            *map(_of_query, parameters_of(rule.endpoint)),
            *map(_of_header, getattr(function, _CONDITION, ())),
        ],
        "responses": {**responses, **{str(code): refused for code in sorted(codes)}},
    }
    if method not in _SAFE:
        operation["security"] = [{"token": []}]
    if (body := body_schema(rule.endpoint)) is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


_NAME: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_DONE: Final = {
    "GET": "What was asked for",
    "PUT": "What was changed, or would be",
    "POST": "What was changed or begun, or would be",
    "PATCH": "What was changed, or would be",
    "DELETE": "What was deleted, or would be",
}


def _of_path(rule: Rule) -> Iterator[dict[str, Any]]:
    for name in _NAME.findall(rule.rule):
        number = f"<int:{name}>" in rule.rule
        schema = {"type": "integer", "minimum": 0} if number else _TEXT
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _of_header(name: str) -> dict[str, Any]:
    docs = {
        "If-Match": "The ETag of what is changed.",
        "If-None-Match": "An asterisk, to create what does not exist.",
    }
    found = {"name": name, "in": "header", "required": False, "schema": _TEXT}
    return {**found, "description": docs[name]}


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
