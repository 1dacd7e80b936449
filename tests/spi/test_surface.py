"""What authors import: all of it is named, and importing it loads no Arrow."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from streamfactory import spi


def test_all_names_what_can_be_imported_and_nothing_else() -> None:
    code = ast.parse(Path(spi.__file__).read_text(encoding="utf-8"))
    imports = (node for node in ast.walk(code) if isinstance(node, ast.ImportFrom))
    public = [
        (alias.name, node.module)
        for node in imports
        if str(node.module).startswith("streamfactory.spi.")
        for alias in node.names
    ]
    assert sorted(name for name, _ in public) == sorted(spi.__all__) == dir(spi)
    # Also those that are imported at their first use: by another list.
    for name, module in public:
        assert getattr(spi, name) is getattr(import_module(str(module)), name)


def test_public_classes_of_the_modules_are_all_there() -> None:
    folder = Path(spi.__file__).parent
    missing = []
    for path in sorted(folder.glob("[a-z]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                missing += [node.name] if node.name not in spi.__all__ else []
    # Those of the framework alone, and what our own backends share.
    assert missing == ["Kind", "Backoff", "Setting", "HookSpecs", "UserFile", "Wake"]


def test_importing_the_contract_loads_no_arrow_and_no_client() -> None:
    code = (
        "import sys, streamfactory.spi\n"
        "heavy = {'pyarrow', 'numpy', 'pandas', 'click', 'streamfactory.wiring'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print(sorted(m for m in sys.modules if m.startswith('streamfactory.spi.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    own = ["streamfactory.spi.errors", "streamfactory.spi.hooks"]
    assert done.stdout == f"[]\n{own}\n"


ENDS = [
    spi.Finished(),
    spi.Failed("torn"),
    spi.Cancelled("somebody"),
    spi.ReaderFinished(),
    spi.Abandoned(),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_kinds_of_end_differ_in_type_and_pickle(end: spi.End) -> None:
    assert pickle.loads(pickle.dumps(end)) == end
    assert [other for other in ENDS if other == end] == [end]


def test_values_that_cross_processes_pickle_and_compare() -> None:
    partition = spi.Partition("clicks", 3)
    values = [
        partition,
        spi.Loss(partition, 3, None, "retention"),
        spi.FetchLimits(10, 100, 0.25),
        spi.PartitionInfo(partition, 0, 7, incarnation="a"),
        spi.Claims(replayable=True),
        spi.Verdict(spi.Guarantee.AT_LEAST_ONCE, ("because",)),
        spi.BadMessage(3, "malformed", "it is no JSON"),
        spi.Summary(),
    ]
    for value in values:
        assert pickle.loads(pickle.dumps(value)) == value


def test_the_envelope_is_spark_kafkas() -> None:
    assert str(spi.envelope_schema()) == (
        "key: binary\n"
        "value: binary\n"
        "topic: string not null\n"
        "partition: int32 not null\n"
        "offset: int64 not null\n"
        "timestamp: timestamp[us, tz=UTC]\n"
        "timestampType: int32 not null\n"
        "headers: list<item: struct<key: string not null, value: binary>>\n"
        "  child 0, item: struct<key: string not null, value: binary>\n"
        "      child 0, key: string not null\n"
        "      child 1, value: binary"
    )


@pytest.mark.parametrize("name", ["Setting", "combine", "can_rescale"])
def test_a_name_that_moved_is_a_deprecated_alias(name: str) -> None:
    assert name not in spi.__all__
    with pytest.warns(
        DeprecationWarning, match=f"import {name} from streamfactory.spi"
    ):
        assert getattr(spi, name).__name__ == name


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tail'"):
        spi.tail  # noqa: B018
