# ruff: noqa: INP001 - imported by a script, in no package
"""The reference of the Python API for users, read from its docstrings."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTION: Final = re.compile(r"^(Args|Returns|Yields|Raises|Example):$", re.MULTILINE)
_ENTRY: Final = re.compile(r"^(\S[^:]*): (.*(?:\n[ ]+.*|\n(?=\n[ ]))*)", re.MULTILINE)
_NAMES: Final = {"Args": "Arguments"}


@dataclass(frozen=True)
class _Entry:
    """A function or class that users call, and where it is written."""

    call: str
    module: str
    name: str


ENTRIES: Final = {
    "Reading": [
        _Entry("streamfactory.open", "wiring.streams.stream", "open_stream"),
        _Entry("Stream", "wiring.streams.stream", "Stream"),
    ],
    "Writing": [
        _Entry("streamfactory.open_sink", "wiring.streams.opening", "open_sink"),
        _Entry("Sink", "wiring.writing.sink", "Sink"),
        _Entry("Writer", "wiring.writing.writer", "Writer"),
        _Entry("Committer", "wiring.writing.committer", "Committer"),
    ],
    "Whole jobs": [
        _Entry("streamfactory.copy", "transfer.jobs", "copy"),
        _Entry("streamfactory.backfill", "transfer.jobs", "backfill"),
        _Entry("streamfactory.publish", "transfer.jobs", "publish"),
        _Entry("streamfactory.export", "transfer.jobs", "export"),
        _Entry(
            "streamfactory.replay_dead_letters", "transfer.jobs", "replay_dead_letters"
        ),
    ],
    "Servers": [
        _Entry("streamfactory.serve", "wiring.serving.process", "serve"),
        _Entry("ServerProcess", "wiring.serving.process", "ServerProcess"),
    ],
    "Metrics": [
        _Entry("streamfactory.metrics", "wiring.metrics.snapshot", "metrics"),
        _Entry("MetricsSnapshot", "wiring.metrics.snapshot", "MetricsSnapshot"),
        _Entry(
            "streamfactory.serve_metrics", "wiring.metrics.endpoint", "serve_metrics"
        ),
        _Entry(
            "streamfactory.export_opentelemetry",
            "wiring.metrics.opentelemetry",
            "export_opentelemetry",
        ),
    ],
    "Push tables": [
        _Entry("streamfactory.push_table", "push.table", "push_table"),
        _Entry("PushSink", "push.sink", "PushSink"),
        _Entry("PushTable", "push.table", "PushTable"),
    ],
    "Query engines": [
        _Entry("engines.duckdb.relation", "engines.duckdb", "relation"),
        _Entry("engines.duckdb.register", "engines.duckdb", "register"),
        _Entry("engines.polars.scan", "engines.polars", "scan"),
        _Entry("engines.datafusion.register", "engines.datafusion", "register"),
        _Entry("engines.pandas.chunks", "engines.pandas", "chunks"),
        _Entry("engines.arrow.dataset", "engines.arrow", "dataset"),
    ],
    "Spark": [
        _Entry("spark.register", "spark", "register"),
        _Entry("spark.prepare_environment", "spark", "prepare_environment"),
    ],
}


def python_api(*titles: str) -> str:
    """A heading for each entry below these titles, with what its docstring says."""
    lines: list[str] = []
    for title in titles:
        lines += [f"## {title}", ""]
        for entry in ENTRIES[title]:
            lines += _described(entry)
    return "\n".join(lines).rstrip()


def _described(entry: _Entry) -> Iterator[str]:
    spec = find_spec(f"streamfactory.{entry.module}")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    named = (ast.ClassDef, ast.FunctionDef)
    (node,) = (n for n in tree.body if isinstance(n, named) and n.name == entry.name)
    yield from (f"### {entry.call}", "")
    if isinstance(node, ast.FunctionDef):
        yield from _signature(node, entry.call)
        yield from _docstring(node)
        return
    # How it is made is for the functions that make it.
    yield from _docstring(node, without="Args")
    for item in [*_inherited(node, tree), *node.body]:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
            is_property = any(
                isinstance(d, ast.Name) and d.id == "property"
                for d in item.decorator_list
            )
            yield from (f"#### {entry.call}.{item.name}", "")
            if not is_property:
                yield from _signature(item, item.name)
            yield from _docstring(item)


def _inherited(node: ast.ClassDef, tree: ast.Module) -> list[ast.stmt]:
    """Of a private base class in the same module."""
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
    own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    return [
        item
        for other in tree.body
        if isinstance(other, ast.ClassDef) and other.name in bases
        for item in other.body
        if isinstance(item, ast.FunctionDef) and item.name not in own
    ]


def _signature(node: ast.FunctionDef, call: str) -> Iterator[str]:
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    yield from ("```text", f"{call}({arguments}){returns}", "```", "")


def _docstring(node: ast.ClassDef | ast.FunctionDef, without: str = "") -> list[str]:
    text = ast.get_docstring(node) or ""
    found = list(_SECTION.finditer(text))
    lines = [_plain(text[: found[0].start()] if found else text), ""]
    ends = [*(match.start() for match in found), len(text)]
    for match, (_, end) in zip(found, pairwise(ends), strict=True):
        if match[1] == without:
            continue
        body = re.sub(r"^ {4}", "", text[match.end() : end], flags=re.MULTILINE)
        lines += [f"**{_NAMES.get(match[1], match[1])}**", ""]
        if match[1] == "Example":
            code = re.sub(r"  # doctest:.*", "", body.strip())
            lines += ["```pycon no-run: as the docstring's test", code, "```", ""]
            continue
        entries = _ENTRY.findall(body) if match[1] in {"Args", "Raises"} else []
        for name, meaning in entries:
            lines.append(f"- `{name}`: {' '.join(_plain(meaning).split())}")
        lines += ["" if entries else f"{_plain(body)}\n"]
    return lines


def _plain(text: str) -> str:
    """Text of a docstring as Markdown."""
    return text.strip().replace("``", "`")
