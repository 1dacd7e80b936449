"""Step 3 of a configuration: resolves references, and parses each value."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from streamfactory.spi import Option, Problem, StreamConfig, StreamError
from streamfactory.spi.config import Setting
from streamfactory.spi.masking import MASK, mask_secrets, mask_value, userinfo_secrets
from streamfactory.spi.references import (
    has_reference,
    is_reference,
    malformed,
    resolve,
)
from streamfactory.wiring.core.anchoring import anchored, within
from streamfactory.wiring.core.nearest import LIKELY, nearest
from streamfactory.wiring.options.masking import clip, looks_secret
from streamfactory.wiring.plugins.known import KNOWN_SCHEMES
from streamfactory.wiring.references.lookup import reason_unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import Backend
    from streamfactory.wiring.config.classification import (
        Classified,
        OptionGroup,
        Placed,
        StreamPlugins,
    )
    from streamfactory.wiring.config.definition import Property

_WRITE_REFERENCE: Final = "write ${env:NAME} or ${file:PATH}"
_ELSEWHERE: Final = "it has to be resolved where the stream is used"
_NO_UNSETTING: Final = (
    "an empty value does not remove a property: remove it from the definition (with "
    "--unset on the command line), or set the default"
)
_KEYS: Final = "key.decoder.prop."


@dataclass(frozen=True, slots=True)
class Resolved:
    """The values of a stream. Without errors, each is valid by itself."""

    name: str
    """Name of the definition; may be empty."""
    config: StreamConfig
    plugins: StreamPlugins
    problems: tuple[Problem, ...]


def resolve_values(classified: Classified, use: str | None = None) -> Resolved:
    """Resolve the values of a stream.

    Args:
        classified: The properties by what they set.
        use: ``read``, ``write`` or ``spark``: options without effect there are
            reported. If it is None, a reference that cannot be resolved here is a
            warning, and its setting has the value None.
    """
    settings, more = resolve_options(classified.framework, use)
    problems = [*classified.problems, *more]
    own, more = resolve_options(classified.own, use)
    problems += more
    decoder, more = resolve_options(classified.decoder_options, use)
    problems += more
    keys, more = resolve_options(classified.key_options, use)
    problems += more
    settings |= own | {_KEYS + key: setting for key, setting in keys.items()}
    client: dict[str, dict[str, Setting]] = {}
    for namespace, properties in classified.client.items():
        backend = classified.plugins.backend
        problems += _client_problems(namespace, properties, backend, use)
        client[namespace] = {
            key: _passed(key, prop, always=use == "spark") for key, prop in properties
        }
    for _, prop in classified.meta:
        if looks_secret(prop.key):
            problems += _literal_secret(prop, use)
    name, topic = classified.definition.name, settings.get("topic.name")
    shown = "*"
    if topic is not None:
        plain = topic.value is not None and not has_reference(topic.text)
        shown = topic.value if plain else topic.text
    config = StreamConfig(
        name=name or f"{classified.type}:{shown}",
        type=classified.type,
        settings=settings,
        client=client,
        decoder=classified.decoder,
        decoder_settings=decoder,
        meta={key: prop.text for key, prop in classified.meta},
        description=classified.definition.description,
        reads_headers=any(
            one is not None and one.reads_headers
            for one in (classified.plugins.decoder, classified.plugins.key_decoder)
        ),
    )
    return Resolved(name, config, classified.plugins, tuple(problems))


def _passed(key: str, prop: Property, *, always: bool) -> Setting:
    secret = looks_secret(key)
    text = anchored(prop.text, prop.folder, path=False, always=always)
    return Setting(key, prop.key, text, None, prop.origin, secret, passed=True)


def resolve_options(
    group: OptionGroup, use: str | None
) -> tuple[dict[str, Setting], list[Problem]]:
    """Return the settings of the options of one namespace, by key, and the problems.

    Args:
        group: The options, with the properties that set them.
        use: See `resolve_values`.
    """
    settings, problems = dict[str, Setting](), list[Problem]()
    for option in group.options:
        full_key, properties = group.prefix + option.key, group.given.get(option.key)
        if properties is None:
            results = _absent(option, full_key, use)
        else:
            results = _resolve(option, full_key, properties, use)
        for result in results:
            if isinstance(result, Setting):
                settings[option.key] = result
            else:
                problems.append(result)
    return settings, problems


def _resolve(
    option: Option, full_key: str, properties: Sequence[Property], use: str | None
) -> Iterator[Setting | Problem]:
    """Yield the setting of an option, and problems; without a setting, an error."""
    first = properties[0]
    for other in properties[1:]:
        if not _agree(option, first.text, other.text):
            mine, theirs = (
                MASK if option.secret else clip(p.text) for p in (first, other)
            )
            what = f"is {mine}, but {other.key} is {theirs} [{other.origin}]"
            yield Problem(first.key, what, first.origin, "keep one of them")
            return
    yield from _advice(option, full_key, properties, use)
    text = anchored(
        first.text, first.folder, path=option.type.path, always=use == "spark"
    )
    first = replace(first, text=text)
    text, origin = first.text, first.origin
    if option.required and not text.strip():
        yield Problem(first.key, "is empty, but required", origin, _example(option))
    elif problem := _malformed(first, secret=option.secret):
        yield problem
    elif option.secret:
        yield from _literal_secret(first, use)
        yield Setting(option.key, full_key, text, None, origin, secret=True)
    else:
        yield from _parse(option, full_key, first, use)


def _absent(
    option: Option, full_key: str, use: str | None
) -> Iterator[Setting | Problem]:
    """Yield the setting of an option that is not set: its default, if any."""
    text, secret = option.default, option.secret
    if text is not None:
        value = None if secret else option.parse(text)
        yield Setting(option.key, full_key, text, value, "default", secret)
    elif option.required and (not option.applies or use in (None, *option.applies)):
        yield Problem(full_key, "is required", "", _example(option))


def _parse(
    option: Option, full_key: str, prop: Property, use: str | None
) -> Iterator[Setting | Problem]:
    key, text, origin = prop.key, prop.text, prop.origin
    try:
        resolved = resolve(text)
    except StreamError as error:
        if use is not None:
            yield Problem(key, error.what, origin)
            return
        # It may be resolvable in the process that uses the stream.
        yield Problem(key, error.what, origin, _ELSEWHERE, "warning")
        yield Setting(option.key, full_key, text, None, origin)
        return
    if option.type.path:
        resolved = within(prop.folder, resolved)
    try:
        value = option.parse(resolved)
    except ValueError as error:
        if has_reference(text) and resolved.strip():
            # The reason may quote parts of the value.
            what = f"{mask_value(text)} is resolved to a value that is not valid"
            yield Problem(key, what, origin, f"expected: {option.type.name}")
            return
        shown = text if has_reference(text) else clip(resolved)
        near = nearest(resolved.lower(), option.type.schema.get("enum", ()))
        hint = f"did you mean {near}?" if near else None
        reason = mask_secrets(str(error), userinfo_secrets(resolved))
        hint = hint if resolved.strip() else _NO_UNSETTING
        yield Problem(key, f"{shown} {reason}", origin, hint)
        return
    yield from _credentials(prop, resolved, use)
    yield Setting(option.key, full_key, text, value, origin)


def _agree(option: Option, one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(option.parse(resolve(one)) == option.parse(resolve(other)))
    except (ValueError, StreamError):
        return False


def _example(option: Option) -> str | None:
    return None if option.example is None else f"for example {option.example}"


# --- problems with one value ------------------------------------------------------


def _advice(
    option: Option, full_key: str, properties: Sequence[Property], use: str | None
) -> Iterator[Problem]:
    """Yield warnings about an option that is set."""
    first, former = properties[0], tuple(f".{key}".lower() for key in option.former)
    for prop in properties:
        if f".{prop.key}".lower().endswith(former):
            hint = f"write {full_key}"
            yield Problem(prop.key, "is deprecated", prop.origin, hint, "warning")
    if option.deprecated:
        hint = f"write {option.deprecated}"
        yield Problem(first.key, "is deprecated", first.origin, hint, "warning")
    if option.no_effect:
        what = f"has no effect: {option.no_effect}"
        yield Problem(first.key, what, first.origin, level="warning")
    if use and option.applies and use not in option.applies:
        what = (
            f"has no effect here: it applies to {' and '.join(sorted(option.applies))}"
        )
        yield Problem(first.key, what, first.origin, level="note")


def _client_problems(
    namespace: str,
    properties: Sequence[Placed],
    backend: Backend | None,
    use: str | None,
) -> Iterator[Problem]:
    """Yield problems with properties that are passed to a client of the type."""
    owned = {} if backend is None else backend.owned_client_keys
    hints = {key.lower(): hint for key, hint in owned.items()}
    first: dict[str, Property] = {}
    for key, prop in properties:
        before, origin = first.setdefault(key, prop), prop.origin
        if not key:
            yield Problem(prop.key, "lacks the name of a property", origin)
        elif backend is not None and namespace not in backend.client_namespaces:
            what = f"stream type {backend.name!r} has no {namespace} client"
            yield Problem(prop.key, f"has no effect: {what}", origin)
        elif key.lower() in hints:
            what = "is set by streamfactory itself"
            yield Problem(prop.key, what, origin, hints[key.lower()])
        elif before.text != prop.text:
            what = f"conflicts with {before.key} [{before.origin}]"
            yield Problem(prop.key, what, origin, "keep one of them")
        elif backend and backend.client_keys and key not in backend.client_keys:
            near = nearest(key, backend.client_keys, likeness=LIKELY)
            hint = f"did you mean {near}?" if near else None
            what = "is not a known property of the client"
            yield Problem(prop.key, what, origin, hint, _shown_by_spark(use))
        if problem := _malformed(prop, secret=True):
            yield problem
        elif looks_secret(key):
            yield from _literal_secret(prop, use)
        else:
            with suppress(StreamError):  # the client's process resolves it
                yield from _credentials(prop, resolve(prop.text), use)


def _malformed(prop: Property, *, secret: bool) -> Problem | None:
    """Return the problem with a malformed reference; None if there is none."""
    what, hint = malformed(prop.text), None
    if what is not None and secret:
        # Text that looks like a reference may be a part of the secret: nothing of it is
        # shown but a scheme that is known.
        what = "contains a malformed reference"
        hint = f"{_WRITE_REFERENCE}, and $${{ for a literal ${{"
        scheme = prop.text.removeprefix("${").partition(":")[0]
        if is_reference(prop.text) and scheme in KNOWN_SCHEMES:
            what, hint = f"refers to {scheme}", reason_unusable(scheme)
    return None if what is None else Problem(prop.key, what, prop.origin, hint)


def _literal_secret(prop: Property, use: str | None) -> Iterator[Problem]:
    if prop.text and not has_reference(prop.text):
        what, level = "contains a literal secret", _shown_by_spark(use)
        yield Problem(prop.key, what, prop.origin, _WRITE_REFERENCE, level)


def _credentials(prop: Property, resolved: str, use: str | None) -> Iterator[Problem]:
    literal = any(userinfo_secrets(prop.text)) and not has_reference(prop.text)
    if any(userinfo_secrets(resolved)) and (literal or use == "spark"):
        what, hint = (
            "contains credentials in a URL",
            "set them with the options for credentials",
        )
        yield Problem(prop.key, what, prop.origin, hint, _shown_by_spark(use))


def _shown_by_spark(use: str | None) -> str:
    """The level of a problem with what Spark's plans show: an error there."""
    return "error" if use == "spark" else "warning"
