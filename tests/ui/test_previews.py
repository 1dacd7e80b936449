"""Previews of pipelines that are not saved; a stand-in prints what Spark found."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ui.conftest import SCRIPT, World
from tests.ui.test_editor import Editor, person

from streamfactory.ui.editing import previewing
from streamfactory.ui.editing.drafts import Remark
from streamfactory.ui.editing.previewing import Previews, placed
from streamfactory.ui.site import EXTENSION

__all__ = ["person"]


def command(folder: Path, output: Any) -> tuple[str, ...]:
    """What prints a document, and keeps its standard input."""
    text = output if isinstance(output, str) else json.dumps(output)
    (folder / "output").write_text(text)
    program = (
        "import sys, pathlib; "
        "text = iter(lambda: sys.stdin.read(1), chr(0)); "
        f"pathlib.Path({str(folder / 'input')!r}).write_text(''.join(text)); "
        f"print(pathlib.Path({str(folder / 'output')!r}).read_text())"
    )
    return (sys.executable, "-c", program)


def with_previews(person: Editor, previews: Previews) -> None:
    application = person.client.client.application
    site = replace(application.extensions[EXTENSION], previews=previews)
    application.extensions[EXTENSION] = site


def text_of(small: World) -> str:
    return (
        f'name = "daily"\ncheckpoint = "{small.folder}/k"\n'
        '[source]\nstream = "clicks"\n'
        '[[steps]]\nid = "all"\nsql = """\n\nselect *\nfrom input"""\n'
        '[[sinks]]\nstream = "orders"\n'
    )


def shown(person: Editor, text: str) -> str:
    form = {"kind": "pipeline", "file": "", "digest": "", "text": text}
    status, where = person.post("/edit/preview", form)
    assert status == 303, where
    deadline = time.monotonic() + 60
    while 'http-equiv="refresh"' in (page := person.get(where)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return page


def test_rows_of_each_step_are_shown_before_anything_is_saved(
    person: Editor, small: World, tmp_path: Path
) -> None:
    rows = [{"id": 7, SCRIPT: SCRIPT}, {"id": None, SCRIPT: {"a": "x" * 5000}}]
    document = {"ids": [{"id": "input", "rows": rows}, {"id": "all", "rows": []}]}
    with_previews(person, Previews(command(tmp_path, document)))
    page = shown(person, text_of(small))
    assert (tmp_path / "input").read_text() == text_of(small)
    assert SCRIPT not in page
    assert '<td class="cell">7</td>' in page
    assert "x" * 500 not in page
    assert "No rows." in page
    assert not (small.folder / "configs" / "pipelines").exists()


def test_problems_are_at_the_lines_of_their_query(
    person: Editor, small: World, tmp_path: Path
) -> None:
    problem = {"key": "sql", "origin": "x.toml:5", "level": "error"}
    problem["what"] = f"step 'all': {SCRIPT} (line 2 of the SQL, column 3)"
    document = {"error": "config", "what": "1 problem", "problems": [problem]}
    with_previews(person, Previews(command(tmp_path, document)))
    page = shown(person, text_of(small))
    assert SCRIPT not in page
    assert "error, line 10: sql: step" in page
    marked = page.split('class="marked"><code>')[1]
    assert marked.startswith("from input")


def test_a_query_of_one_line_is_where_its_key_is() -> None:
    remark = Remark("error", "sql", "x (line 1 of the SQL, column 1)", 2)
    text = 'a = 1\n[[steps]]\nid = "x"\nsql = "select"\n'
    assert placed(remark, text).line == 4
    assert placed(replace(remark, text="other"), text).line == 2
    assert placed(remark, "").line == 2


@pytest.mark.parametrize(
    ("output", "refused"),
    [("no JSON", "nothing that can be shown"), ('"' + "x" * (5 << 20), "than 4 MiB")],
)
def test_other_output_is_an_error(
    person: Editor, small: World, tmp_path: Path, output: str, refused: str
) -> None:
    with_previews(person, Previews(command(tmp_path, output)))
    assert refused in shown(person, text_of(small))


def test_a_preview_has_a_deadline(
    person: Editor, small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previewing, "SECONDS", 0.3)
    sleeping = (sys.executable, "-c", "import time; time.sleep(600)")
    with_previews(person, Previews(sleeping))
    assert "has not ended within" in shown(person, text_of(small))


def test_a_preview_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    child = (
        "import os, pathlib, time; from streamfactory.cli import attached; "
        "text = attached.read_text(); attached.end_with_input(); "
        f"made = pathlib.Path({str(tmp_path)!r}, 'made'); "
        "made.write_text(f'{os.getpid()} {text}'); "
        f"made.rename({str(tmp_path / 'child')!r}); time.sleep(120)"
    )
    server = (
        "import pathlib, sys, time; "
        "from streamfactory.ui.editing.previewing import Previews; "
        f"made = Previews((sys.executable, '-c', {child!r})); "
        "made.start(pathlib.Path('p'), 'text'); "
        "time.sleep(120)"
    )
    deadline = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", server]) as process:
        while not (tmp_path / "child").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        number, text = (tmp_path / "child").read_text().split(" ", 1)
        assert text == "text"
        process.kill()
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_commands_and_invalid_texts_start_nothing(
    person: Editor, small: World, tmp_path: Path
) -> None:
    with_previews(person, Previews(command(tmp_path, {"ids": []})))
    text = text_of(small)
    for wrong in (
        text.replace("[source]", 'hook.command = "touch x"\n[source]'),
        text + '[spark]\n"spark.jars" = "x.jar"\n',
        text.replace("clicks", "nobody"),
        "name = [",
    ):
        form = {"kind": "pipeline", "text": wrong}
        assert person.post("/edit/preview", form)[0] == 400, wrong
    form = {"kind": "stream", "text": text}
    assert person.post("/edit/preview", form)[0] == 400
    assert not (tmp_path / "input").exists()
