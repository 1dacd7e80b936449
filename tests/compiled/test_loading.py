"""The compiled core is used where it fits; else there is one warning, and Python."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from streamfactory.cli.doctor import environment
from streamfactory.cli.doctor.findings import OK, WARNING
from streamfactory.compiled import core as loading

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.compiled.core import Core

_LOAD = loading.load.__wrapped__
"""Before a test replaces it, and without what it remembers."""


def installed(monkeypatch: pytest.MonkeyPatch, core: object) -> None:
    """The package is there, with a core or without one (None)."""
    package = ModuleType("streamfactory_native")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "streamfactory_native", package)
    monkeypatch.setitem(sys.modules, "streamfactory_native._core", core)


def test_without_the_package_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "streamfactory_native", None)
    assert _LOAD() == "the package streamfactory-native is not installed"
    assert not caplog.records


def test_a_core_that_fits_is_used(
    built_core: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(monkeypatch, built_core)
    assert _LOAD() is built_core
    assert not caplog.records


def older() -> ModuleType:
    made = ModuleType("streamfactory_native._core")
    made.LEVEL = 0  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("made", [older, lambda: None])
def test_a_package_that_does_not_fit_is_warned_of_once(
    made: Callable[[], ModuleType | None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from functools import cache

    installed(monkeypatch, made())
    monkeypatch.setattr(loading, "load", cache(_LOAD))
    assert loading.core() is None
    assert loading.core() is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "Install the version of streamfactory-native" in record.getMessage()


@pytest.mark.parametrize(
    ("version", "found", "state", "what"),
    [
        (None, "not installed", OK, "not installed: Python routes rows"),
        ("0.2.0", "level 0", WARNING, "the compiled core is not used: level 0"),
        ("0.2.0", object(), OK, "rows are routed and JSON is parsed natively"),
    ],
)
def test_doctor_shows_whether_it_is_used(
    version: str | None,
    found: object,
    state: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "_version", lambda _: version)
    monkeypatch.setattr(environment, "load", lambda: found)
    finding = environment._native()
    assert finding.level == state
    assert what in finding.what
