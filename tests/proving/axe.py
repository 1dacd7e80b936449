"""axe-core, which finds what makes a page hard to use without eyes or a mouse."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from tests.proving.chromium import Chromium

VERSION: Final = "4.14.1"
_SECONDS: Final = 300


@cache
def axe_script() -> str:
    """The script, as npm has it."""
    npm = shutil.which("npm")
    if npm is None:
        skip_or_fail("npm is not installed (on Debian: apt install npm)")
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{VERSION}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        files = list(Path(folder).glob("*.tgz"))
        if not files:
            skip_or_fail(f"npm has no axe-core {VERSION}: {done.stderr[-300:]}")
        with tarfile.open(files[0]) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            return member.read().decode()


def violations(window: Chromium) -> list[dict[str, Any]]:
    """What axe-core finds on the page that a window shows."""
    window.evaluate(axe_script())
    found: list[dict[str, Any]] = window.evaluate(
        """axe.run(document).then(found => found.violations.map(one => ({
            rule: one.id,
            nodes: one.nodes.map(node => node.html.slice(0, 200)),
        })))"""
    )
    return found
