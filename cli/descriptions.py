"""Documents and text of ``describe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.cli.results import table
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.config.describing import abilities, option_rows, promises
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.options.shared import stream_options
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.spi import Backend
    from streamfactory.wiring.config.describing import OptionRow
    from streamfactory.wiring.plugins.manager import PluginManager

_ROWS: Final = {
    "typed": "typed rows",
    "envelope": "undecoded messages: a decoder is required",
    "either": "typed rows, or undecoded messages, depending on the topic",
}

_SPOOLED: Final = {
    False: "at-most-once until received, exactly-once from there (spool.path)",
    True: "exactly-once if messages are acknowledged (spool.path)",
}
"""The guarantee of a source that is not replayable, by whether it redelivers."""
_RENUMBERED: Final = "at-least-once if messages are acknowledged (spool.path)"

Document = dict[str, Any]


def backend_document(
    manager: PluginManager, backend: Backend, *, everything: bool
) -> Document:
    """All that ``describe TYPE`` shows."""
    prefix = f"stream.{backend.name}."
    own = {option.key for option in backend.options}
    options = sorted(
        stream_options(backend).values(), key=lambda option: option.key not in own
    )
    source, sink = promises(backend)
    return {
        "name": backend.name,
        "doc": backend.doc,
        **_owner(manager, BACKENDS, backend.name),
        "rows": backend.yields.value,
        "abilities": plain(abilities(backend)),
        "source": None if source is None else plain(source) | _numbering(backend),
        "sink": None if sink is None else plain(sink),
        "options": option_rows(options, prefix),
        "words": option_rows(FRAMEWORK_OPTIONS.values()) if everything else [],
        "namespaces": [
            f"{prefix}{name}.prop." for name in sorted(backend.client_namespaces)
        ],
    }


def decoder_document(manager: PluginManager, name: str) -> Document:
    """All that ``describe --decoder NAME`` shows."""
    decoder = manager.decoder(name.lower())
    made = decoder.decoder
    return {
        "name": decoder.name,
        "doc": decoder.doc,
        **_owner(manager, DECODERS, decoder.name),
        "decodes": made is not None,
        "message_by_message": made is not None and made.MESSAGE_BY_MESSAGE,
        "encodes": decoder.encoder is not None,
        "options": option_rows(decoder.options, "decoder.prop."),
    }


def _owner(manager: PluginManager, group: str, name: str) -> Document:
    """Distribution and version of a plug-in."""
    infos = [
        info for info in manager.list(group) if info.name == name and info.error is None
    ]
    return {"distribution": infos[0].distribution, "version": infos[0].version}


def _numbering(backend: Backend) -> Document:
    made = backend.consumer_factory
    return {"renumbers": made is not None and made.RENUMBERS}


def backend_lines(document: Document) -> Iterator[str]:
    """The description of a stream type as text."""
    name = document["name"]
    facts = [("distribution", _distribution(document))]
    facts += [("rows", _ROWS[document["rows"]])]
    facts += list(_abilities(document))
    yield f"{name}: {document['doc']}"
    yield ""
    yield from table(facts)
    yield ""
    yield f"options, under stream.{name}.:"
    yield from _options(document["options"])
    for namespace in document["namespaces"]:
        yield f"  {namespace}*"
        yield "      Passed to the client library unchanged."
    if document["words"]:
        yield ""
        yield "options of the framework, the same for every type:"
        yield from _options(document["words"])


def _abilities(document: Document) -> Iterator[tuple[str, str]]:
    shown = dict(document["abilities"])
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
    for head, role in (("as a source", "source"), ("as a sink", "sink")):
        found = document[role]
        if found is not None:
            yield head, "; ".join([found["guarantee"], *found["reasons"]])
            yield "", f"claims {_claims(found['claims'])}"
    source = document["source"]
    if source is not None and not source["claims"]["replayable"]:
        redelivers = bool(source["claims"]["redelivers"])
        renumbered = redelivers and source["renumbers"]
        yield "with a spool", _RENUMBERED if renumbered else _SPOOLED[redelivers]


def decoder_lines(document: Document) -> Iterator[str]:
    """The description of a decoder as text."""
    yield f"{document['name']}: {document['doc']}"
    yield ""
    decodes = "no: messages are not changed"
    if document["decodes"]:
        decodes = "yes, message by message" if document["message_by_message"] else "yes"
    yield from table(
        [
            ("distribution", _distribution(document)),
            ("decodes", decodes),
            ("encodes", "yes" if document["encodes"] else "no"),
        ]
    )
    yield ""
    if document["options"]:
        yield "options, under stream.<type>.:"
        yield from _options(document["options"])
    else:
        yield "no options"


def _distribution(document: Document) -> str:
    return f"{document['distribution']} {document['version']}".strip()


def _claims(claims: Document) -> str:
    made = [name for name, value in claims.items() if value is True]
    return ", ".join([*made, f"epoch visibility {claims['epoch_visibility']}"])


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
