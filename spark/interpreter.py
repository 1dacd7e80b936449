"""The Python interpreter for Spark's processes on this machine.

Spark puts an archive of PySpark before the installed package, and Python does not cache
bytecode of archives: each of the ten processes of a query would compile PySpark again.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_SCRIPT: Final = """\
#!/bin/sh
set -f
kept=
IFS=:
for place in $PYTHONPATH; do
  case $place in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=$kept${{kept:+:}}$place ;;
  esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


@functools.cache
def python_of_workers() -> str:
    """An executable that runs this interpreter without Spark's archives.

    It is in a folder that is removed when this process ends. If PySpark is not
    installed or the folder does not allow execution, this interpreter itself.
    """
    if os.name != "posix" or not all(map(_is_installed, ("pyspark", "py4j"))):
        return sys.executable
    folder = tempfile.mkdtemp(prefix="streamfactory-python-")
    atexit.register(_remove, folder, os.getpid())
    script = Path(folder, "python")
    script.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)), "utf-8")
    script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _remove(folder: str, process: int) -> None:
    """Remove the folder, but not in a forked child."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _is_installed(package: str) -> bool:
    """Whether the package is installed as files, not in an archive."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None and Path(spec.origin).is_file()
