"""``streamfactory test`` in a process of its own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome


@pytest.mark.long("starts Spark's Java")
@pytest.mark.usefixtures("own_spark")
def test_the_tests_of_the_page_come_out_as_it_shows(
    program: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    blocks = re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', page, re.DOTALL)
    for name, text in blocks:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    [shown] = re.findall(r"\$ streamfactory test spent\n(.*?)```", page, re.DOTALL)
    outcome = program("test", "spent", "--junit", "results.xml")
    assert (outcome.status, outcome.out) == (1, shown), outcome
    assert ET.parse("results.xml").getroot().attrib["failures"] == "1"
    assert program("test", "spent", "--update").status == 0
    assert program("test", "--json").json["passed"] == 3
    outcome = program("test", "paid")
    assert outcome.status == 2
    assert "configs/pipelines/paid.toml has no tests" in outcome.err
