"""The release candidate: its section, its version and the page for authors agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from tests.distributions.test_older_distribution import WHEEL

ROOT: Final = Path(__file__).parents[2]
AUTHORS: Final = (ROOT / "docs" / "changes-for-authors.md").read_text(encoding="utf-8")
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)


def _version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def test_the_newest_section_is_the_candidate_or_the_version_of_the_project() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest, *released = _SECTION.findall(text)
    names = [name.split()[0].strip("[]") for name in released]
    assert newest == "Unreleased" or newest.split()[0].strip("[]") == _version()
    assert sorted(set(names)) == sorted(names)
    candidate = text.split("\n## ")[1]
    groups = re.findall(r"^### (.+)$", candidate, re.MULTILINE)
    assert groups == [
        g for g in ("Added", "Changed", "Removed", "Fixed") if g in groups
    ]
    assert groups != []


def test_the_page_for_authors_is_about_the_wheel_that_the_kit_runs_on() -> None:
    assert "22 November 2026" in AUTHORS
    assert f"`{WHEEL.name.split('-')[0].replace('_', '-')}`" in AUTHORS
    assert WHEEL.name.split("-")[1] == _version()
