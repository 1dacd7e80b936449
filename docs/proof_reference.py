# ruff: noqa: INP001 - part of a script, in no package
"""Runs the conformance kit on stream types, and writes tables of what it found."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cells import code, own_names

from streamfactory.conformance.harness import BACKEND
from streamfactory.conformance.report import Report, support_table, to_plain
from streamfactory.conformance.runner import all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.spi.hooks import BACKENDS
from streamfactory.spi.references import FOLDERS
from streamfactory.wiring.plugins.manager import OWN_DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_PROOFS: Final = Path(__file__).with_name("support")


def support() -> str:
    """The table of cases, by stream type."""
    # The cases are those of the kit as it is: a table that lacks one has drifted.
    cases = [(case.name, case.rule) for case in all_cases()]
    proofs = [json.loads(p.read_text("utf-8")) for p in sorted(_PROOFS.glob("*.json"))]
    return support_table(proofs, cases)


_CLAIMS: Final[Mapping[str, Sequence[str]]] = {
    "source": ("replayable", "redelivers", "durable", "shared"),
    "sink": ("durable", "idempotent"),
}
"""Those that matter in a role."""


def connectors() -> str:
    """What each type claims, and what the kit said when it was last run on it.

    Built-in types claim what their factories claim now; of others the report has it.
    """
    head = ["type", "package", "as a source", "as a sink", "kit"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|"]
    own = own_names(BACKENDS)
    for path in sorted([*_PROOFS.glob("*.json"), *_PROOFS.glob("others/*.json")]):
        report = json.loads(path.read_text("utf-8"))
        name = report["type"]
        claims = find_subject(name).claims if name in own else report["claims"]
        counts = Counter(case["outcome"] for case in report["cases"])
        cells = [
            code(name),
            code(report["package"]),
            *(_claimed(role, claims.get(role)) for role in _CLAIMS),
            ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _claimed(role: str, claims: Mapping[str, Any] | None) -> str:
    if claims is None:
        return "no"
    words = [name for name in _CLAIMS[role] if claims[name]]
    if role == "sink" and claims["epoch_visibility"] != "none":
        words.append(f"epochs visible {claims['epoch_visibility']}")
    return ", ".join(words) or "claims nothing"


def prove(names: Collection[str]) -> None:
    """Run the kit on types, by default all built-in ones.

    What came of it is kept, and not how long it took. Those of other distributions are
    run by name, where they are installed.
    """
    # The cases provoke what is logged.
    logging.getLogger(OWN_DISTRIBUTION).addHandler(logging.NullHandler())
    # Harnesses write keys of TLS and CURVE there.
    os.environ.setdefault(FOLDERS, tempfile.gettempdir())
    own = own_names(BACKENDS)
    for entry in sorted(entry_points(group=BACKEND.group), key=lambda one: one.name):
        name = entry.name
        if name not in (names or own):
            continue
        subject = find_subject(name)
        with _server(name):
            results = tuple(run(subject))
        plain = to_plain(Report(name, results, 0.0, 0, "", subject.claims))
        kept = ("case", "rule", "outcome", "reason", "waiver")
        cases = [{key: case[key] for key in kept} for case in plain["cases"]]
        package = OWN_DISTRIBUTION if entry.dist is None else entry.dist.name
        proof = {
            "type": name,
            "package": package,
            "claims": plain["claims"],
            "cases": cases,
        }
        text = json.dumps(proof, indent=1)
        folder = _PROOFS if name in own else _PROOFS / "others"
        (folder / f"{name}.json").write_text(f"{text}\n", "utf-8")


@contextmanager
def _server(name: str) -> Iterator[None]:
    """What a type needs to be proved: for Kafka the broker that the tests start."""
    if name != "kafka" or "KAFKA_BOOTSTRAP" in os.environ:
        yield
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.kafka.broker import Cluster

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Cluster(Path(folder)) as cluster,
    ):
        os.environ["KAFKA_BOOTSTRAP"] = cluster.bootstrap
        try:
            yield
        finally:
            del os.environ["KAFKA_BOOTSTRAP"]
