"""Runs what one page of the documentation shows, in the order of the page.

``python pages.py PAGE`` runs in the folder where it is started: blocks of Python in one
namespace, consoles by command; a block with a ``title="path"`` is written to that file,
and Python finds modules among these. It ends with status 1 and the first difference, or
prints how much of what it ran.

A block opts out with ``no-run: reason`` behind its language. In a console, lines that
begin with ``$ streamfactory `` are run and their output is compared to the letter, but
for durations and rates, as ``0.08 s``; a line ``...`` stands for any lines.
``$ echo $?`` tells the status of the last one.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LANGUAGES = {
    "python",
    "pycon",
    "console",
    "toml",
    "json",
    "properties",
    "text",
    "sql",
    "sh",
    "yaml",
}
FILES = {"python", "toml", "json", "properties", "text"}
FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
NO_RUN = re.compile(r"\bno-run:\s*(.*)$")
TITLE = re.compile(r'\btitle="([^"]+)"')
TIME = re.compile(r"\d[\d.,]*(?= s\b| rows/s)")
"""A number that differs from run to run."""


HELPS = """
import json, sys
from click.testing import CliRunner
from streamfactory.cli.program import root

def run(words):
    done = CliRunner().invoke(root, words, prog_name="streamfactory")
    return done.exit_code, done.output

print(json.dumps([run(words) for words in json.load(sys.stdin)]))
"""
"""Runs several commands in one process."""


class PageError(Exception):
    """A page that does not do what it shows."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    words: str
    """What follows the language."""
    line: int
    """Of its first line of text, from 1."""
    text: str

    @property
    def runs(self) -> bool:
        return NO_RUN.search(self.words) is None


@dataclass
class Tally:
    """How much was run."""

    python: int = 0
    commands: int = 0
    files: int = 0


@dataclass
class Shell:
    """The consoles of one page."""

    tally: Tally
    status: int = field(default=0)
    helps: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Status and output of the commands that print a help, by command."""

    def run_helps(self, commands: Sequence[str]) -> None:
        """Run all commands that print a help, in one process: a page has up to 44."""
        lines = [command for command in commands if is_help(command)]
        done = subprocess.run(
            [sys.executable, "-c", HELPS],
            input=json.dumps([shlex.split(line)[1:] for line in lines]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=300,
        )
        found = [(status, output) for status, output in json.loads(done.stdout)]
        self.helps = dict(zip(lines, found, strict=True))

    def run(self, command: str) -> str | None:
        """The output of a command; None for one that is only shown."""
        if command == "echo $?":
            return f"{self.status}\n"
        if command.split()[:1] != ["streamfactory"]:
            return None
        self.tally.commands += 1
        if command in self.helps:
            self.status, output = self.helps[command]
            return output
        words = shlex.split(command)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "streamfactory", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        self.status = done.returncode
        return done.stdout


def is_help(command: str) -> bool:
    """Whether a command prints a help, which depends on nothing."""
    words = command.split()
    return words[:1] == ["streamfactory"] and words[-1] == "--help"


def commands_of(block: Block) -> list[str]:
    """The commands of a console."""
    lines = block.text.splitlines()
    return [line[2:].strip() for line in lines if line.startswith("$ ")]


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page; one that is not closed is an error."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    start = 0
    lines: list[str] = []
    for number, line in enumerate(page.splitlines(), start=1):
        fence = FENCE.match(line)
        if opening is None:
            if fence is not None:
                opening, start, lines = fence, number + 1, []
        elif fence and fence[2].startswith(opening[2]) and not fence[3].strip():
            language, _, words = opening[3].strip().partition(" ")
            text = "".join(f"{text}\n" for text in lines)
            found.append(Block(language, words.strip(), start, text))
            opening = None
        else:
            lines.append(line.removeprefix(opening[1]))
    if opening is not None:
        msg = f"line {start - 1}: a block is never closed"
        raise PageError(msg)
    return found


def check(block: Block) -> None:
    """Refuse what the runner would pass over in silence."""
    if block.language not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        msg = f"line {block.line}: language {block.language!r}; known are {known}"
        raise PageError(msg)
    refusal = NO_RUN.search(block.words)
    if refusal is not None and not refusal[1].strip():
        msg = f"line {block.line}: no-run without a reason"
        raise PageError(msg)
    rest = TITLE.sub("", NO_RUN.sub("", block.words)).strip()
    if rest:
        msg = f"line {block.line}: {rest!r} means nothing here"
        raise PageError(msg)


def matches(shown: list[str], real: list[str]) -> bool:
    """Whether output is as shown, where a line ``...`` stands for any lines."""
    if not shown:
        return not real
    if shown[0].strip() == "...":
        return any(matches(shown[1:], real[at:]) for at in range(len(real) + 1))
    return bool(real) and shown[0] == real[0] and matches(shown[1:], real[1:])


def run_console(block: Block, shell: Shell) -> None:
    """Run the commands of a console and compare what they print."""
    lines = block.text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command = lines[at][2:].strip()
        real = shell.run(command)
        shown = [line.rstrip() for line in lines[at + 1 : end]]
        real = None if real is None else TIME.sub("N", real)
        shown = [TIME.sub("N", line) for line in shown]
        while shown and not shown[-1]:
            shown.pop()
        if real is None:
            continue
        printed = [line.rstrip() for line in real.rstrip().splitlines()]
        if not matches(shown, printed):
            msg = "\n".join(
                [
                    (
                        f"line {block.line + at}: `{command}` ends with {shell.status} "
                        "and prints"
                    ),
                    *printed,
                    "--- but is shown as",
                    *shown,
                ]
            )
            raise PageError(msg)


def run(path: Path) -> Tally:
    """Run a page in the working folder."""
    tally = Tally()
    sys.path.append(str(Path.cwd()))
    shell = Shell(tally)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    found = blocks(path.read_text(encoding="utf-8"))
    consoles = [each for each in found if each.language == "console" and each.runs]
    commands = [command for each in consoles for command in commands_of(each)]
    if sum(map(is_help, commands)) > 1:
        shell.run_helps(commands)
    for block in found:
        check(block)
        title = TITLE.search(block.words)
        if block.language in FILES and title is not None:
            file = Path(title[1])
            if file.is_absolute() or ".." in file.parts:
                msg = f"line {block.line}: {title[1]!r} leads out of the folder"
                raise PageError(msg)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
            tally.files += 1
        elif block.language == "python" and block.runs:
            # Padded, so that a traceback names the line of the page.
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(path), "exec", dont_inherit=True), namespace)
            tally.python += 1
        elif block.language == "console" and block.runs:
            run_console(block, shell)
    return tally


if __name__ == "__main__":
    try:
        print(run(Path(sys.argv[1])))  # noqa: T201
    except PageError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
