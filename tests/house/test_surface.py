"""The face of the package, and what no file may hold."""

from __future__ import annotations

import dataclasses
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamfactory
from streamfactory import spi

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


PUBLIC = """
ConfigError DataLossError DecodeError Faults MisuseError Partition PermanentError
PluginError Position Sink Stream StreamConfig StreamError TransientError backfill copy
engines export export_opentelemetry hookimpl metrics open open_sink publish
push_table replay_dead_letters serve serve_metrics
"""
"""What users import: a change is one for them, and needs a line in CHANGELOG."""


def test_the_public_names_are_these() -> None:
    assert streamfactory.__all__ == PUBLIC.split()
    assert dir(streamfactory) == sorted(streamfactory.__all__)
    for name in streamfactory.__all__:
        assert getattr(streamfactory, name).__doc__
    with pytest.raises(AttributeError) as caught:
        streamfactory.tail  # noqa: B018
    assert str(caught.value) == "module 'streamfactory' has no attribute 'tail'"


def _undocumented(contract: type) -> list[str]:
    """Fields of a class that ``help()`` shows without a description."""
    text = pydoc.plain(pydoc.render_doc(contract))
    named = getattr(contract, "_fields", ())
    if dataclasses.is_dataclass(contract):
        named = tuple(field.name for field in dataclasses.fields(contract))
    entry = r"^ [|] {{6}}{}: \S.{{3,}}$"
    return [
        name
        for name in named
        if not name.startswith("_")
        and not re.search(entry.format(name), text, re.MULTILINE)
    ]


def test_help_describes_each_field_of_the_contract() -> None:
    public = [getattr(spi, name) for name in spi.__all__]
    classes = [each for each in public if isinstance(each, type)]
    found = {each.__name__: _undocumented(each) for each in classes}
    assert {name: fields for name, fields in found.items() if fields} == {}
    described = [each for each in classes if dataclasses.is_dataclass(each)]
    assert len(described) > 25


def test_the_check_of_help_finds_a_field_without_description() -> None:
    @dataclasses.dataclass
    class Partly:
        """Has two fields.

        Args:
            known: It is described.
        """

        known: int
        unknown: int
        """This text is not shown by ``help()``."""

    assert _undocumented(Partly) == ["unknown"]


def test_pages_use_the_package_root_and_the_contract() -> None:
    # Parts of the framework that a page for authors, or of one task, shows by intent.
    shown = {"checkpoints.md", "dead-letters.md", "spi.md"}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *EXAMPLES]
    inner = [
        path.name
        for path in pages
        if "streamfactory.wiring" in path.read_text("utf-8")
        or "streamfactory.transfer" in path.read_text("utf-8")
    ]
    assert sorted(set(inner) - shown) == []


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, streamfactory\n"
        "ours = {n for n in sys.modules if n.startswith('streamfactory')}\n"
        "print(sorted(ours | ({'pyarrow', 'pluggy', 'click'} & set(sys.modules))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['streamfactory']\n"


def files() -> Iterator[Path]:
    """Every file that is under version control, or is to be."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in done.stdout.split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink():
            yield path


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    homes = r"/home/\w+/|/Users/\w+/|[A-Z]:\\Users\\"
    here = {str(ROOT), str(Path.home())}
    # A folder right below the root, such as /src, is too common a word.
    own = [re.escape(f"{p}/") for p in sorted(here) if len(Path(p).parts) > 2]
    pattern = re.compile("|".join([homes, *own]).encode())
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in files()
        if path != Path(__file__) and (match := pattern.search(path.read_bytes()))
    ]
    assert found == []
