# ruff: noqa: INP001 - a script, in no package
"""Writes the generated parts of the pages, or says that they have drifted.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. Option tables
come from the declarations, the help of commands from the commands themselves, the
support table from the last proof of each built-in, which ``support/`` keeps, the table
of versions from the recorded runs of ``make matrix``, which ``versions.json`` keeps,
tables of speed from ``benchmarks.json``, which ``make bench`` writes, the calls between
streams and backends from calls that are recorded (``frames.py``), the table of
conversions from the rules that convert rows (``conversion_reference.py``), the SQL of
pipelines without Java from both ways to evaluate it (``common_sql_reference.py``).

    python docs/reference.py          write
    python docs/reference.py --prove [TYPE ...]
                                      run the conformance kit first, on all types or
                                      these, and keep its proofs
    python docs/reference.py --check  exit status 1 where a page has drifted
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pictures
from cells import code, own_names
from common_sql_reference import differences, functions
from contract_reference import contract
from conversion_reference import conversions
from error_reference import error_sections
from frames import frames
from guarantee_reference import guarantees
from measured import tables
from plots import growth_table
from proof_reference import connectors, prove, support
from python_reference import python_api

from streamfactory.backends.flight.server.access import Right
from streamfactory.backends.flight.server.rights import effects
from streamfactory.cli.program import root
from streamfactory.cli.status import MEANINGS
from streamfactory.spark.pipelines.options import (
    DEAD_LETTER_OPTIONS,
    EXPECTATION_OPTIONS,
    LOOKUP_OPTIONS,
    LOOKUP_STREAM_OPTIONS,
    LOOKUP_TABLE_OPTIONS,
    PIPELINE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STEP_OPTIONS,
    TABLE_OPTIONS,
)
from streamfactory.spark.versions import FEATURES
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.spi.metrics import LABELS, Metric
from streamfactory.ui.access import Access
from streamfactory.ui.app import create_app
from streamfactory.ui.lookups import Lookups
from streamfactory.ui.recording import Recorder
from streamfactory.ui.rights import rules_of
from streamfactory.ui.settings import OPTIONS as PAGE_OPTIONS
from streamfactory.ui.site import Site
from streamfactory.wiring.config.describing import OptionRow, option_rows
from streamfactory.wiring.metrics.endpoint import SERVER_OPTIONS
from streamfactory.wiring.metrics.vocabulary import METRICS
from streamfactory.wiring.options.shared import SHARED_OPTIONS
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Iterable,
        Iterator,
        Mapping,
    )

PAGES: Final = Path(__file__).parent
MATRIX: Final = PAGES / "versions.json"
_PART: Final = re.compile(
    r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)


def _table(rows: Iterable[OptionRow]) -> str:
    lines = ["| key | type | default | for | |", "|---|---|---|---|---|"]
    for row in rows:
        default = "**required**" if row.required else code(row.default)
        doc = [row.doc, "Secret." if row.secret else ""]
        if row.aliases:
            doc.append(f"Also {', '.join(map(code, row.aliases))}.")
        if row.former:
            doc.append(f"Formerly {', '.join(map(code, row.former))}, deprecated.")
        cells = [code(row.key), row.type, default, ", ".join(row.applies)]
        cells.append(" ".join(part for part in doc if part))
        # A bar would end the cell, a word in angle brackets would be taken for HTML.
        escaped = [
            re.sub(r"<(\w+)>", r"&lt;\1&gt;", c.replace("|", r"\|")) for c in cells
        ]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def _framework() -> str:
    return _table(option_rows(FRAMEWORK_OPTIONS.values()))


def _spark() -> str:
    options = FRAMEWORK_OPTIONS.values()
    return _table(
        option_rows(o for o in options if not o.applies or "spark" in o.applies)
    )


def _shared() -> str:
    return _table(option_rows(SHARED_OPTIONS.values(), "stream.TYPE."))


def _backends() -> str:
    parts = []
    for name in own_names(BACKENDS):
        backend = default_manager().backend(name)
        rows = option_rows(backend.options, f"stream.{name}.")
        parts.append(f"### `{name}`\n\n{backend.doc}\n\n{_table(rows)}")
    return "\n\n".join(parts)


def _server_options() -> str:
    server = default_manager().backend("flight").server
    assert server is not None
    return _table(option_rows((*server.OPTIONS, *SERVER_OPTIONS)))


def _flight_rights() -> str:
    """Which right is enough for which effect, by itself or with another one."""
    header = ["effect", "call", "no right", *(right.value for right in Right)]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for effect in effects():
        cells = ["" if effect.rights else "yes"]
        for right in Right:
            others = sorted(one.value for one in effect.rights - {right})
            enough = "yes" if not others else f"with {', '.join(others)}"
            cells.append(enough if right in effect.rights or not effect.rights else "")
        what = f"{effect.what}{' (right on the group)' * effect.of_group}"
        lines.append(f"| {what} | `{effect.call}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _page_options() -> str:
    return _table(option_rows(PAGE_OPTIONS))


def _page_rights() -> str:
    """The rights that each path of the pages needs, as its route declares them."""
    lookups = Lookups()
    access = Access("127.0.0.1:0")
    app = create_app(Site(access, Recorder(lookups, 1.0, ()), lookups))
    lines = ["| path | right | for |", "|---|---|---|"]
    with app.app_context():
        rules = app.url_map.iter_rules()
        for rule in sorted(rules, key=lambda one: (one.rule, min(one.methods or ()))):
            if rule.endpoint == "static":
                continue
            methods = (rule.methods or set()) - {"HEAD", "OPTIONS"}
            method = ", ".join(sorted(methods))
            for one in rules_of(rule.endpoint):
                right = "" if one.right is None else f"`{one.right.value}`"
                path = rule.rule.replace("<int:number>", "N").replace("<name>", "NAME")
                path = path.replace("<to>", "TO")
                lines.append(f"| {method} `{path}` | {right} | {one.of} |")
    return "\n".join(lines)


def _server_metrics() -> str:
    server = default_manager().backend("flight").server
    assert server is not None
    return _metrics(server.METRICS)


def _spark_versions() -> str:
    lines = ["| since PySpark | | in an earlier version |", "|---|---|---|"]
    lines += [f"| {one.since} | {one.what} | {one.without} |" for one in FEATURES]
    return "\n".join(lines)


def _matrix() -> str:
    """The last recorded runs in each environment of `make matrix`."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for one in json.loads(MATRIX.read_text("utf-8")):
        found = one["versions"]
        versions = [found.get(name, "") for name in ("python", "pyspark", "pyarrow")]
        groups.setdefault((code(one["cell"]), *versions, one["tier"]), []).append(one)
    lines = [
        "| environment | Python | PySpark | PyArrow | tier | suites | result | date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, runs in groups.items():
        names = ", ".join(one["suite"] for one in runs)
        result, dates = _outcome(runs), sorted({one["date"] for one in runs})
        suites = f"{len(runs)} suites" if result == "not run" else names
        cells = [*key, suites, result, " to ".join(dates)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _outcome(runs: Iterable[Mapping[str, Any]]) -> str:
    """What suites ended in: the sums of their last lines, and which ones failed."""
    sums: Counter[str] = Counter()
    failed = [one["suite"] for one in runs if one["state"] == "failed"]
    if all(one["state"] == "not run" for one in runs):
        return "not run"
    for one in runs:
        for number, what in re.findall(r"(\d+) (passed|failed|skipped)", one["line"]):
            sums[what] += int(number)
    counts = [f"{sums[what]} {what}" for what in ("passed", "failed", "skipped")]
    return ", ".join(counts) + (f" (in {', '.join(failed)})" if failed else "")


def _metrics(metrics: Iterable[Metric]) -> str:
    lines = [
        "| metric | Prometheus | kind | labels | |",
        "|---|---|---|---|---|",
    ]
    for metric in metrics:
        cells = [code(metric.name), code(metric.prometheus_name), metric.kind.value]
        cells += [", ".join(map(code, metric.labels)), metric.doc]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _metric_labels() -> str:
    rows = [f"| {code(label)} | {doc} |" for label, doc in LABELS.items()]
    return "\n".join(["| label | |", "|---|---|", *rows])


def _decoders() -> str:
    parts = []
    for name in own_names(DECODERS):
        decoder = default_manager().decoder(name)
        rows = option_rows(decoder.options, "stream.TYPE.decoder.prop.")
        options = _table(rows) if rows else "No options."
        parts.append(f"### `{name}`\n\n{decoder.doc}\n\n{options}")
    return "\n\n".join(parts)


def _statuses() -> str:
    rows = [f"| {status.value} | {text} |" for status, text in MEANINGS.items()]
    return "\n".join(["| status | meaning |", "|---|---|", *rows])


def _help(*names: str) -> str:
    """The help of a command, or of one in a group of them."""
    command: click.Command = root
    context = click.Context(root, info_name="streamfactory", **root.context_settings)
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    line = context.command_path
    return f"```console\n$ {line} --help\n{command.get_help(context)}\n```"


def _commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """Every command by its words, those in groups behind the group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*above, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, *above, name)


_GENERATORS: Final[Mapping[str, Callable[[], str]]] = {
    "framework": _framework,
    "spark": _spark,
    "shared": _shared,
    "backends": _backends,
    "decoders": _decoders,
    "flight-server": _server_options,
    "flight-rights": _flight_rights,
    "ui-options": _page_options,
    "ui-rights": _page_rights,
    "metrics": lambda: _metrics(METRICS),
    "server-metrics": _server_metrics,
    "spark-versions": _spark_versions,
    "matrix": _matrix,
    "growth": growth_table,
    "frames": frames,
    **tables(),
    "metric-labels": _metric_labels,
    "statuses": _statuses,
    "common-sql-functions": functions,
    "common-sql-differences": differences,
    "pipeline-options": lambda: _table(option_rows(PIPELINE_OPTIONS)),
    "pipeline-source": lambda: _table(option_rows(SOURCE_OPTIONS)),
    "pipeline-lookups": lambda: _table(option_rows(LOOKUP_OPTIONS)),
    "pipeline-lookup-tables": lambda: _table(option_rows(LOOKUP_TABLE_OPTIONS)),
    "pipeline-lookup-streams": lambda: _table(option_rows(LOOKUP_STREAM_OPTIONS)),
    "pipeline-steps": lambda: _table(option_rows(STEP_OPTIONS)),
    "pipeline-expectations": lambda: _table(option_rows(EXPECTATION_OPTIONS)),
    "pipeline-sinks": lambda: _table(option_rows(SINK_OPTIONS)),
    "pipeline-tables": lambda: _table(option_rows(TABLE_OPTIONS)),
    "pipeline-letters": lambda: _table(option_rows(DEAD_LETTER_OPTIONS)),
    "support": support,
    "connectors": connectors,
    "guarantees": guarantees,
    "contract": partial(contract, errors=False),
    "contract-errors": partial(contract, errors=True),
    "conversions": conversions,
    "errors": error_sections,
    "python-api": partial(python_api, "Reading", "Writing"),
    "python-api-jobs": partial(python_api, "Whole jobs", "Servers", "Metrics", "Spark"),
    "python-api-engines": partial(python_api, "Push tables", "Query engines"),
    "help": _help,
    **{
        f"help_{'_'.join(names)}": lambda names=names: _help(*names)
        for names in _commands(root)
    },
}


def generate(text: str) -> str:
    """A page with its generated parts as they should be."""
    return _PART.sub(lambda m: f"{m[1]}\n{_GENERATORS[m[2]]()}\n\n{m[3]}", text)


def main(arguments: list[str]) -> int:
    """Do what the arguments say; answers the exit status."""
    if "--prove" in arguments:
        prove(arguments[arguments.index("--prove") + 1 :])
    drifted, used = [], set()
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        used |= {match[2] for match in _PART.finditer(text)}
        wanted = generate(text)
        if wanted != text:
            drifted.append(page)
            diff = difflib.unified_diff(
                text.splitlines(True), wanted.splitlines(True), page.name, "generated"
            )
            sys.stdout.writelines(diff if "--check" in arguments else [f"{page}\n"])
            if "--check" not in arguments:
                page.write_text(wanted, encoding="utf-8")
    drawn = pictures.drifted(write="--check" not in arguments)
    sys.stdout.writelines(f"{path}\n" for path in drawn)
    drifted += drawn
    # A command or a table that no page shows is a page that somebody forgot.
    for name in sorted(_GENERATORS.keys() - used):
        sys.stdout.write(f"no page has <!-- generated: {name} -->\n")
    failed = drifted and "--check" in arguments
    return 1 if failed or _GENERATORS.keys() - used else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
