"""Checks of cases, and the exceptions by which a case ends early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E", bound=Exception)
"""A kind of errors."""


class Mismatch(AssertionError):
    """A case did not find what it expected."""


class HarnessFailed(Exception):
    """A method of the harness raised, or contradicts another one.

    Nothing follows about the backend.
    """


class Excluded(Exception):
    """A case finds that it does not apply here: it is skipped, and says why."""


def expect(got: object, wanted: object, what: str) -> None:
    """Fail with both sides, where they differ."""
    if got != wanted:
        msg = f"{what}: expected {_clip(wanted)}, got {_clip(got)}"
        raise Mismatch(msg)


def require(condition: object, what: str) -> None:
    """Fail with ``what`` happened, where the condition does not hold."""
    if not condition:
        raise Mismatch(what)


def expect_error(kind: type[E], what: str, call: Callable[..., Any], *given: Any) -> E:
    """The error of a call, described by ``what``, that has to raise one of a kind."""
    try:
        answer = call(*given)
    except kind as error:
        return error
    msg = f"{what} raised no {kind.__name__}, and returned {_clip(answer)}"
    raise Mismatch(msg)


def _clip(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 200 else f"{shown[:150]} ... {shown[-40:]}"
