"""Separates failures of a harness from failures of the backend under test."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, final

from streamfactory.conformance.expectations import Excluded, HarnessFailed, Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class GuardedHarness:
    """A harness whose methods raise `HarnessFailed` for whatever they raise.

    Attributes that are no methods are passed through, and so is the absence of one: an
    ability of the harness is an ability of this object.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return guarded(found, self._inner, name) if callable(found) else found


def guarded(method: Callable[..., Any], owner: Any, name: str) -> Callable[..., Any]:
    """A method of a harness, or its class, whose errors name the harness."""
    kind = owner if isinstance(owner, type) else type(owner)

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except (Mismatch, Excluded, HarnessFailed):
            raise
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}"
            msg = f"{kind.__qualname__}.{name} raised {what}"
            raise HarnessFailed(msg) from error

    return call
