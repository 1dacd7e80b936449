"""Defects that an adversary would plant, each as a change of one text of a backend."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.mutations import Mutation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HEAD: Final = """
## Planted defects

`make prove PATHS=mutants N=15` plants these defects in `streamfactory-redis` and
`streamfactory-nats`, one at a time, and runs the kit on each until a case fails. They
are wrong only at a boundary. A defect that no case notices is a finding, unless the
list has the reason why nothing can be observed.

"""
_TAIL: Final = """
## Automatic mutants

`streamfactory conformance redis --mutate 40`, without slow cases, with seeds 1 and 2 on
2026-11-28: of 80 mutants 57 were caught and 23 survived.

- 11 change nothing that can be observed. `equivalents.toml` of the package has
  five of them, with reasons; three were in lines without an effect, which are removed;
  three have a text that their function has twice, so no entry can name them: the number
  of rows that one command stages, and limits of reads that return no rows.
- 4 showed gaps of the kit, and are caught now: by `mistaken_options_are_refused`, by
  `a_value_above_the_largest_is_refused_with_its_row`, and by `ErrorTable`, which
  refuses what is no error.
- 3 are in code for streams of other programs, which the harness did not reach: the kit
  catches them with `--harness streamfactory_redis.harness:ForeignHarness`.
- 5 are not noticed: three of the greatest ids that have an offset (one of them fails
  `test_redis.py`), one of times by ids, and a deletion whose server goes away between
  two keys.

That is 64 of 69 that change behaviour (93 %).
"""
BACKENDS: Final = Path(__file__).parents[2] / "examples" / "backends"


@dataclass(frozen=True, slots=True)
class Defect:
    """A change of a module of a backend of the examples."""

    name: str
    kind: str
    """When it shows: a row of the table in docs/zoo.md."""
    module: str
    """``streamfactory_redis/reading.py``."""
    before: str
    """A text that the module has once."""
    after: str
    unseen: str = ""
    """Why the kit cannot observe it; empty where it has to."""

    @property
    def path(self) -> Path:
        """The module's file."""
        package = self.module.partition("/")[0]
        return BACKENDS / package.replace("_", "-") / "src" / self.module

    def mutation(self) -> Mutation:
        """The change, as ``conformance --mutate`` makes its own.

        Raises:
            ValueError: The module has the text more than once, or not at all.
        """
        source = self.path.read_text(encoding="utf-8")
        if source.count(self.before) != 1:
            msg = f"{self.name}: {self.module} has {source.count(self.before)} times "
            msg += repr(self.before)
            raise ValueError(msg)
        at = source.index(self.before)
        begin = len(source[:at].encode())
        line = source[:at].count("\n") + 1
        last = line + self.before.rstrip("\n").count("\n")
        # Within a text of several lines only the first one is executed.
        first = max(
            node.lineno
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.stmt) and node.lineno <= line
        )
        return Mutation(
            line,
            begin,
            begin + len(self.before.encode()),
            self.before,
            self.after,
            self.kind,
            self.name,
            (first, last),
        )


def section(defects: Mapping[str, Iterable[Defect]]) -> str:
    """The part of docs/zoo.md on mutants; ``defects`` by type, shown by kind."""
    kinds: dict[str, list[str]] = {}
    for kind, some in defects.items():
        for defect in some:
            line = f"- {kind}: {defect.name}"
            line += f" (not noticed: {defect.unseen})" if defect.unseen else ""
            kinds.setdefault(defect.kind, []).append(line)
    parts = ("\n".join([f"**{name}**\n", *kinds[name]]) for name in sorted(kinds))
    return _HEAD + "\n\n".join(parts) + "\n" + _TAIL
