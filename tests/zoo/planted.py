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
    """The part of docs/zoo.md on planted defects, by kind; ``defects`` by type."""
    kinds: dict[str, list[str]] = {}
    for kind, some in defects.items():
        for defect in some:
            line = f"- {kind}: {defect.name}"
            line += f" (not noticed: {defect.unseen})" if defect.unseen else ""
            kinds.setdefault(defect.kind, []).append(line)
    parts = ("\n".join([f"**{name}**\n", *kinds[name]]) for name in sorted(kinds))
    return _HEAD + "\n\n".join(parts) + "\n"
