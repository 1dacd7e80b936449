"""What each route needs: rights are declared beside it, and checked before it.

A route without a declaration is a defect: `permitted` refuses to make one. The rights
follow the effect of a request, and not its path: a change that is confirmed is looked
up, and the rights are those for what it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from flask import abort, current_app, g, request
from werkzeug.exceptions import Forbidden, HTTPException, Unauthorized

from streamfactory.spi import ConfigError, UnknownStream
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.masking import has_masks
from streamfactory.ui.people import ANYBODY, EVERYTHING, PIPELINES, STREAMS, Right
from streamfactory.ui.site import site
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

F = TypeVar("F", bound="Callable[..., object]")
"""A function of a route."""

_DECLARED: Final = "streamfactory_rights"
_VERBS: Final = {
    Right.READ: "read",
    Right.VALUES: "see the values of",
    Right.OPERATE: "operate",
    Right.EDIT: "edit",
}


class Thing(NamedTuple):
    """What a right is needed for."""

    kind: str
    """`STREAMS` or `PIPELINES`."""
    name: str

    def __str__(self) -> str:
        if self.name == EVERYTHING:
            return f"all {self.kind}"
        return f"the {self.kind.removesuffix('s')} {self.name!r}"


class RightMissing(Forbidden):
    """A user has not the right that a request needs."""

    def __init__(self, right: Right, of: Thing | None) -> None:
        what = "anything" if of is None else str(of)
        text = f"{g.user.name} may not {_VERBS[right]} {what}: "
        super().__init__(f"{text}the right {right.value} is missing.")
        self.right = right


@dataclass(frozen=True, slots=True)
class Rule:
    """A right that a route needs."""

    right: Right | None
    """None: it is open to everybody."""
    of: str
    """For what, in the table of the documentation."""
    things: Callable[[], Iterable[Thing]] | None = None
    """For which things, by the request; None: for any."""
    masks: bool = False
    """Whether `READ` suffices for a stream with masks, whose rows are masked then."""

    def check(self) -> None:
        """Refuse a request of a user who has not the right.

        Raises:
            RightMissing: The user has it not.
            Unauthorized: Nobody is logged in.
        """
        if self.right is None:
            return
        if self.things is not None:
            for one in self.things():
                masked = self.masks and has_masks(one.name)
                require(Right.READ if masked else self.right, one)
        elif not site().access.rights.may_some(g.user, self.right):
            g.needed = self.right, None
            raise _refusal(self.right, None)


def needs(*rules: Rule) -> Callable[[F], F]:
    """Declare the rights that a route needs, all of them."""

    def declare(function: F) -> F:
        setattr(function, _DECLARED, rules)
        return function

    return declare


def rules_of(endpoint: str) -> tuple[Rule, ...]:
    """The rights that a route needs."""
    found: tuple[Rule, ...] = getattr(current_app.view_functions[endpoint], _DECLARED)
    return found


def permitted(view: Callable[..., Any]) -> Callable[..., Any]:
    """A route that checks the rights of its user first.

    Raises:
        AttributeError: It declares none.
    """
    rules: tuple[Rule, ...] = getattr(view, _DECLARED)

    @wraps(view)
    def check(*arguments: Any, **named: Any) -> Any:
        for rule in rules:
            rule.check()
        return view(*arguments, **named)

    return check


def may(right: Right, kind: str, name: str) -> bool:
    """Whether the user of the request has a right."""
    return site().access.rights.may(g.user, right, kind, name)


def require(right: Right, thing: Thing) -> None:
    """Refuse what the user of the request may not do.

    Raises:
        RightMissing: The user has not the right.
        Forbidden: It would change the record of changes.
    """
    g.needed = right, thing
    if not may(right, *thing):
        raise _refusal(right, thing)
    trail = site().trail
    changes = right in (Right.OPERATE, Right.EDIT)
    if changes and trail is not None and thing == Thing(STREAMS, trail.name):
        abort(403, f"{thing} is the record of changes: it is only appended to.")


def _refusal(right: Right, thing: Thing | None) -> HTTPException:
    if g.user is ANYBODY:
        return Unauthorized("Log in first.")
    return RightMissing(right, thing)


def visible(kind: str, names: Iterable[str], right: Right = Right.READ) -> list[str]:
    """Those names for which the user has a right."""
    return [name for name in names if may(right, kind, name)]


# --- rules ----------------------------------------------------------------------


OPEN: Final = Rule(None, "everybody")


def of_some(right: Right) -> Rule:
    """A right for anything: the route shows what the user may see of it."""
    return Rule(right, "anything; shows what the user has it for")


def of_everything(right: Right) -> Rule:
    """A right for all streams and pipelines."""
    everything = [Thing(STREAMS, EVERYTHING), Thing(PIPELINES, EVERYTHING)]
    return Rule(right, "all streams and pipelines", lambda: everything)


def of_stream(right: Right) -> Rule:
    """A right for the stream that the request names."""
    return Rule(right, "the stream", _named_stream)


def of_rows() -> Rule:
    """The right to see the rows of the stream, or to see them masked."""
    text = "the stream; or `read`, if it has masks"
    return Rule(Right.VALUES, text, _named_stream, masks=True)


def of_pipeline(right: Right) -> Rule:
    """A right for the pipeline that the request names."""
    return Rule(right, "the pipeline", lambda: [Thing(PIPELINES, _given("name"))])


def the_stream(name: str) -> Thing:
    """The stream that a client calls by its name, or by that of its file.

    Raises:
        RightMissing: There is none, and the user may not read a stream of that name.
        UnknownStream: config; there is none. Names others only to users who may read
            all.
        ConfigError: config; see `Catalogue.get`.
    """
    try:
        return Thing(STREAMS, catalogue().get(name).name)
    except ConfigError:
        if may(Right.READ, STREAMS, EVERYTHING):
            return Thing(STREAMS, Catalogue().get(name).name)  # its error has the names
        require(Right.READ, Thing(STREAMS, name))
        msg = f"no stream can be used by the name {name!r}"
        remedy = "the overview lists those that you may see"
        raise UnknownStream(msg, remedy=remedy) from None


def _named_stream() -> Iterator[Thing]:
    for name in {_given("stream"), _given("name")} - {""} or {""}:
        yield the_stream(name)


def _given(key: str) -> str:
    """A name in the path, the query, or the form of the request."""
    values = request.form if request.method == "POST" else request.args
    return str((request.view_args or {}).get(key) or values.get(key, ""))
