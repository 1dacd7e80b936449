"""The compiled core in tests: off, or built from ``native/``, whatever is installed."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from native.compiling import NoCompiler, compile_core
from tests.proving.skipping import skip_or_fail

from streamfactory.compiled import core as loading

if TYPE_CHECKING:
    from streamfactory.compiled.core import Core

WAYS: Final = ["python", "compiled"]


@pytest.fixture(scope="session")
def built_core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    """The core, loaded once in this process."""
    try:
        path = compile_core(tmp_path_factory.mktemp("core"))
    except NoCompiler as reason:
        skip_or_fail(str(reason))
    spec = spec_from_file_location("streamfactory_native._core", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Core", module)


@pytest.fixture
def compiled(built_core: Core, monkeypatch: pytest.MonkeyPatch) -> Core:
    """The core is installed in this process."""
    monkeypatch.setattr(loading, "load", lambda: built_core)
    return built_core


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Both ways in turn: of Python, which tests take otherwise, and of the core."""
    chosen: str = request.param
    if chosen == "compiled":
        request.getfixturevalue("compiled")
    return chosen
