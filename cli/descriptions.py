"""What ``describe`` answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.cli.results import Result, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.wiring.config.describing import Abilities, OptionRow

_ROWS: Final = {
    "typed": "typed rows",
    "envelope": "undecoded messages: a decoder is required",
    "either": "typed rows, or undecoded messages, as the topic has them",
}

_SPOOLED: Final = {
    False: "at-most-once until received, exactly-once from there (spool.path)",
    True: "exactly-once where messages are acknowledged (spool.path)",
}
"""What a source gives that cannot be read again by itself."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a type promises as a source, or as a sink."""

    claims: dict[str, Any]
    guarantee: str
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class BackendDescription(Result):
    """The answer of ``describe TYPE``."""

    name: str
    doc: str
    distribution: str
    version: str
    rows: str
    """``typed``, ``envelope`` or ``either``."""
    abilities: Abilities
    source: Role | None
    sink: Role | None
    options: list[OptionRow]
    """Under ``stream.<type>.``."""
    words: list[OptionRow]
    """Of the framework, the same for every type."""
    namespaces: list[str]
    """Prefixes of what goes to a client library as it is."""

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        facts = [("distribution", f"{self.distribution} {self.version}".strip())]
        facts += [("rows", _ROWS[self.rows])]
        facts += list(self._abilities())
        yield f"{self.name}: {self.doc}"
        yield ""
        yield from table(facts)
        yield ""
        yield f"options, under stream.{self.name}.:"
        yield from _options(self.options)
        for namespace in self.namespaces:
            yield f"  {namespace}*"
            yield "      Goes to the client library as it is."
        if self.words:
            yield ""
            yield "words of the framework, the same for every type:"
            yield from _options(self.words)

    def _abilities(self) -> Iterator[tuple[str, str]]:
        shown: dict[str, Any] = asdict(self.abilities)
        carries = shown.pop("carries")
        words: dict[bool | None, list[str]] = {True: [], False: [], None: []}
        for name, answer in shown.items():
            words[answer].append(name.replace("_", " "))
        heads: tuple[tuple[bool | None, str], ...] = (
            (True, "can"),
            (False, "cannot"),
            (None, "can perhaps"),
        )
        for answer, head in heads:
            if words[answer]:
                yield head, ", ".join(words[answer])
        if carries:
            yield "stores", ", ".join(carries)
        for head, role in (("as a source", self.source), ("as a sink", self.sink)):
            if role is not None:
                yield head, "; ".join([role.guarantee, *role.reasons])
                yield "", f"claims {_claims(role)}"
        if self.source is not None and not self.source.claims["replayable"]:
            yield "with a spool", _SPOOLED[bool(self.source.claims["redelivers"])]


@dataclass(frozen=True, slots=True)
class DecoderDescription(Result):
    """The answer of ``describe --decoder NAME``."""

    name: str
    doc: str
    distribution: str
    version: str
    decodes: bool
    message_by_message: bool
    """Whether Python runs for each message, which is slow, as no library does it."""
    encodes: bool
    options: list[OptionRow]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"{self.name}: {self.doc}"
        yield ""
        yield from table(
            [
                ("distribution", f"{self.distribution} {self.version}".strip()),
                ("decodes", self._decodes),
                ("encodes", "yes" if self.encodes else "no"),
            ]
        )
        yield ""
        if self.options:
            yield "options, under stream.<type>.:"
            yield from _options(self.options)
        else:
            yield "no options"

    @property
    def _decodes(self) -> str:
        if not self.decodes:
            return "no: messages stay as they are"
        return "yes, message by message" if self.message_by_message else "yes"


@dataclass(frozen=True, slots=True)
class JsonSchema(Result):
    """The answer of ``describe TYPE --schema``; printed the same either way."""

    schema: dict[str, Any]

    def lines(self) -> Iterable[str]:
        """The answer as text."""
        return [json.dumps(self.schema, indent=2, ensure_ascii=False)]

    def plain(self) -> Any:
        """The schema itself."""
        return self.schema


def _claims(role: Role) -> str:
    made = [name for name, value in role.claims.items() if value is True]
    return ", ".join([*made, f"epoch visibility {role.claims['epoch_visibility']}"])


def _options(rows: Iterable[OptionRow]) -> Iterator[str]:
    for row in rows:
        facts = [row.type]
        if row.required:
            facts.append("required")
        if row.default is not None:
            facts.append(f"default {row.default}")
        if row.secret:
            facts.append("secret")
        if row.aliases:
            facts.append(f"also {', '.join(row.aliases)}")
        if row.former:
            facts.append(f"formerly {', '.join(row.former)}")
        yield f"  {row.key} ({'; '.join(facts)})"
        yield f"      {row.doc}"
