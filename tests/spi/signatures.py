"""The public signatures of the contract; ``python -m tests.spi.signatures`` writes.

Level 1 is frozen: a line of ``level-1.txt`` that goes or changes breaks plug-ins, and
asks for another level. Lines are added for what has a default.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfactory import spi
from streamfactory.spi import hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

FROZEN = Path(__file__).with_name("level-1.txt")


def lines() -> list[str]:
    """A line for each name, method and field that a plug-in may rely on."""
    found: set[str] = set()
    for name in spi.__all__:
        found.update(_lines(name, getattr(spi, name)))
    hookspecs = vars(hooks.HookSpecs)
    found.update(f"hook {name}" for name in hookspecs if name.startswith("stream"))
    return sorted(found)


def _lines(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, type):
        yield f"{name}{_signature(value)}" if inspect.isroutine(value) else name
        return
    bases = [b.__name__ for b in value.__mro__[1:] if b.__name__ in spi.__all__]
    yield f"class {name}({', '.join(bases)})"
    if issubclass(value, enum.Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in value)
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            optional = (
                field.default is not dataclasses.MISSING
                or field.default_factory is not dataclasses.MISSING
            )
            rest = " = ..." if optional else ""
            keyword = " keyword" if field.kw_only else ""
            yield f"{name}.{field.name}: {field.type}{rest}{keyword}"
    elif issubclass(value, tuple):
        for parameter in inspect.signature(value).parameters.values():
            optional = parameter.default is not parameter.empty
            rest = " = ..." if optional else ""
            kind = parameter.annotation
            kind = getattr(kind, "__forward_arg__", kind)
            yield f"{name}.{parameter.name}: {kind}{rest}"
    elif "__init__" in vars(value):
        yield f"{name}.__init__{_signature(vars(value)['__init__'])}"
    for attribute, member in vars(value).items():
        if attribute.startswith("_") or isinstance(value, enum.EnumMeta):
            continue
        yield from _member(f"{name}.{attribute}", member)


def _member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, classmethod | staticmethod):
        yield f"{type(member).__name__} {name}{_signature(member.__func__)}"
    elif isinstance(member, property):
        yield f"property {name}"
    elif inspect.isfunction(member):
        abstract = "abstract " * getattr(member, "__isabstractmethod__", False)
        yield f"{abstract}{name}{_signature(member)}"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    # Defaults may be objects whose text is not the same twice.
    parameters = [
        parameter
        if parameter.default is parameter.empty
        else parameter.replace(default=...)
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters)).replace("Ellipsis", "...")


if __name__ == "__main__":
    FROZEN.write_text("\n".join(lines()) + "\n", encoding="utf-8")
