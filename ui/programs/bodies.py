"""The bodies of requests of programs: declared beside each route, and checked.

A body is a JSON object, or the text of a definition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from flask import abort, current_app, g, request

from streamfactory.spi import MisuseError
from streamfactory.ui.parameters import LARGEST, unknown_parameter
from streamfactory.ui.programs.answers import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., object]")
"""A function of a route."""

TOML: Final = "application/toml"
_DECLARED: Final = "streamfactory_body"
_KINDS: Final = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a body."""

    name: str
    doc: str
    """One sentence."""
    kind: str = "string"
    """``string``, ``integer``, ``boolean`` or ``object``."""
    required: bool = False
    null: bool = False
    """Whether it may be null, which is not the same as a missing one."""
    words: tuple[str, ...] = ()
    """What a text may be; any if empty."""
    longest: int = 0
    """Characters of a text, at most; 0: as many as a body has."""
    least: int = 1
    """Of an integer."""
    most: int = LARGEST
    fields: tuple[Field, ...] = ()
    """Of an object; any members if empty."""

    def check(self, value: Any) -> None:
        """Refuse a value of another kind.

        Raises:
            MisuseError: misuse; it is of another JSON type, or out of range.
        """
        if value is None and self.null:
            return
        if not _is_a(value, self.kind):
            msg = f"{self.name} is no JSON {self.kind}"
            raise MisuseError(msg, remedy=self.doc)
        if self.words and value not in self.words:
            msg = f"{self.name} is {value[:80]!r}"
            raise MisuseError(msg, remedy=f"use one of {', '.join(self.words)}")
        if self.longest and len(value) > self.longest:
            msg = f"{self.name} has more than {self.longest} characters"
            raise MisuseError(msg, remedy="give a shorter one")
        if self.kind == "integer" and not self.least <= value <= self.most:
            msg = f"{self.name} is not from {self.least} to {self.most}"
            raise MisuseError(msg, remedy=self.doc)
        if self.fields:
            _check(value, self.fields, f"{self.name}.")

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        kind: Any = [self.kind, "null"] if self.null else self.kind
        found: dict[str, Any] = {"type": kind, "description": self.doc}
        if self.words:
            found["enum"] = [*self.words, *([None] if self.null else [])]
        if self.longest:
            found["maxLength"] = self.longest
        if self.kind == "integer":
            found |= {"minimum": self.least, "maximum": self.most}
        if self.fields:
            found |= _schema(self.fields)
        return found


def _is_a(value: Any, kind: str) -> bool:
    """Whether a value is of a JSON type: true is no integer."""
    return type(value) is _KINDS[kind]


def takes_body(*fields: Field) -> Callable[[F], F]:
    """Declare the members of the JSON object that a route takes."""

    def declare(function: F) -> F:
        setattr(function, _DECLARED, fields)
        return function

    return declare


def takes_definition(function: F) -> F:
    """Declare that a route takes the text of a definition, as TOML."""
    setattr(function, _DECLARED, TOML)
    return function


def body_schema(endpoint: str) -> dict[str, Any] | None:
    """The body that a route takes, for the description; None if it takes none."""
    found = getattr(current_app.view_functions[endpoint], _DECLARED, None)
    if found is None:
        return None
    if found == TOML:
        return {TOML: {"schema": {"type": "string"}}}
    return {JSON: {"schema": {"type": "object", **_schema(found)}}}


def with_body(view: Callable[..., Any]) -> Callable[..., Any]:
    """A route whose body is checked before its rights, which may depend on it."""
    declared = getattr(view, _DECLARED, None)
    if declared is None:
        return view

    @wraps(view)
    def check(*arguments: Any, **named: Any) -> Any:
        if declared == TOML:
            g.body = _text()
        else:
            g.body = _object()
            _check(g.body, declared)
        return view(*arguments, **named)

    return check


def body() -> Any:
    """The body of the request: a checked object, or a text."""
    return g.body


def _schema(fields: tuple[Field, ...]) -> dict[str, Any]:
    return {
        "properties": {one.name: one.schema() for one in fields},
        "required": [one.name for one in fields if one.required],
        "additionalProperties": False,
    }


def _check(found: Mapping[str, Any], fields: tuple[Field, ...], of: str = "") -> None:
    known = {one.name: one for one in fields}
    for name, value in found.items():
        if name not in known:
            full = of + name
            raise unknown_parameter(full, [of + one for one in known])
        known[name].check(value)
    for one in fields:
        if one.required and one.name not in found:
            msg = f"{of}{one.name} is missing"
            raise MisuseError(msg, remedy=one.doc)


def _text() -> str:
    _expect_kind(TOML)
    try:
        return request.get_data().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"the body is not UTF-8 at byte {error.start}"
        raise MisuseError(msg, remedy="send the text of a file") from None


def _object() -> dict[str, Any]:
    _expect_kind(JSON)
    try:
        found = json.loads(
            request.get_data().decode(),
            object_pairs_hook=_members,
            parse_constant=_refused,
        )
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = "the body is no JSON object, or has a member twice"
        raise MisuseError(msg, remedy='send {"name": value, ...}')
    return found


def _expect_kind(kind: str) -> None:
    if request.mimetype != kind or request.headers.get("Content-Encoding"):
        abort(415, f"Send Content-Type: {kind}, without an encoding.")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a member is given twice"
        raise ValueError(msg)
    return found


def _refused(text: str) -> NoReturn:
    msg = f"{text} is no JSON"
    raise ValueError(msg)
