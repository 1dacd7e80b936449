"""The lock file has a version of each dependency, within its bounds."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def locked() -> dict[str, list[str]]:
    """The versions in the lock file; some packages have several, by their markers."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            one = Requirement(line)
            (pin,) = one.specifier
            assert pin.operator == "==", line
            found.setdefault(canonicalize_name(one.name), []).append(pin.version)
    return found


def test_each_dependency_is_locked_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *(one for name, some in extras.items() if name != "dev" for one in some),
    ]
    versions = locked()
    for text in declared:
        wanted = Requirement(text)
        if wanted.name in ("streamfactory", "streamfactory-native"):
            continue  # `all` is the other extras; the compiled part is released with us
        found = versions.get(canonicalize_name(wanted.name), [])
        fits = [one for one in found if wanted.specifier.contains(one)]
        assert fits, f"{text}: constraints.txt has {found}; run make lock"
