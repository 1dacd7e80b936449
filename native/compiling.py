"""Compiles the core with the machine's Rust, and Kafka's library with its C compiler.

``python native/compiling.py FOLDER`` puts both into a folder, which is made.
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
CORE: Final = "_core.abi3.so"
FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
WARNINGS: Final = ("-Wall", "-Wextra", "-Wconversion")
_OLDEST_GLIBC: Final = (2, 17)


class NoCompiler(Exception):
    """This machine has no C compiler, or no Rust."""


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


def cargo() -> str:
    """Rust's build command: ``CARGO``, else on the path, else where rustup puts it.

    Raises:
        NoCompiler: There is none.
    """
    usual = str(Path.home() / ".cargo" / "bin" / "cargo")
    names = [os.environ.get("CARGO", ""), "cargo", usual]
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    if found is None:
        msg = "streamfactory-native needs Rust 1.88: install it by rustup, or set CARGO"
        raise NoCompiler(msg)
    return found


def compile_core(folder: Path) -> Path:
    """Compile the core into a folder. What was built before is used again.

    Args:
        folder: It exists.

    Raises:
        NoCompiler: There is no Rust.
        subprocess.CalledProcessError: It failed; its messages are on standard error.
    """
    command = cargo()
    # The other programs of its toolchain are beside it, and perhaps not on the path.
    path = os.pathsep.join([str(Path(command).parent), os.environ["PATH"]])
    made = PACKAGE.with_name("target")
    options = ["--release", "--locked", "--quiet", "--target-dir", str(made)]
    subprocess.run(  # noqa: S603 - the machine's own compiler
        [command, "build", *options],
        check=True,
        cwd=PACKAGE.parent,
        env={**os.environ, "PATH": path},
    )
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    built = made / "release" / f"libstreamfactory_core{suffix}"
    return Path(shutil.copy(built, folder / CORE))


def wheel_tag(*libraries: Path) -> str:
    """The tag of a wheel with these libraries: any Python from 3.11, one platform."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if platform.libc_ver()[0] == "glibc":
        code = b"".join(library.read_bytes() for library in libraries)
        symbols = re.findall(rb"GLIBC_2\.(\d+)", code)
        if max((2, int(minor)) for minor in symbols) <= _OLDEST_GLIBC:
            name = f"manylinux_2_17_{platform.machine()}"
    return f"cp311-abi3-{name}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    try:
        compile_core(target)
        compile_library(target)
    except NoCompiler as reason:
        sys.exit(str(reason))
