"""The rights that calls need: by their effect, whatever the call is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.backends.flight.server.access import Right
from streamfactory.backends.flight.server.actions import (
    ACTIONS,
    GroupAction,
    ServerAction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Effect(NamedTuple):
    """What a call does, and the rights that it needs."""

    what: str
    call: str
    rights: frozenset[Right]
    """On the topic, or on the group of readers; all of them."""
    of_group: bool = False


METHODS: Final[Mapping[str, tuple[str, Right]]] = {
    "GetFlightInfo": ("Endpoints and bounds of a topic.", Right.READ),
    "GetSchema": ("The schema of a topic.", Right.READ),
    "DoGet": ("Rows of a partition.", Right.READ),
    "DoExchange, subscription": ("Rows of a partition, on request.", Right.READ),
    "DoPut": ("Stage rows, or append those of a plain put.", Right.WRITE),
    "DoExchange, commits": ("Append epochs.", Right.WRITE),
}
"""Calls that are no actions: what they do and the right that they need."""

SHORTENING: Final[Mapping[str, str]] = {
    "replace": "Remove all earlier rows.",
    "retention": "Remove rows that a retention does not keep.",
    "writer_memory_ms": "Forget writers that were idle for a time of the client's.",
}
"""Members of commits that do more than append: they need `Right.ADMIN`, too."""


def shortening(*messages: Any) -> Iterator[str]:
    """Yield the members of a commit's messages that need `Right.ADMIN`."""
    for name in SHORTENING:
        values = [getattr(one, name, None) for one in messages]
        # By identity: 0 equals False, and forgets all writers.
        if any(value is not None and value is not False for value in values):
            yield name


def effects() -> Iterator[Effect]:
    """Yield every effect of every call."""
    yield Effect("Topics that the client may read.", "ListFlights", frozenset())
    for call, (what, right) in METHODS.items():
        yield Effect(what, call, frozenset({right}))
    for name, action in ACTIONS.items():
        if isinstance(action, ServerAction):
            yield Effect(action.doc, name, frozenset())
            continue
        of_group = isinstance(action, GroupAction)
        yield Effect(action.doc, name, frozenset({action.right}), of_group)
    for member, what in SHORTENING.items():
        for call in ("commit", "DoExchange, commits"):
            needed = frozenset({Right.WRITE, Right.ADMIN})
            yield Effect(what, f"{call} with {member}", needed)
