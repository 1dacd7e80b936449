"""What each route takes: its parameters are declared beside it, and checked before it.

Forms in browsers send empty fields, so an empty value is as good as none.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flask import current_app, request

from streamfactory.spi import MisuseError
from streamfactory.ui.problems import is_for_programs

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.datastructures import MultiDict

F = TypeVar("F", bound="Callable[..., object]")
"""A function of a route."""

LARGEST: Final = (1 << 63) - 1
"""Of all numbers: offsets are signed, with 64 bits."""
_DECLARED: Final = "streamfactory_parameters"
_ALWAYS: Final = ("csrf", "username")
"""Fields that forms of any page may have."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query, or one field of a form."""

    name: str
    doc: str = ""
    """One sentence."""
    words: tuple[str, ...] = ()
    """What it may be; any text if empty."""
    least: int | None = None
    """Of a number; None for a text."""
    most: int = LARGEST
    required: bool = False
    many: bool = False
    """Whether the name is the beginning of many names."""

    def check(self, value: str) -> None:
        """Refuse a value of another kind.

        Raises:
            MisuseError: misuse; it is none of the words, or no number of the range.
        """
        if self.words and value not in self.words:
            msg = f"{self.name} is {value[:80]!r}"
            raise MisuseError(msg, remedy=f"use one of {', '.join(self.words)}")
        if self.least is not None and not (
            value.isascii()
            and value.isdecimal()
            and len(value) < 20
            and self.least <= int(value) <= self.most
        ):
            msg = f"{self.name} is {value[:80]!r}, which is no number of its range"
            remedy = f"give a whole number from {self.least} to {self.most}"
            raise MisuseError(msg, remedy=remedy)


PAGE_NUMBER: Final = Parameter("page", "The page of a long table.", least=1)


def takes_parameters(*parameters: Parameter) -> Callable[[F], F]:
    """Declare what a route takes: of its query, or for `POST` of a page of its form."""

    def declare(function: F) -> F:
        setattr(function, _DECLARED, parameters)
        return function

    return declare


def parameters_of(endpoint: str) -> tuple[Parameter, ...]:
    """What a route takes."""
    function = current_app.view_functions[endpoint]
    found: tuple[Parameter, ...] = getattr(function, _DECLARED, ())
    return found


def checked(view: Callable[..., Any]) -> Callable[..., Any]:
    """A route that checks the query and the form, when its rights are checked.

    It raises a `MisuseError` where a name is unknown or given twice, a value has
    another kind, or one that is required is missing.
    """
    declared: tuple[Parameter, ...] = getattr(view, _DECLARED, ())

    @wraps(view)
    def check(*arguments: Any, **named: Any) -> Any:
        if request.method == "POST" and not is_for_programs():
            _check(request.args, ())
            _check(request.form, declared)
        else:
            _check(request.args, declared)
        return view(*arguments, **named)

    return check


def _check(given: MultiDict[str, str], declared: tuple[Parameter, ...]) -> None:
    known = {one.name: one for one in declared}
    several = tuple(one.name for one in declared if one.many)
    for name, values in given.lists():
        if name in _ALWAYS or (several and name.startswith(several)):
            continue
        if name not in known:
            raise unknown_parameter(name, [*known])
        if len(values) > 1:
            msg = f"{name} is given {len(values)} times"
            raise MisuseError(msg, remedy="give it once")
        if values[0]:
            known[name].check(values[0])
    for one in declared:
        if one.required and not given.get(one.name):
            msg = f"{one.name} is missing"
            raise MisuseError(msg, remedy=one.doc or "give it")


def unknown_parameter(name: str, known: list[str]) -> MisuseError:
    """The error for a parameter that a route does not take."""
    msg = f"there is no parameter {name[:80]!r}"
    near = difflib.get_close_matches(name[:80], known, 1)
    if near:
        return MisuseError(msg, remedy=f"did you mean {near[0]!r}?")
    some = f"use one of {', '.join(known)}" if known else "there are none here"
    return MisuseError(msg, remedy=some)
