"""The release candidate: its section, its version and the page for authors agree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

from tests.distributions.test_older_distribution import WHEEL

ROOT: Final = Path(__file__).parents[2]
AUTHORS: Final = (ROOT / "docs" / "changes-for-authors.md").read_text(encoding="utf-8")
CHANGES: Final = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
FROZEN: Final = "22 November 2026"
"""When level 1 of the contract was frozen."""
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)


def _version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def _git(*words: str) -> list[str] | None:
    """The lines of an answer of git; None where the sources are no clone."""
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.split() if done.returncode == 0 else None


def test_the_newest_section_is_the_candidate_or_the_version_of_the_project() -> None:
    newest, *older = _SECTION.findall(CHANGES)
    assert newest in ("Unreleased", f"{_version()} - {newest[-10:]}")
    # The state in which level 1 was frozen is no release.
    assert older.pop() == f"State of {FROZEN}"
    released = [section.split(" - ")[0] for section in older]
    tags = _git("tag", "--list", "v*")
    # A clone may have no tags; then the head of the page says whether there are any.
    if newest == "Unreleased" and tags:
        assert sorted(released) == sorted(tag.removeprefix("v") for tag in tags)
    head = CHANGES.partition("\n## ")[0]
    candidate = f"The candidate is {_version()}:"
    assert (candidate in head) is (_version() not in released)
    assert ("No version is released, and no commit is tagged." in head) is (
        not released
    )
    assert "(docs/changes-for-authors.md)" in head


def test_each_section_has_its_groups_in_their_order() -> None:
    for section in CHANGES.split("\n## ")[1:]:
        groups = re.findall(r"^### (.+)$", section, re.MULTILINE)
        known = ("Added", "Changed", "Removed", "Fixed")
        assert groups == [group for group in known if group in groups] != []


def test_no_change_is_listed_twice() -> None:
    entries = [line for line in CHANGES.splitlines() if line.startswith("- ")]
    assert sorted({*entries}) == sorted(entries)


def test_the_page_for_authors_is_about_the_wheel_that_the_kit_runs_on() -> None:
    assert FROZEN in AUTHORS
    assert f"`{WHEEL.name.split('-')[0].replace('_', '-')}`" in AUTHORS
    assert WHEEL.name.split("-")[1] == _version()
