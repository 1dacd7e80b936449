"""The artefacts hold what the tree holds, and work where the tree is not."""

from __future__ import annotations

import configparser
import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "streamfactory"
FOLDERS = sorted(link.name for link in SOURCE.iterdir() if link.is_symlink())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
GROUPS = ("streamfactory.backends", "streamfactory.decoders")


def build(tree: Path, target: Path, kind: str) -> Path:
    """Build an artefact without a network and without isolation."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)],
        cwd=tree,
        check=True,
        capture_output=True,
        timeout=300,
    )
    [path] = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, folder, "sdist")) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = [path for path in folder.iterdir() if path.is_dir()]
    return unpacked


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def of_the_tree() -> set[str]:
    """What a wheel has to hold: every file, under its import name."""
    found = {f"streamfactory/{p.name}" for p in SOURCE.iterdir() if p.is_file()}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"streamfactory/{path.relative_to(ROOT).as_posix()}")
    # By its name PySpark finds it: it stands beside the package.
    return found | {"pyspark_streamfactory/__init__.py"}


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [path] = [n for n in archive.namelist() if n.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


# --- what is in them ------------------------------------------------------------------


def test_every_folder_of_code_has_its_link() -> None:
    code = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(FOLDERS) == code
    for folder in FOLDERS:
        assert (SOURCE / folder).readlink() == Path("..", "..", folder)


def test_wheel_holds_what_the_tree_holds(wheel: Path) -> None:
    assert names(wheel) == of_the_tree()
    assert "streamfactory/py.typed" in names(wheel)


@pytest.mark.long("builds a second wheel")
def test_wheel_is_the_same_when_built_from_the_sdist(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    assert names(build(sdist, tmp_path, "wheel")) == names(wheel)


def test_sdist_keeps_the_folders_and_nothing_of_the_machine(sdist: Path) -> None:
    top = {path.name for path in sdist.iterdir()}
    assert {*FOLDERS, "src", "tests", "docs", "LICENSE", "README.md"} <= top
    strange = [
        path
        for path in sdist.rglob("*")
        if path.suffix == ".pyc" or path.name in (".venv", ".git", "__pycache__")
    ]
    assert strange == []


def test_wheel_says_what_the_project_says(wheel: Path) -> None:
    fields = email.message_from_string(metadata(wheel, "METADATA"))
    assert (fields["Name"], fields["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert fields["License-Expression"] == PROJECT["license"]
    assert fields["Requires-Python"] == PROJECT["requires-python"]
    extras = PROJECT["optional-dependencies"]
    assert set(fields.get_all("Provides-Extra", [])) == set(extras)
    needed = [r for r in fields.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert {normal(r) for r in needed} == {normal(r) for r in PROJECT["dependencies"]}
    assert "Apache License" in metadata(wheel, "licenses/LICENSE")


def normal(requirement: str) -> str:
    return re.sub(r"[\s()]", "", requirement).lower()


def points_of(wheel: Path) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(metadata(wheel, "entry_points.txt"))
    return {section: dict(parser[section]) for section in parser.sections()}


def test_entry_points_are_those_of_the_project(wheel: Path) -> None:
    assert points_of(wheel) == {
        "console_scripts": PROJECT["scripts"],
        **PROJECT["entry-points"],
    }


def test_extras_of_an_entry_point_survive_the_build(
    sdist: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(sdist, tree, symlinks=True)
    project = tree / "pyproject.toml"
    line = 'memory = "streamfactory.backends.memory"\n'
    text = project.read_text()
    assert line in text
    more = 'kafkaesque = "streamfactory.backends.memory [kafka]"\n'
    project.write_text(text.replace(line, line + more))
    points = points_of(build(tree, tmp_path / "out", "wheel"))
    assert points["streamfactory.backends"]["kafkaesque"] == (
        "streamfactory.backends.memory [kafka]"
    )


# --- without the tree -----------------------------------------------------------------


def run_without_tree(site: Path, folder: Path, code: str) -> Any:
    """Run code with the unpacked wheel on the path, and neither tree nor `.pth` files.

    Isolated (-I) from the environment and the working folder, without the site module
    (-S) that would read the editable install's `.pth`.
    """
    paths = [str(site), *{sysconfig.get_path(k) for k in ("purelib", "platlib")}]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {paths}\n{code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


IMPORT_ALL = """
import importlib, json, pathlib, streamfactory

root = pathlib.Path(streamfactory.__file__).parent
failed, seen = {}, []
for path in sorted(root.rglob("*.py")):
    parts = path.relative_to(root.parent).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    try:
        seen.append([name, importlib.import_module(name).__file__])
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {error}"
ours = [m.__file__ for n, m in sys.modules.items() if n.startswith("streamfactory")]
print(json.dumps({"failed": failed, "seen": seen, "ours": ours}))
"""


@pytest.mark.long("imports each module by itself")
def test_every_module_of_the_wheel_is_importable_alone(
    site: Path, tmp_path: Path
) -> None:
    found = run_without_tree(site, tmp_path, IMPORT_ALL)
    assert found["failed"] == {}
    files = {
        path
        for path in of_the_tree()
        if path.endswith(".py") and path.startswith("streamfactory/")
    }
    assert len(found["seen"]) == len(files)
    assert all(str(path).startswith(f"{site}{os.sep}") for path in found["ours"])
    assert not any(str(path).startswith(f"{ROOT}{os.sep}") for path in found["ours"])


LIST = """
import json
from streamfactory.wiring.plugins.manager import PluginManager

manager = PluginManager({})
found = {
    group: {i.name: str(i.error or "loaded") for i in manager.list(group, load=True)}
    for group in ("streamfactory.backends", "streamfactory.decoders")
}
print(json.dumps(found))
"""


def test_built_ins_are_found_in_the_wheel(site: Path, tmp_path: Path) -> None:
    found = run_without_tree(site, tmp_path, LIST)
    for group in GROUPS:
        assert set(found[group]) == set(PROJECT["entry-points"][group])
    assert found["streamfactory.backends"]["memory"] == "loaded"
    assert found["streamfactory.decoders"]["raw"] == "loaded"
