"""What plug-ins rely on, as lines of text; ``python -m tests.spi.signatures`` appends.

Level 1 is frozen: a line of ``level-1.txt`` that goes or changes breaks plug-ins, and
asks for another level. Lines are appended for what has a default, each release's after
those of the releases before.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import hashlib
import inspect
import tomllib
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, cast, get_args

import pyarrow as pa

from streamfactory import conformance, spi
from streamfactory.conformance import harness, suite
from streamfactory.conformance.runner import all_cases, decoder_cases
from streamfactory.spi import OptionType, hooks
from streamfactory.wiring.writing.summary import Summing

if TYPE_CHECKING:
    from collections.abc import Iterator

FROZEN: Final = Path(__file__).with_name("level-1.txt")
PROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"
DIGESTS: Final = FROZEN.with_suffix(".sha256")
"""For each time that lines were appended: their number then, and the digest of all."""
_OPERATORS: Final = frozenset(
    {"__add__", "__contains__", "__getitem__", "__iter__", "__len__"}
    | {"__enter__", "__exit__"}
)
"""Special methods that programs use by Python's syntax."""
_HIDDEN: Final = frozenset({object, BaseException, Generic, Protocol, tuple})
"""Bases that say nothing of a class."""
_PROSE: Final = "default_remedy"
"""An attribute of errors whose text is for people, and may be improved."""


def lines() -> list[str]:
    """A line for each name, method, field and value that a plug-in may rely on."""
    found: set[str] = set()
    for name in spi.__all__:
        found.update(_lines(name, getattr(spi, name)))
    for name, hook in vars(hooks.HookSpecs).items():
        if name.startswith("stream"):
            found.add(f"hook {name}{_signature(hook)}")
    for name, module in spi._MOVED.items():
        # The former import names the module, so that its place is relied on, too.
        found.add(f"moved {name}: {module}")
        place = import_module(f"{spi.__name__}.{module}")
        found.update(_lines(f"{module}.{name}", getattr(place, name)))
    found.update(_entry_points())
    for column in spi.envelope_schema():
        null = "" if column.nullable else " not null"
        found.add(f"envelope {column.name}: {column.type}{null}")
    found.add(f"Summary.sums of sample rows = {_sample_sums()}")
    found.update(_kit())
    return sorted(found)


def _entry_points() -> Iterator[str]:
    """The groups of plug-ins, and the names that this distribution has in them."""
    text = PROJECT.read_text(encoding="utf-8")
    named = tomllib.loads(text)["project"]["entry-points"]
    groups = (
        hooks.BACKENDS,
        hooks.DECODERS,
        harness.BACKEND.group,
        harness.DECODER.group,
    )
    for group in groups:
        yield f"entry points {group}"
        yield from (f"entry point {group}: {name}" for name in named[group])


def _sample_sums() -> dict[str, int]:
    """Sums of rows are stored with epochs: those of equal rows are equal for ever."""
    columns = {"id": pa.array([1, 2, None]), "name": pa.array(["a", "", None])}
    summing = Summing(content=True)
    summing.add(pa.RecordBatch.from_pydict(columns), {})
    return dict(summing.total().sums)


def _kit() -> Iterator[str]:
    """What harnesses, and tests of authors, use."""
    for name in conformance.__all__:
        yield from _lines(f"conformance.{name}", getattr(conformance, name))
    for name, value in vars(harness).items():
        if isinstance(value, type) and value.__module__ == harness.__name__:
            yield from _lines(f"conformance.harness.{name}", value)
    name = "conformance.suite.ConformanceSuite"
    yield from _lines(name, suite.ConformanceSuite)
    # Waivers name cases.
    yield from (f"case {case.name}" for case in all_cases())
    yield from (f"case {case.name}" for case in decoder_cases())


def _lines(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, type):
        yield _constant(name, value)
        return
    bases = [b.__name__ for b in value.__mro__[1:] if b not in _HIDDEN]
    yield f"class {name}({', '.join(bases)})"
    if issubclass(value, enum.Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in value)
        yield from _members(name, value, but=(*value.__members__, *_OPERATORS))
    elif dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        yield from (_field(name, field) for field in fields)
        yield from _members(name, value, but=[field.name for field in fields])
    elif issubclass(value, tuple):
        parameters = inspect.signature(value).parameters.values()
        yield from (_part(name, parameter) for parameter in parameters)
        yield from _members(name, value, but=[part.name for part in parameters])
    else:
        yield from _members(name, value)
        if "__init__" in vars(value) and not getattr(value, "_is_protocol", False):
            yield f"{name}.__init__{_signature(value.__init__)}"
            yield from (f"{name}.{attribute}" for attribute in _assigned(value))
        if not issubclass(value, BaseException):
            yield from _inherited(name, value)


def _constant(name: str, value: Any) -> str:
    if inspect.isroutine(value):
        return f"{name}{_signature(value)}"
    if isinstance(value, UnionType):
        return f"{name} = {' | '.join(kind.__name__ for kind in get_args(value))}"
    if isinstance(value, int | str):
        return f"{name} = {value!r}"
    return f"{name}: {type(value).__name__}"


def _field(name: str, field: dataclasses.Field[Any]) -> str:
    rest = ""
    if field.default is not dataclasses.MISSING:
        rest = f" = {_text(field.default)}"
    elif field.default_factory is not dataclasses.MISSING:
        rest = f" = {_text(field.default_factory())}"
    keyword = " keyword" if field.kw_only else ""
    return f"{name}.{field.name}: {field.type}{rest}{keyword}"


def _part(name: str, parameter: inspect.Parameter) -> str:
    optional = parameter.default is not parameter.empty
    rest = f" = {_text(parameter.default)}" if optional else ""
    kind = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    return f"{name}.{parameter.name}: {kind}{rest}"


def _members(name: str, value: type, but: Any = ()) -> Iterator[str]:
    """Methods, properties and class variables of a class itself."""
    declared = inspect.get_annotations(value)
    # A harness that lacks a method of a protocol lacks the protocol.
    required = getattr(value, "_is_protocol", False)
    for attribute in {**vars(value), **declared}:
        public = not attribute.startswith("_") or attribute in _OPERATORS
        if not public or attribute in but:
            continue
        place, member = f"{name}.{attribute}", vars(value).get(attribute)
        if isinstance(member, classmethod | staticmethod):
            kind = type(member).__name__
            yield f"{kind} {place}{_signature(member.__func__)}"
        elif isinstance(member, property):
            result = inspect.get_annotations(cast("Any", member.fget)).get("return")
            yield f"property {place}: {result}"
        elif inspect.isfunction(member):
            required_here = required or getattr(member, "__isabstractmethod__", False)
            abstract = "abstract " * required_here
            yield f"{abstract}{place}{_signature(member)}"
        elif attribute in vars(value):
            kind = f": {declared[attribute]}" if attribute in declared else ""
            text = "" if attribute == _PROSE else f" = {_text(member)}"
            yield f"{place}{kind}{text}"
        else:
            yield f"{place}: {declared[attribute]}"


def _assigned(value: Any) -> Iterator[str]:
    """Public attributes that ``__init__`` assigns."""
    source = inspect.cleandoc("\n" + inspect.getsource(value.__init__))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(ast.Name("self"), name, ast.Store()) if name[0] != "_":
                yield name


def _inherited(name: str, value: type) -> Iterator[str]:
    """Methods that come from Python's own classes, as `Mapping.keys`."""
    for base in value.__mro__[1:]:
        if base.__module__ == "collections.abc":
            public = (a for a in vars(base) if not a.startswith("_"))
            yield from (f"{name}.{a} of {base.__name__}" for a in public)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter
        if parameter.default is parameter.empty
        else parameter.replace(default=_Verbatim(_text(parameter.default)))
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters))


class _Verbatim:
    """A default whose text is known."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _text(value: Any) -> str:
    """The text of a value, the same in each process."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, OptionType):
        return f"OptionType({value.name!r})"
    if isinstance(value, frozenset | set):
        return f"{type(value).__name__}({sorted(value)})"
    if isinstance(value, tuple):
        return f"({', '.join(_text(member) for member in value)})"
    if dataclasses.is_dataclass(value):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        inner = ", ".join(f"{name}={_text(member)}" for name, member in pairs)
        return f"{type(value).__name__}({inner})"
    if inspect.isroutine(value):
        return value.__qualname__
    return repr(value)


def digest(frozen: list[str]) -> str:
    """A digest of lines, as `DIGESTS` has it."""
    return hashlib.sha256("\n".join(frozen).encode()).hexdigest()


def _append() -> None:
    """Append what is new; nothing that is there goes."""
    frozen = FROZEN.read_text(encoding="utf-8").splitlines()
    added = [line for line in lines() if line not in frozen]
    if added:
        every = [*frozen, *added]
        FROZEN.write_text("\n".join(every) + "\n", encoding="utf-8")
        with DIGESTS.open("a", encoding="utf-8") as file:
            file.write(f"{len(every)} {digest(every)}\n")


if __name__ == "__main__":
    _append()
