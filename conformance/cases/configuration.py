"""C: what a type declares of its options is held."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.spi import INTEGER, ConfigError, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamfactory.conformance.bench import Bench


@case("C1", hint="a validator or check_options reports nothing, or what is not wrong")
def mistaken_options_are_refused(bench: Bench) -> None:
    """Numbers out of bounds and `mistakes` of the harness are errors with a key.

    The rules over several options report nothing of what the harness configures.
    """
    bench.create()
    if bench.backend.check_options is not None:
        found = [*bench.backend.check_options(bench.configured().config, Role.READ)]
        expect(found, [], "problems of the configuration of the harness")
    prefix = f"stream.{bench.backend.name}."
    for mistake in (*_out_of_bounds(bench, prefix), *bench.traits.mistakes):
        what = f"the configuration with {dict(mistake)}"
        bench.note(what)
        load: Callable[[], object] = partial(bench.configured, "read", **mistake)
        error = expect_error(ConfigError, what, load)
        keys = [key.removeprefix(prefix) for key in mistake]
        named = any(key in str(error) for key in keys)
        require(named, f"{what}: the error names none of {keys}: {error}")


def _out_of_bounds(bench: Bench, prefix: str) -> Iterator[Mapping[str, str | None]]:
    yield {f"{prefix}no.such.option": "1"}
    for option in bench.backend.options:
        if option.type is INTEGER:
            for bound, step in ((option.minimum, -1), (option.maximum, 1)):
                if bound is not None:
                    yield {f"{prefix}{option.key}": str(int(bound) + step)}
