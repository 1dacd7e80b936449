"""Arrows point down: who may import whom, and where clients may be loaded."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("layers")
"""One worker parses the code, not each of them."""

BELOW = {
    "spi": {"spi"},
    "arrowipc": {"arrowipc"},
    "compiled": {"compiled"},
    "conversion": {"spi", "conversion"},
    "arrowlog": {"spi", "conversion", "arrowipc", "arrowlog"},
    "push": {"spi", "conversion", "arrowlog", "push"},
    "tables": {"spi", "conversion", "arrowlog", "tables"},
    "live": {"spi", "arrowipc", "live"},
    "backends": {
        "spi",
        "arrowipc",
        "compiled",
        "conversion",
        "arrowlog",
        "push",
        "tables",
        "live",
    },
    "decoders": {"spi", "arrowipc", "compiled", "conversion"},
    "wiring": {"spi", "compiled", "conversion", "arrowlog", "wiring"},
    "engines": {"spi", "conversion", "wiring", "engines"},
    "transfer": {
        "spi",
        "arrowipc",
        "conversion",
        "arrowlog",
        "wiring",
        "engines",
        "transfer",
    },
    "spark": {"spi", "conversion", "wiring", "engines", "transfer", "spark"},
    "conformance": {"spi", "conversion", "wiring", "conformance"},
    "ui": {"spi", "wiring", "transfer", "engines", "spark", "ui"},
    "cli": {
        "spi",
        "compiled",
        "wiring",
        "transfer",
        "engines",
        "spark",
        "conformance",
        "ui",
        "cli",
    },
}
"""Of each folder, those that it may import. Nothing imports a backend or a decoder by
name: they are found through entry points."""

CLIENTS = {
    "spi": {"pluggy"},
    "arrowipc": {"numpy"},
    "compiled": {"numpy", "pyarrow"},
    "conversion": {"numpy", "pyarrow"},
    "arrowlog": {"numpy", "pyarrow"},
    "push": {"pyarrow"},
    "tables": {"numpy", "pyarrow"},
    "live": {"pyarrow"},
    "backends": {"numpy", "pyarrow"},
    "decoders": {"numpy", "pyarrow"},
    "wiring": {"numpy", "pluggy", "pyarrow"},
    "transfer": {"numpy", "pyarrow"},
    "engines": {"pyarrow"},
    "spark": {"pyarrow", "pyspark", "py4j"},
    "conformance": {"hypothesis", "numpy", "pyarrow", "pytest"},
    "ui": {"flask", "markupsafe", "pyarrow", "waitress", "werkzeug"},
    "cli": {"click", "pyarrow"},
}
"""What modules may load when they are imported, beside the standard library."""

OWN_CLIENTS = {
    "ui/openid": {"httpx2", "joserfc"},
    "cli/top": {"rich"},
    "engines/polars_predicates": {"polars"},
    "engines/search": {"numpy", "pyarrow"},
    "spi/soundness": {"numpy", "pyarrow"},
    "ui/editing": {"tomlkit"},
    "backends/delta": {"deltalake"},
    "backends/hudi": {"fastavro", "hudi"},
    "backends/iceberg": {"fastavro", "pyiceberg", "requests", "sqlalchemy"},
    "backends/kafka": {"confluent_kafka"},
    "backends/zeromq": {"zmq"},
    "decoders/avro": {"fastavro", "pyruhvro"},
    "decoders/cloudevents": {"msgspec"},
    "decoders/debezium": {"msgspec"},
    "decoders/json": {"jsonschema_rs", "msgspec"},
    "decoders/protobuf": {"google", "ptars"},
    "decoders/registry": {"confluent_kafka"},
}
"""What one plug-in or command may load: it comes with an extra, named when it is
missing. The validator of the contract computes with Arrow, and is loaded when it is
used."""

SHARED = {"columns", "framing", "isolation", "registry", "scanning"}
"""Parts of decoders, for decoders: no plug-ins themselves."""

ENVELOPES = {"cloudevents": {"json"}, "debezium": {"avro", "json"}}
"""Decoders of envelopes, each with the decoders of what is in them."""

LAZY = {
    # The contract is imported by authors and by commands that read no rows: Arrow takes
    # most of the time of a start.
    "spi/arrowjson.py": {"pyarrow"},
    "spi/computing.py": {"pyarrow"},
    "spi/ddl.py": {"pyarrow"},
    "spi/decoder.py": {"pyarrow"},
    "spi/envelope.py": {"pyarrow"},
    # The compiled part, where it is installed.
    "compiled/core.py": {"streamfactory_native"},
    # Packages of extras, named when they are missing.
    "engines/polars.py": {"polars"},
    # Only definitions that are Java properties, from Pinot, need its parser.
    "wiring/config/documents.py": {"javaproperties"},
    # Metrics are served or exported only where an option asks for it.
    "wiring/metrics/endpoint.py": {"prometheus_client"},
    "wiring/metrics/opentelemetry.py": {"opentelemetry"},
    "wiring/metrics/spans.py": {"opentelemetry"},
    # One kind of storage each, chosen by the place of a topic.
    "arrowlog/disk/watching.py": {"inotify_simple"},
    "arrowlog/disk/objectclient.py": {"obstore"},
    "backends/file/foreign/arrivals.py": {"boto3", "botocore"},
    "arrowlog/disk/filesystems.py": {"fsspec"},
}
"""What one module may load when it is used."""

COMPUTING = {
    f"spi/soundness/{name}.py"
    for name in ("checking", "nullability", "rescaling", "schemas", "unpacking")
}
"""What `BatchValidator` loads when one is made, and the conversion of rows."""

PLUGGY = {"spi/hooks.py", "wiring/plugins/manager.py"}
"""The hook markers, and the manager that alone asks pluggy."""


_IMPORTING = ("import_module", "import_later", "__import__", "find_spec")


@dataclass(frozen=True)
class Import:
    """One import, or part of one, of a module."""

    module: str
    """Of the importer, by its path below the root."""
    target: str
    """Dotted, names included: ``a.b.c`` for ``from a.b import c``."""
    lazy: bool
    """Inside a function."""
    typing: bool
    """For type checkers only."""

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.module} imports {self.target}"


def imports_of(path: Path, name: str) -> Iterator[Import]:
    def walk(node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            checking = typing or (
                isinstance(child, ast.If)
                and isinstance(child.test, ast.Name)
                and child.test.id == "TYPE_CHECKING"
            )
            for target in targets(child):
                yield Import(name, target, inner, checking)
            yield from walk(child, lazy=inner, typing=checking)

    yield from walk(ast.parse(path.read_text("utf-8")), lazy=False, typing=False)


def targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative import"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    # import_module("streamfactory.x") is an import too.
    if isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rpartition(".")[2]
        first = node.args[0]
        if called in _IMPORTING and isinstance(first, ast.Constant):
            return [str(first.value)]
    return []


FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@cache
def all_imports() -> tuple[Import, ...]:
    """Every import of the code; parsed in the process that runs these tests only."""
    return tuple(
        found
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for found in imports_of(path, path.relative_to(ROOT).as_posix())
    )


def folder_of(module: str) -> str:
    return module.partition("/")[0]


def is_own(found: Import) -> bool:
    """Whether a plug-in imports itself; its harness for the kit is part of it."""
    folder, name = Path(found.module).with_suffix("").parts[:2]
    if folder not in ("backends", "decoders"):
        return False
    target = found.target.split(".")[1:3]
    if folder == "decoders" and target[0] == "decoders" and target[-1] in SHARED:
        return True
    if folder == "decoders" and target[-1] in ENVELOPES.get(name, ()):
        return True
    return tuple(found.target.split(".")[1:3]) in (
        (folder, name),
        (folder, name.removesuffix("_harness")),
    )


def test_every_folder_has_its_place() -> None:
    assert set(FOLDERS) <= set(BELOW)
    assert set(BELOW) == set(CLIENTS)
    assert len(all_imports()) > 300


@pytest.mark.parametrize("folder", FOLDERS)
def test_arrows_point_down(folder: str) -> None:
    wrong = []
    for found in all_imports():
        if found.top != "streamfactory" or folder_of(found.module) != folder:
            continue
        parts = found.target.split(".")
        layer = parts[1] if len(parts) > 1 else ""
        if layer not in BELOW[folder] and not is_own(found):
            wrong.append(str(found))
    assert wrong == []


def rows_of_the_map() -> list[str]:
    """The folders of the table in docs/design/architecture.md, uppermost first."""
    page = (ROOT / "docs" / "design" / "architecture.md").read_text("utf-8")
    return re.findall(r"^\| `([\w/]+)/` \|", page, re.MULTILINE)


def row_of(parts: Sequence[str], rows: list[str]) -> str | None:
    """The row that a module belongs to, by the parts of its path or its dotted name."""
    for name in ("/".join(parts[:2]), parts[0]):
        if name in rows:
            return name
    return None


def test_the_map_has_a_row_for_each_folder() -> None:
    inner = sorted(
        f"wiring/{path.parent.name}" for path in ROOT.glob("wiring/*/__init__.py")
    )
    whole = [folder for folder in FOLDERS if folder != "wiring"]
    rows = rows_of_the_map()
    assert sorted(rows) == sorted([*whole, *inner, "native"])


def test_imports_point_from_lower_rows_of_the_map_to_upper_ones() -> None:
    rows = rows_of_the_map()
    wrong = []
    for found in all_imports():
        if found.top != "streamfactory" or is_own(found):
            continue
        importer = row_of(Path(found.module).parts, rows)
        target = row_of(found.target.split(".")[1:3], rows)
        if importer and target and rows.index(target) > rows.index(importer):
            wrong.append(str(found))
    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_of_a_folder_have_no_circle(folder: str) -> None:
    below: dict[str, set[str]] = {}
    for found in all_imports():
        if folder_of(found.module) == folder and not found.module.endswith(
            "__init__.py"
        ):
            target = found.target.removeprefix("streamfactory.").replace(".", "/")
            for name in (target, target.rpartition("/")[0]):
                if (ROOT / f"{name}.py").is_file():
                    below.setdefault(found.module, set()).add(f"{name}.py")
    TopologicalSorter(below).prepare()


def test_no_module_imports_a_backend_or_a_decoder() -> None:
    plugins = ("streamfactory.backends.", "streamfactory.decoders.")
    wrong = [
        str(found)
        for found in all_imports()
        if found.target.startswith(plugins) and not is_own(found)
    ]
    assert wrong == []


def test_clients_are_loaded_in_their_place_only() -> None:
    wrong = []
    for found in all_imports():
        top = found.top
        if found.typing or top in sys.stdlib_module_names or top == "streamfactory":
            continue
        plugin = "/".join(found.module.removesuffix(".py").split("/")[:2])
        allowed = CLIENTS[folder_of(found.module)] | OWN_CLIENTS.get(plugin, set())
        if found.lazy:
            allowed |= LAZY.get(found.module, set())
        if top not in allowed:
            wrong.append(str(found))
    assert wrong == []


def test_the_contract_loads_arrow_in_functions_only() -> None:
    loaded = [
        str(found)
        for found in all_imports()
        if folder_of(found.module) == "spi"
        and found.top in ("pyarrow", "numpy")
        and not (found.lazy or found.typing or found.module in COMPUTING)
    ]
    assert loaded == []


def test_only_two_modules_touch_pluggy() -> None:
    assert {found.module for found in all_imports() if found.top == "pluggy"} == PLUGGY


def test_the_top_of_the_package_is_lazy() -> None:
    source = ROOT / "src" / "streamfactory" / "__init__.py"
    eager = [
        str(found)
        for found in imports_of(source, "__init__.py")
        if found.top == "streamfactory" and not (found.lazy or found.typing)
    ]
    assert eager == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "import streamfactory.wiring.streams.stream",
            ["streamfactory.wiring.streams.stream"],
        ),
        (
            "from streamfactory.backends import memory",
            ["streamfactory.backends.memory"],
        ),
        (
            "def f():\n    import importlib\n    importlib.import_module('zmq')",
            ["importlib", "zmq"],
        ),
        ("x = __import__('zmq')", ["zmq"]),
    ],
)
def test_the_test_sees_imports(code: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(code)
    assert [found.target for found in imports_of(path, "x.py")] == expected
