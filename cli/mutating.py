"""``conformance --mutate``: the small defects that no case notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.conformance.mutating import Mutated, Plan, Tried, mutate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer


def mutated(printer: Printer, plan: Plan) -> Status:
    """Try mutants, and print the survivors, worst first."""
    found = mutate(plan, printer.progress)
    printer.progress("")
    printer.show(_plain(plan, found), [*_lines(plan, found)])
    return Status.FAILED if found.survivors else Status.FINE


def _lines(plan: Plan, found: Mutated) -> Iterator[str]:
    survivors = found.survivors
    if survivors:
        yield "survived, worst first:"
        for one in survivors:
            yield f"  {one.mutant}"
            reached = one.mutant.reached_by
            what = f"{count(reached, 'case')} execute it and pass"
            yield f"    {what if reached else 'no case executes it'}"
        yield ""
    tried = len(found.tried)
    caught = tried - len(survivors)
    share = f", {100 * caught / tried:.0f} %" if tried else ""
    yield (
        f"{plan.subject.name}: {caught} of {count(tried, 'mutant')} caught{share} "
        f"(seed {plan.seed}, {found.possible} possible, "
        f"{found.equivalent} named equivalent)"
    )
    if found.left_out:
        yield f"not tried, the time was over: {count(found.left_out, 'mutant')}"


def _plain(plan: Plan, found: Mutated) -> dict[str, Any]:
    return {
        "type": plan.subject.name,
        "seed": plan.seed,
        "possible": found.possible,
        "equivalent": found.equivalent,
        "tried": len(found.tried),
        "left_out": found.left_out,
        "survivors": [_described(one) for one in found.survivors],
        "caught": [_described(one) for one in found.tried if one.caught_by],
    }


def _described(one: Tried) -> dict[str, Any]:
    change = one.mutant.mutation
    return {
        "module": one.mutant.module,
        "line": change.line,
        "where": change.where,
        "kind": change.kind,
        "before": change.before,
        "after": change.after,
        "reached_by": one.mutant.reached_by,
        "caught_by": one.caught_by,
        "reason": one.reason or None,
        "seconds": round(one.seconds, 2),
    }
