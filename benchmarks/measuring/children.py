"""This program as other processes, which answer in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PATIENCE = 1800
"""Seconds for an answer."""


def child(*arguments: str) -> subprocess.Popen[str]:
    """The same command again, with ``--child`` and what it is to do."""
    command = [sys.executable, sys.argv[0], "--child", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


def answer(process: subprocess.Popen[str]) -> Any:
    """What a child found."""
    output, _ = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise SystemExit(process.returncode)
    return json.loads(output)
