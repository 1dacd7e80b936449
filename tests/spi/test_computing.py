"""Compute functions that are imported at their first use."""

from __future__ import annotations

import subprocess
import sys

import pyarrow.compute
import pytest

from streamfactory.spi.computing import pc


def test_a_function_is_arrows_own_and_is_looked_up_once() -> None:
    assert pc.equal is pyarrow.compute.equal
    assert vars(pc)["equal"] is pyarrow.compute.equal


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        pc.no_such_function  # noqa: B018


def test_importing_it_imports_no_arrow() -> None:
    code = (
        "import sys\n"
        "from streamfactory.spi.computing import pc\n"
        "assert 'pyarrow' not in sys.modules\n"
        "pc.equal\n"
        "assert 'pyarrow.compute' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
