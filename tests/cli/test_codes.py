"""Every error that a command prints names its code, which docs/errors.md explains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
CODES = set(re.findall("^## (.+)$", PAGE.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("validate",),
        ("check", "nowhere"),
        ("describe", "memroy"),
        ("describe", "--decoder", "jsno"),
        ("schema", "torn.toml"),
        ("copy", "nowhere", "elsewhere"),
        ("publish", "nowhere"),
        ("tail", "nowhere"),
        ("run", "nowhere.toml"),
        ("spool", "nowhere"),
        ("serve", "-o", "calls=many"),
        ("lag", "nowhere"),
        ("offsets", "show", "nowhere", "--group", "g"),
        ("checkpoint", "show", "nowhere"),
        ("replay-dead-letters", "nowhere", "elsewhere"),
        ("monitoring", "export", "nowhere/at/all", "--nonsense"),
        ("topics", "list", "nowhere"),
        ("conformance", "memroy"),
        ("prove", "nowhere"),
        ("new-backend", "memory"),
        ("init", "--nonsense"),
    ],
)
def test_a_failing_command_names_the_code_as_json_does(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torn.toml").write_text("[")
    done = streamfactory(*words)
    assert done.status
    shown = re.findall(r"\[([a-z_]+)\] ", done.err + done.out)
    assert shown, done.err + done.out
    assert set(shown) <= CODES
    as_json = streamfactory(*words, "--json")
    if as_json.err:
        assert json.loads(as_json.err)["error"] == shown[0]


@pytest.mark.parametrize(
    "words",
    [
        ("lag",),
        ("validate", "--no-spark"),
        ("run",),
        ("checkpoint", "show"),
        ("checkpoint", "lag"),
        ("checkpoint", "diff", "somewhere"),
        ("offsets", "show"),
        ("top", "--once"),
        ("init",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + ".toml", "n/" * 2500 + "x"])
def test_a_name_that_no_file_can_have_is_no_defect(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = streamfactory(*words, name)
    assert done.status
    assert "[internal]" not in done.err + done.out
    assert "Traceback" not in done.err + done.out
