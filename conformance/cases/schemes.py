"""C2: schemes of references, their values, errors and deadlines."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import scheme_case
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import StallsLookups
from streamfactory.conformance.schemes import PLANTED
from streamfactory.spi import ConfigError, StreamError, TransientError

if TYPE_CHECKING:
    from streamfactory.conformance.schemes import SchemeBench

_THREADS: Final = 8
_GRACE: Final = 2.0
"""Seconds beyond a deadline: the machine may be busy."""
_VALUES: Final = {
    "plain": PLANTED,
    "spaces": f" {PLANTED} ",
    "quotes": f"{PLANTED}\"'`\\",
    "letters": f"{PLANTED}äß漢字🔑",
    "what looks like a reference": f"{PLANTED}${{env:HOME}}$${{",
    "lines": f"{PLANTED}\nsecond",
    "long": PLANTED + "x" * 20_000,
}
_HOSTILE: Final = (
    "../../../etc/passwd",
    "/etc/passwd",
    "a\nb: c",
    "a?b=c&d#e#f",
    "a%2f..%2fb#c",
    "//127.0.0.1/x#y",
    "x" * 10_000,
    "\u202e#\u2028",
    "#",
    "a#",
)


@scheme_case("C2", hint="the value is trimmed, unquoted, or resolved once more")
def values_are_resolved_as_they_are_stored(bench: SchemeBench) -> None:
    """Every text that can be stored is the value of its reference."""
    for name, value in _VALUES.items():
        expect(bench.resolved(bench.stored(value)), value, f"the value with {name}")


@scheme_case("C2", hint="the value is cached by the scheme: leave that to its time")
def replaced_value_is_found(bench: SchemeBench) -> None:
    """A value that was replaced is found by the next look-up."""
    name = bench.harness.store(f"{PLANTED}-1")
    expect(bench.resolved(bench.reference(name)), f"{PLANTED}-1", "the first value")
    bench.harness.replace(name, f"{PLANTED}-2")
    expect(bench.resolved(bench.reference(name)), f"{PLANTED}-2", "the second value")


@scheme_case("C2", hint="what is missing is empty, or an error that may pass")
def missing_value_is_a_mistake_of_the_configuration(bench: SchemeBench) -> None:
    """What is not stored is a ConfigError that names the reference."""
    bench.stored(PLANTED)
    for what in bench.harness.missing():
        error = bench.error_of(bench.reference(what))
        require(isinstance(error, ConfigError), f"a missing value is {error!r}")


@scheme_case("C2", hint="a name is put into a path or a request unchecked")
def hostile_names_are_refused(bench: SchemeBench) -> None:
    """Names from strangers are errors of our tree, show nothing, and reach nothing."""
    bench.stored(PLANTED)
    for what in _HOSTILE:
        error = bench.error_of(bench.reference(what))
        require(not error.retryable, f"{what[:40]!r} is {error!r}: a retry cannot help")


@scheme_case("C2", hint="a client is shared by threads that must not share it")
def lookups_of_many_threads_do_not_disturb_each_other(bench: SchemeBench) -> None:
    """Each thread gets the value of its reference."""
    texts = {bench.stored(f"{PLANTED}-{n}"): f"{PLANTED}-{n}" for n in range(_THREADS)}
    found: dict[str, str] = {}
    errors: list[StreamError] = []

    def look_up(text: str) -> None:
        try:
            found[text] = bench.resolved(text)
        except StreamError as error:
            errors.append(error)

    threads = [threading.Thread(target=look_up, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(errors, [], "errors of the threads")
    expect(found, texts, "values of the threads")


@scheme_case(
    "C2", abilities=(StallsLookups,), hint="a request is sent without a time limit"
)
def lookup_ends_at_its_deadline(bench: SchemeBench) -> None:
    """Where nothing answers, a look-up ends in its time, with an error to retry."""
    text = bench.stored(PLANTED)
    with bench.use(StallsLookups).stalled():
        for seconds in (0.2, 1.0):
            bench.note(f"lookup(..., {seconds})")
            started = time.monotonic()
            try:
                bench.scheme.lookup(text.partition(":")[2][:-1], seconds)
            except (TransientError, TimeoutError, ConnectionError) as error:
                require(PLANTED not in str(error), "an error shows a value")
            else:
                require(False, "a stalled look-up returned a value")
            took = time.monotonic() - started
            require(took < seconds + _GRACE, f"{took:.1f} s instead of {seconds} s")
    expect(bench.resolved(text), PLANTED, "the value when it answers again")
