"""``new-backend``: makes a package for a stream type of one's own."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result
from streamfactory.spi.hooks import BACKENDS
from streamfactory.wiring.plugins.manager import OWN_DISTRIBUTION, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.cli.printing import Printer

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST: Final = 20
"""With this many the lines of the template stay within their length."""
_SUFFIX: Final = ".in"
"""What a file of the template ends with: no tool takes it for one of ours."""


@dataclass(frozen=True, slots=True)
class NewBackend(Result):
    """The answer of ``new-backend``."""

    name: str
    folder: str
    files: list[str]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"{self.folder}:"
        for path in self.files:
            yield f"  {path}"
        yield ""
        yield "It passes the conformance kit as it is. To see that, and to go on:"
        yield f"  cd {self.folder}"
        yield "  pip install -e '.[dev]'"
        yield f"  streamfactory conformance {self.name}"
        yield "  pytest"
        yield "README.md leads from there."


@click.command("new-backend")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Make the folder of the package there; else here.",
)
@json_flag
@click.pass_obj
def new_backend_command(printer: Printer, *, name: str, into: Path) -> None:
    """Create a package for a new stream type NAME.

    It is small, complete and tested, and passes the conformance kit: a read-only stream
    to be changed into yours, a harness, tests, and a README that leads. The folder
    streamfactory-NAME must not be there yet.
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
    made = _make(folder, words)
    printer.show(NewBackend(name, str(folder), made))


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


def _make(folder: Path, words: Mapping[str, str]) -> list[str]:
    """Write the package, whole or not at all; answers its files."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        there = isinstance(error, FileExistsError)
        why = "it is there already" if there else error.strerror
        msg = f"the folder {str(folder)!r} cannot be made: {why}."
        raise click.BadParameter(msg, param_hint="'--into'") from error
    try:
        return sorted(_write(folder, words))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(folder: Path, words: Mapping[str, str]) -> Iterator[str]:
    with as_file(files("streamfactory.conformance") / "template") as template:
        for source in template.rglob(f"*{_SUFFIX}"):
            relative = source.relative_to(template).as_posix()
            relative = _filled(relative.removesuffix(_SUFFIX), words)
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            text = _filled(source.read_text(encoding="utf-8"), words)
            target.write_text(text, encoding="utf-8")
            yield relative


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
