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

`streamfactory conformance redis --mutate 40`, without slow cases, on 2026-11-28. Each
seed is shown as it was met, before anything was mended for it. Mutants that change
nothing that can be observed are called equivalent, by hand.

- Seeds 1 and 2: 80 tried, 11 equivalent; 57 of 69 caught, 64 (93 %) once the kit and
  the package were mended for them.
- Seed 11: 40 tried, 3 equivalent; 29 of 37 caught, 78 %.
- Seed 12, after the mends for seed 11, with both harnesses, stopped after 11 of 40:
  the machine was busy. 3 equivalent; 7 of 8 caught.
- Seed 13, with both harnesses, stopped after 36 of 40: 1 equivalent; 27 of 35 caught,
  77 %, and 29 (83 %) with `writers_find_no_unknown_topic`, which was added for it.
- Seed 14, with that case, stopped after 33 of 40: 2 equivalent; 25 of 31 caught, 81 %.
- Seed 21, with servers that do not answer, users of few rights, interrupted creations
  and deletions, and the greatest offsets, whole, with both harnesses: 3 equivalent;
  32 of 37 caught, 86 %.
- Seed 31, with the same cases, 50 tried: 3 equivalent; 41 of 47 caught, 87 %.
- Seed 22, with what was added for seed 21, before seed 31 was looked at: 3
  equivalent; 37 of 37 caught.

Of a seed with few mutants the share is rough: seeds 21, 31 and 22 together are 110 of
121, 91 %. Texts that people read are not mutated from seed 21 on.

The share of 93 % holds for seeds that the kit was mended for; for seeds that it has
not seen, 77 to 81 % is what was measured until seed 14. Seed 12 is too short to say
more.

What survived of seed 11, by kind:

- names that are no topics in the list of topics: caught now by `topics_are_listed`;
- a warning about each configuration: caught now by `mistaken_options_are_refused`;
- a commit that finds no topic and counts as successful: caught now by
  `a_commit_into_a_deleted_topic_is_no_success`;
- growth of a topic that is not there: caught now by
  `operations_on_an_unknown_topic_are_refused`;
- one row more than a limit asks for, which the framework cuts: a case that is
  narrowed counts as caught now;
- three in code for streams of other programs or for an option that the harness does
  not set: tried now with `--mutate-harness
  streamfactory_redis.harness:ForeignHarness`.

Of seed 12 the refusal of a schema that a stream of Redis cannot have is not noticed:
other types of messages, such as Kafka, take any schema there. Of seeds 1 and 2 five
are not noticed: three of the greatest ids that have an offset (one of them fails
`test_redis.py`), one of times by ids, and a deletion whose server goes away between
two keys.

Of seeds 13 and 14 fourteen were not noticed, of which the new case notices two: a
topic without a count of partitions, and a claim of a topic that is not there. The
others are ids beyond those with an offset (three), the limit of values of a server
that does not tell its own (two), times by ids before 2001 (two), a retry of the
client's own, a server that does not answer, a creation that fails between two keys, a
user who may not see settings, and an incarnation that is reported one fetch late.
Most of them need a server or a user that the harness does not have.

What survived of seeds 21 and 31, by kind:

- types of timestamps that there are not, staged rows that are kept after an abort or
  for ever, growth of a topic that is not there: caught now by cases for each;
- a commit of a writer that had claimed its id before the topic was deleted, and what
  arrives while a fetch waits: caught now;
- growth to the number of partitions that there is: caught now by
  `topics_do_not_shrink`;
- names of topics with pattern characters, and the file of an authority for TLS: not
  noticed. The harness has no server with TLS.

Equivalent were of seed 21 the bytes of an answer whose rows are not used, the latest
offset of an answer, which is optional, and the time of a message that has none; of
seed 31 two conditions on a state that the framework computes, and an error that
closing does not raise; of seed 22 the same, the earliest offset of an answer, which
is optional, and a wait that the framework's pause replaces.
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
