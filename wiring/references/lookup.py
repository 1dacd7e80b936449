"""Looks references up: finds their scheme, keeps deadlines, values and secrets.

`streamfactory.spi.references` calls the functions, from any thread. One table serves
the process: streams that share a secret ask for it once.
"""

from __future__ import annotations

import copy
import math
import os
import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, cast

from streamfactory.spi import (
    ConnectionFailed,
    ContractBroken,
    PluginError,
    StreamError,
    StreamTimeout,
    UnknownPlugin,
)
from streamfactory.spi.hooks import REFERENCES, ResolvedReference
from streamfactory.spi.references import MAX_RESOLVED, clip_reference
from streamfactory.wiring.plugins.known import KNOWN_SCHEMES
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.spi.hooks import ReferenceScheme

_MOST_KEPT: Final = 4096
"""References whose values a process keeps: the one used longest ago is dropped."""
_MOST_HUNG: Final = 3
"""Threads of one reference that wait for ever: more are not begun."""
_PAST: Final = 8
"""Values of one reference that are masked: secrets are replaced while clients that hold
the former ones still report errors."""


@dataclass(slots=True)
class _Kept:
    """What is known of one reference of a remote scheme."""

    values: deque[str] = field(default_factory=lambda: deque(maxlen=_PAST), repr=False)
    """Newest last."""
    until: float = -math.inf
    """When the newest is looked up again, by the monotonic clock."""
    running: Future[ResolvedReference] | None = None
    """A look-up that others wait for, too."""
    ends: float = math.inf
    """The deadline of that look-up, by the monotonic clock."""
    hung: int = 0
    """Look-ups that have not returned long after their deadlines."""


_lock = threading.Lock()
_kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
_silent: dict[str, float] = {}
"""Until when a scheme that did not answer is not asked again, by the monotonic clock:
a file with twenty references to a silent server is refused after one deadline."""


def _after_fork() -> None:
    # The threads of running look-ups, and whoever held the lock, are not in the child.
    global _lock  # noqa: PLW0603 - a new lock, as the old one may be held for ever
    _lock = threading.Lock()
    _silent.clear()
    for kept in _kept.values():
        kept.running, kept.hung = None, 0


os.register_at_fork(after_in_child=_after_fork)


def reason_unusable(scheme: str) -> str | None:
    """Why there is no such scheme, with those that there are; None if it is."""
    try:
        default_manager().scheme(scheme)
    except UnknownPlugin as error:
        install = KNOWN_SCHEMES.get(scheme)
        hint = install or error.remedy or f"write {' or '.join(_examples())}"
        return f"{error.what}; {hint}"
    except PluginError as error:
        return "; ".join(filter(None, (error.what, error.remedy)))
    return None


def value(scheme: str, what: str) -> str:
    """The value of a reference, looked up or kept. Raises as `references.resolve`."""
    found = default_manager().scheme(scheme)
    if not found.remote:
        return _ask(found, what).value
    key = (scheme, what)
    with _lock:
        kept = _kept.setdefault(key, _Kept())
        _kept.move_to_end(key)
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
        now = time.monotonic()
        if now < kept.until:
            return kept.values[-1]
        running, mine = kept.running, False
        if running is None or now >= kept.ends:
            if running is not None:  # it is left to its thread
                kept.running = None
                kept.hung += 1
            if now < _silent.get(scheme, -math.inf) or kept.hung >= _MOST_HUNG:
                raise _not_answered(found, what)
            running = kept.running = Future()
            kept.ends = now + found.timeout_seconds
            mine = True
        ends = kept.ends
    if mine:
        _start(found, what, kept, running)
    try:
        return running.result(ends - now).value
    except StreamError as error:
        # A copy for each that waited: it gets the place of a stream.
        raise copy.copy(error) from None
    except FutureTimeout:
        with _lock:
            _silent[scheme] = ends + found.timeout_seconds
        raise _not_answered(found, what) from None


def known_values(scheme: str, what: str) -> Iterable[str]:
    """The values that this process has looked up; newest first. Makes no request."""
    found = default_manager().scheme(scheme)
    if found.remote:
        with _lock:
            kept = _kept.get((scheme, what))
            return [] if kept is None else [*reversed(kept.values)]
    try:
        return [_ask(found, what).value]
    except StreamError:
        return []


def forget(scheme: str, what: str) -> bool:
    """Have a value looked up again; whether this process has looked one up.

    Also true after its time, and where another reader was refused first: the client
    that was refused may have been created with it long ago.
    """
    with _lock:
        kept = _kept.get((scheme, what))
        if kept is None or not kept.values:
            return False
        kept.until = -math.inf
        return True


def _start(
    scheme: ReferenceScheme, what: str, kept: _Kept, result: Future[ResolvedReference]
) -> None:
    given = scheme, what, kept, result
    try:
        threading.Thread(target=_look_up, args=given, daemon=True).start()
    except RuntimeError:  # the process has as many threads as it may have
        with _lock:
            kept.running = None
        reason = _unresolved(scheme.name, what, "no thread can be started for it")
        result.set_exception(ConnectionFailed(reason))


def _look_up(
    scheme: ReferenceScheme, what: str, kept: _Kept, result: Future[ResolvedReference]
) -> None:
    """Ask a remote scheme, in a thread; keep what it answers."""
    began = time.monotonic()
    try:
        found = _ask(scheme, what)
    except BaseException as error:  # noqa: BLE001 - handed to those who wait
        ended = time.monotonic()
        with _lock:
            _has_returned(kept, result)
            # A server that refuses at once may be asked again at once.
            if isinstance(error, StreamTimeout) and (
                ended - began > scheme.timeout_seconds / 2
            ):
                _silent[scheme.name] = ended + scheme.timeout_seconds
        result.set_exception(error)
        return
    with _lock:
        _has_returned(kept, result)
        _silent.pop(scheme.name, None)
        if len(found.value) <= MAX_RESOLVED:  # a longer one is refused where it is used
            if found.value in kept.values:
                kept.values.remove(found.value)
            kept.values.append(found.value)
            kept.until = time.monotonic() + found.keep_seconds
    result.set_result(found)


def _has_returned(kept: _Kept, result: Future[ResolvedReference]) -> None:
    """Note the end of a look-up; the caller holds the lock."""
    if kept.running is result:
        kept.running = None
    else:
        kept.hung = max(0, kept.hung - 1)


def _not_answered(scheme: ReferenceScheme, what: str) -> StreamTimeout:
    reason = f"{scheme.name} did not answer in {scheme.timeout_seconds:g} s"
    return StreamTimeout(_unresolved(scheme.name, what, reason))


def _ask(scheme: ReferenceScheme, what: str) -> ResolvedReference:
    try:
        found: object = scheme.lookup(what, scheme.timeout_seconds)
    except StreamError as error:
        again = copy.copy(error)  # the scheme may raise the same one again
        again.what = _unresolved(scheme.name, what, error.what)
        again.args = (again.what,)
        raise again from None
    # What a library says may contain the value: only its kind is shown.
    except TimeoutError as error:
        _raise(StreamTimeout, scheme, what, error)
    except ConnectionError as error:
        _raise(ConnectionFailed, scheme, what, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of a stranger's code
        _raise(ContractBroken, scheme, what, error)
    reason = _reason_refused(found)
    if reason is not None:
        raise ContractBroken(_unresolved(scheme.name, what, reason))
    return cast("ResolvedReference", found)


def _reason_refused(found: object) -> str | None:
    """Why an answer breaks the contract, without its text."""
    if not isinstance(found, ResolvedReference) or not isinstance(found.value, str):
        kind = type(getattr(found, "value", found)).__name__
        return f"the scheme returned a {kind}, expected a ResolvedReference with text"
    seconds: object = found.keep_seconds
    if not isinstance(seconds, int | float):
        kind = type(seconds).__name__
        return f"keep_seconds is a {kind}, expected a number of seconds"
    return None


def _raise(
    kind: type[StreamError], scheme: ReferenceScheme, what: str, error: BaseException
) -> NoReturn:
    raise kind(_unresolved(scheme.name, what, type(error).__name__)) from None


def _unresolved(scheme: str, what: str, reason: str) -> str:
    return f"{clip_reference(f'${{{scheme}:{what}}}')} cannot be resolved: {reason}"


def _examples() -> list[str]:
    """How references of the usable schemes are written."""
    manager = default_manager()
    examples = []
    for name in manager.names(REFERENCES):
        try:
            examples.append(manager.scheme(name).example)
        except PluginError:
            continue
    return examples
