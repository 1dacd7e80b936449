"""Checks of the arguments of public functions: values of other kinds are refused.

A function declares what it takes beside its signature::

    @takes(follow=FLAG, columns=NAMES)
    def open(stream, *, follow=False, columns=None): ...

An argument that is annotated ``| None`` may be None. Numbers of numpy become
numbers of Python.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from streamfactory.spi.errors import MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")
"""Parameters and result of a function whose arguments are checked."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values that an argument can have.

    Args:
        taken: What is taken, as a remedy: ``pass True or False``.
        convert: Returns the value, or a TypeError or ValueError if it is of another
            kind.
    """

    taken: str
    convert: Callable[[Any], Any]

    def checked(self, name: str, value: object) -> Any:
        """Return the value of an argument.

        Raises:
            MisuseError: misuse; it is of another kind. Names what is taken instead.
        """
        try:
            return self.convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            # A value of another kind may have secrets in it.
            plain = value is None or isinstance(value, str | numbers.Number)
            kind = type(value).__name__
            shown = repr(value)[:_SHOWN] if plain else f"of type {kind!r}"
            why = f": {error}" if isinstance(error, ValueError) and error.args else ""
            msg = f"the argument {name} is {shown}{why}"
            raise MisuseError(msg, remedy=self.taken) from None


def takes(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks arguments of a function before it is called."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        checks = _checks(function, kinds)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            places: list[Any] = list(args)
            for check in checks:
                if check.name in kwargs:
                    kwargs[check.name] = check.checked(kwargs[check.name])
                elif check.place is not None:
                    last = None if check.several else check.place + 1
                    found = places[check.place : last]
                    places[check.place : last] = map(check.checked, found)
            return function(*places, **kwargs)

        return call

    return decorate


@dataclass(frozen=True, slots=True)
class _Check:
    """How one argument of a function is checked."""

    name: str
    kind: Kind
    place: int | None
    """Index among the positional arguments; None if it is passed by keyword only."""
    several: bool
    """Whether it stands for all further positional arguments."""
    optional: bool

    def checked(self, value: Any) -> Any:
        if value is None and self.optional:
            return None
        return self.kind.checked(self.name, value)


def _checks(function: Callable[..., Any], kinds: dict[str, Kind]) -> list[_Check]:
    parameters = inspect.signature(function).parameters
    found = []
    for name, kind in kinds.items():
        parameter = parameters[name]
        by_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        place = None if by_keyword else list(parameters).index(name)
        optional = str(parameter.annotation).endswith("| None")
        found.append(_Check(name, kind, place, several, optional))
    return found


def instance(*types: type, taken: str) -> Kind:
    """Return the kind of values that are instances of a class."""
    return Kind(taken, functools.partial(_instance, types))


def having(method: str, *, taken: str) -> Kind:
    """Return the kind of values that have a method."""
    return Kind(taken, functools.partial(_having, method))


def _having(method: str, value: Any) -> Any:
    if not callable(getattr(value, method, None)):
        raise TypeError
    return value


def _instance(types: tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, types):
        raise TypeError
    return value


def _count(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or number < 0:
        raise ValueError
    return number


def _seconds(value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError
    number = float(value)
    if not number >= 0:  # nor NaN
        raise ValueError
    return number


def _names(value: Any) -> list[str]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError
    return [_instance((str,), name) for name in value]


def _path(value: Any) -> str:
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError
    return path


def _position(value: Any) -> Any:
    from streamfactory.spi.positions import Position

    return _instance((Position,), value)


_SHOWN: Final = 80
"""Characters of a refused value that a message has."""
FLAG: Final = instance(bool, taken="pass True or False")
TEXT: Final = instance(str, taken="pass text")
COUNT: Final = Kind("pass a whole number, 0 or more", _count)
SECONDS: Final = Kind("pass seconds or a timedelta, 0 or more", _seconds)
NAMES: Final = Kind("pass a list of names, such as ['id', 'price']", _names)
PATH: Final = Kind("pass text or a pathlib.Path", _path)
POSITION: Final = Kind("pass a streamfactory.Position", _position)
EVENT: Final = having("is_set", taken="pass a threading.Event")
CALLABLE: Final = having("__call__", taken="pass a function")
