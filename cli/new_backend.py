"""``new-backend``: makes a package for a stream type of one's own."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.spi.hooks import BACKENDS
from streamfactory.wiring.plugins.manager import OWN_DISTRIBUTION, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.cli.printing import Printer

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST: Final = 20
"""With this many the lines of the template stay within their length."""
_MARK: Final = re.compile(r"@(?P<what>if (?P<name>[a-z]+)|else|end)@\n")
_SUFFIX: Final = ".in"
"""What a file of the template ends with: no tool takes it for one of ours."""


@click.command("new-backend")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Make the folder of the package there; else here.",
)
@click.option(
    "--writing",
    is_flag=True,
    help="A stream that is read and written exactly once, in a SQLite database.",
)
@click.option(
    "--envelopes",
    is_flag=True,
    help="A stream of undecoded messages, with a decoder, instead of typed rows.",
)
@json_flag
@click.pass_obj
def new_backend_command(
    printer: Printer, *, name: str, into: Path, writing: bool, envelopes: bool
) -> None:
    """Create a package for a new stream type NAME.

    It is small, complete and tested, and passes the conformance kit: a stream to be
    changed into yours, a harness, tests, and a README that leads. By default it reads a
    folder of text files. The folder streamfactory-NAME must not be there yet.
    """
    _check(name)
    distribution = f"streamfactory-{name.replace('_', '-')}"
    words = {
        "@NAME@": name,
        "@DISTRIBUTION@": distribution,
        "@MODULE@": distribution.replace("-", "_"),
        "@CLASS@": "".join(part.capitalize() for part in re.split("[-_]", name)),
        "@VERSION@": version(OWN_DISTRIBUTION),
    }
    folder = into / distribution
    templates = ["template", *["template_writing"] * writing]
    chosen = {"writing": writing, "envelopes": envelopes}
    made = _make(folder, templates, words, chosen)
    document = {"name": name, "folder": str(folder), "files": made}
    printer.show(document, _lines(name, folder, made))


def _lines(name: str, folder: Path, made: Sequence[str]) -> Iterator[str]:
    yield f"{folder}:"
    for path in made:
        yield f"  {path}"
    yield ""
    yield "It passes the conformance kit as it is. To run it, and to continue:"
    yield f"  cd {folder}"
    yield "  pip install -e '.[dev]'"
    yield f"  streamfactory conformance {name}"
    yield "  pytest"
    yield "README.md leads from there."


def _check(name: str) -> None:
    """Refuse what cannot be a stream type of a stranger's."""
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST:
        msg = (
            f"{name!r} is no name for a stream type: lower-case letters and digits, "
            f"a letter first, words joined by - or _, at most {_LONGEST} characters."
        )
        raise click.BadParameter(msg, param_hint="'NAME'")
    if name in default_manager().names(BACKENDS):
        msg = f"there is a stream type {name!r} already, see streamfactory list."
        raise click.BadParameter(msg, param_hint="'NAME'")


def _make(
    folder: Path,
    templates: Sequence[str],
    words: Mapping[str, str],
    chosen: Mapping[str, bool],
) -> list[str]:
    """Write the package, whole or not at all; answers its files."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        there = isinstance(error, FileExistsError)
        why = "it exists already" if there else error.strerror
        msg = f"the folder {str(folder)!r} cannot be made: {why}."
        raise click.BadParameter(msg, param_hint="'--into'") from error
    try:
        made: set[str] = set()
        for template in templates:  # a later one replaces files of the one before
            made |= {*_write(folder, template, words, chosen)}
        return sorted(made)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(
    folder: Path, name: str, words: Mapping[str, str], chosen: Mapping[str, bool]
) -> Iterator[str]:
    with as_file(files("streamfactory.conformance") / name) as template:
        for source in template.rglob(f"*{_SUFFIX}"):
            relative = source.relative_to(template).as_posix()
            relative = _filled(relative.removesuffix(_SUFFIX), words)
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            text = _chosen(source.read_text(encoding="utf-8"), chosen)
            target.write_text(_filled(text, words), encoding="utf-8")
            yield relative


def _chosen(text: str, chosen: Mapping[str, bool]) -> str:
    """The lines of a template that apply.

    A line ``@if NAME@`` begins lines that apply if NAME is chosen, ``@else@`` those
    that apply otherwise, and ``@end@`` ends both.
    """
    kept: list[str] = []
    applies: list[bool] = []
    for line in text.splitlines(keepends=True):
        found = _MARK.fullmatch(line)
        if found is None:
            kept += [line] * all(applies)
        elif found["name"] is not None:
            applies.append(chosen[found["name"]])
        elif found["what"] == "else":
            applies.append(not applies.pop())
        else:
            applies.pop()
    return "".join(kept)


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
