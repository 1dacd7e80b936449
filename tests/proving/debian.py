"""Servers of Debian packages, unpacked into a cache where they are not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.kafka.jars import Unavailable, cached, locked


def environment_of(program: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Environment variables by which ``program`` is found and runs.

    Args:
        program: Its name.
        packages: Debian packages with it and the libraries that it needs.

    Raises:
        Unavailable: It is not installed, and the packages cannot be had.
    """
    if shutil.which(program) is not None:
        return {}
    root = cached(f"debian-{program}")
    with locked(cached(f"debian-{program}.lock")):
        if not root.is_dir():
            _unpack(packages, root)
    # Programs of versions that are installed side by side are below usr/lib.
    own = sorted(found.parent for found in (root / "usr" / "lib").rglob(program))
    folders = [root / "usr" / "sbin", root / "usr" / "bin", *own]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    if shutil.which(program, path=path) is None:
        msg = f"the packages {', '.join(packages)} have no program {program}"
        raise Unavailable(msg)
    libraries = [str(found) for found in (root / "usr" / "lib").glob("*-linux-gnu*")]
    given = os.environ.get("LD_LIBRARY_PATH")
    libraries += [given] if given else []
    found = {"PATH": path}
    return (
        found | {"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else found
    )


def _unpack(packages: tuple[str, ...], root: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        msg = f"{packages[0]} is not installed, and packages of Debian cannot be had"
        raise Unavailable(msg)
    with tempfile.TemporaryDirectory(dir=root.parent) as work:
        command = ["apt-get", "download", "-qq", *packages]
        done = subprocess.run(command, cwd=work, capture_output=True, check=False)
        if done.returncode and os.geteuid() == 0:
            # A fresh container knows no packages before its first update.
            update = ["apt-get", "update", "-qq"]
            subprocess.run(update, capture_output=True, check=False)
            done = subprocess.run(command, cwd=work, capture_output=True, check=False)
        if done.returncode:
            text = done.stderr.decode(errors="replace").strip()[-300:]
            msg = f"the package {packages[0]} cannot be downloaded: {text}"
            raise Unavailable(msg)
        target = Path(work) / "root"
        for package in sorted(Path(work).glob("*.deb")):
            extract = ["dpkg-deb", "--extract", str(package), str(target)]
            subprocess.run(extract, check=True, capture_output=True)
        target.rename(root)
