"""Compiles the library with the C compiler of the machine.

``python native/compiling.py FOLDER`` puts it into a folder.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE: Final = Path(__file__).with_name("streamfactory_native")
SOURCES: Final = ("kafka_client.c", "kafka_columns.c", "kafka_parts.c", "kafka_rows.c")
NAME: Final = "kafka.so"
FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
WARNINGS: Final = ("-Wall", "-Wextra", "-Wconversion")
_OLDEST_GLIBC: Final = (2, 17)


class NoCompiler(Exception):
    """This machine has no C compiler."""


def compiler() -> str:
    """The C compiler: ``CC``, else cc, gcc or clang.

    Raises:
        NoCompiler: There is none.
    """
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    if found is None:
        msg = "streamfactory-native needs a C compiler: install gcc or clang, or set CC"
        raise NoCompiler(msg)
    return found


def compile_library(folder: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the library into a folder.

    Args:
        folder: It exists.
        flags: Added to the compiler's.

    Raises:
        NoCompiler: There is no compiler.
        subprocess.CalledProcessError: It failed; its messages are on standard error.
    """
    target = folder / NAME
    sources = [str(PACKAGE / name) for name in SOURCES]
    command = [compiler(), *FLAGS, *WARNINGS, *flags, "-o", str(target), *sources]
    subprocess.run(command, check=True)  # noqa: S603 - the machine's own compiler
    return target


def wheel_tag(library: Path) -> str:
    """The tag of a wheel with this library: any Python 3, one platform."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if platform.libc_ver()[0] == "glibc":
        symbols = re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
        if max((2, int(minor)) for minor in symbols) <= _OLDEST_GLIBC:
            name = f"manylinux_2_17_{platform.machine()}"
    return f"py3-none-{name}"


if __name__ == "__main__":
    try:
        compile_library(Path(sys.argv[1]))
    except NoCompiler as reason:
        sys.exit(str(reason))
