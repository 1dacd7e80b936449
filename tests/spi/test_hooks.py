"""Values of descriptors that are imported when they are read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import Backend, BrokenPlugin, Role
from streamfactory.spi.hooks import (
    import_all,
    import_later,
    is_imported,
    require_installed,
    roles_of,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a class, which can be imported and is not."""
    name = "module_of_a_later_factory"
    tmp_path.joinpath(f"{name}.py").write_text("class Factory: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def backend(module: str) -> Backend:
    return Backend(
        name="tiny",
        doc="Tiny.",
        spi_level=1,
        consumer_factory=import_later(module, "Factory"),
    )


def test_a_class_is_imported_when_its_field_is_first_read(module: str) -> None:
    made = backend(module)
    assert roles_of(made) == {Role.READ}
    assert not is_imported(made, "consumer_factory")
    assert module not in sys.modules
    found = made.consumer_factory
    assert found is sys.modules[module].Factory
    assert is_imported(made, "consumer_factory")
    assert made.consumer_factory is found


def test_a_module_that_cannot_be_imported_is_a_broken_plugin() -> None:
    made = backend("no_such_module_of_a_factory")
    with pytest.raises(BrokenPlugin, match="no_such_module_of_a_factory cannot be"):
        import_all(made)


def test_a_missing_client_is_named_without_importing_one() -> None:
    require_installed("json", "email")
    with pytest.raises(ModuleNotFoundError) as caught:
        require_installed("json", "no_such_client")
    assert caught.value.name == "no_such_client"
