"""The settings of the pages: their options, rules, users and certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from streamfactory.spi import (
    BOOLEAN,
    LIST,
    PATH,
    ConfigError,
    NotInstalled,
    Option,
)
from streamfactory.spi.addresses import is_loopback, parse_address
from streamfactory.spi.listening import (
    LISTENING_OPTIONS,
    listening_problems,
    read_tls,
)
from streamfactory.spi.users import UserFile
from streamfactory.transfer.auditing import AuditTrail, audit_stream
from streamfactory.ui.access import Access
from streamfactory.ui.openid.attempts import SignIns
from streamfactory.ui.openid.rules import is_safe_address
from streamfactory.ui.people import TABLES
from streamfactory.ui.proxies import Proxy, parse_networks
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.configure import resolve_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import Problem, StreamConfig
    from streamfactory.wiring.config.definition import Property

MIN_TOKEN: Final = 16
"""Characters."""

_OIDC: Final = (
    "oidc.issuer",
    "oidc.client.id",
    "oidc.redirect.url",
    "oidc.client.secret",
)
_CALLBACK: Final = "/sign-in/callback"

OPTIONS: Final = (
    Option(
        "address",
        "Host and port to listen on; port 0 selects a free one.",
        default="127.0.0.1:9816",
        example="127.0.0.1:9816",
    ),
    Option(
        "token",
        f"Allows actions; at least {MIN_TOKEN} characters. Required on other addresses "
        "than loopback and with hosts, where reading requires it, too.",
        secret=True,
        example="${env:UI_TOKEN}",
    ),
    Option(
        "access.file",
        "Users with their tokens, and their rights by patterns of streams and "
        "pipelines, TOML; read again when it changes. Reading requires a log-in then.",
        PATH,
        example="users.toml",
    ),
    Option(
        "audit.stream",
        "Stream of the catalogue in which changes are recorded, made and refused ones: "
        "no change is made that cannot be. Default: the stream with audit.record=true.",
        example="changes",
    ),
    Option(
        "edit",
        "Whether clients may change the files of streams and pipelines: those that "
        "gave the token, or have the right edit.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "proxy.secret",
        "A trusted proxy sends it with each request, and then the name of the user; at "
        f"least {MIN_TOKEN} characters. Requires access.file and proxy.addresses.",
        secret=True,
        example="${env:PROXY_SECRET}",
    ),
    Option(
        "proxy.addresses",
        "Addresses or networks of the trusted proxy.",
        LIST,
        example="10.0.0.7, 10.1.0.0/16",
    ),
    Option(
        "proxy.user.header",
        "Header with the name of the user, from the proxy.",
        default="X-Forwarded-User",
        example="X-Forwarded-User",
    ),
    Option(
        "proxy.groups.header",
        "Header with the groups of the user, separated by commas, from the proxy.",
        default="X-Forwarded-Groups",
        example="X-Forwarded-Groups",
    ),
    Option(
        "proxy.secret.header",
        "Header with proxy.secret.",
        default="X-Proxy-Secret",
        example="X-Proxy-Secret",
    ),
    Option(
        "oidc.issuer",
        "Provider of OpenID Connect at which users sign in: its issuer, a URL. "
        "Requires access.file, oidc.client.id and oidc.redirect.url.",
        example="https://login.example.com/realms/main",
    ),
    Option(
        "oidc.client.id",
        "The pages as the provider knows them.",
        example="streamfactory",
    ),
    Option(
        "oidc.client.secret",
        "Secret of the client; a public client has none.",
        secret=True,
        example="${env:OIDC_SECRET}",
    ),
    Option(
        "oidc.redirect.url",
        "URL of the pages by which browsers call them, with the path "
        "/sign-in/callback; the provider has to know it.",
        example="https://streams.example.com/sign-in/callback",
    ),
    Option(
        "oidc.user.claim",
        "Claim with the name of the user, as access.file has it.",
        default="sub",
        example="preferred_username",
    ),
    Option(
        "oidc.groups.claim",
        "Claim with the groups of the user.",
        default="groups",
        example="roles",
    ),
    Option(
        "oidc.scopes",
        "Scopes that are asked for.",
        LIST,
        default="openid, profile",
        example="openid, profile, groups",
    ),
    Option(
        "oidc.api.audience",
        "Audience of the provider's access tokens with which programs may call "
        "/api/v1; without it only tokens of access.file are accepted. Other than "
        "oidc.client.id, which ID tokens name.",
        example="streamfactory-api",
    ),
    Option(
        "hosts",
        "Names by which browsers call this server, for instance that of a proxy.",
        LIST,
        example="streams.example.com",
    ),
    *LISTENING_OPTIONS,
)


def page_settings(properties: Sequence[Property]) -> StreamConfig:
    """Validated settings of the pages.

    Raises:
        ConfigError: config; every problem at once.
    """
    return resolve_settings("the pages", "ui", OPTIONS, properties, _problems)


def must_log_in(config: StreamConfig) -> bool:
    """Whether reading requires a token, too: others than this machine connect."""
    return not is_loopback(parse_address(config["address"])[0]) or "hosts" in config


def _problems(config: StreamConfig) -> Iterator[Problem]:
    found = list(listening_problems(config))
    yield from found
    if "token" not in config and "access.file" not in config:
        remedy = "set token, by reference: ${file:PATH}"
        if config["edit"]:
            what = "lets clients change files, and requires a token"
            yield config.problem("edit", what, remedy)
        if not found and must_log_in(config):
            key = "hosts" if "hosts" in config else "address"
            what = "opens the pages to others than this machine, and requires a token"
            yield config.problem(key, what, remedy)
    yield from _proxy_problems(config)
    yield from _oidc_problems(config)


def _proxy_problems(config: StreamConfig) -> Iterator[Problem]:
    keys = ("proxy.secret", "proxy.addresses", "access.file")
    for key in keys[:2]:
        for other in keys:
            if key in config and other not in config:
                yield config.problem(key, f"requires {other}", f"set {other}")
    try:
        parse_networks(tuple(config.get("proxy.addresses", ())))
    except ValueError as error:
        remedy = "write for instance 10.0.0.7 or 10.1.0.0/16"
        yield config.problem("proxy.addresses", str(error), remedy)
    headers = [config[f"proxy.{one}.header"] for one in ("user", "groups", "secret")]
    if len({one.lower() for one in headers}) < len(headers):
        what = "two of the headers of the proxy have one name"
        yield config.problem("proxy.user.header", what, "give each its own")


def _oidc_problems(config: StreamConfig) -> Iterator[Problem]:
    given = [key for key in (*_OIDC, "oidc.api.audience") if key in config]
    for key in given:
        for other in ("access.file", *_OIDC[:3]):
            if other not in config:
                yield config.problem(key, f"requires {other}", f"set {other}")
    if given and "proxy.secret" in config:
        what = "has no effect beside a proxy that says who users are"
        yield config.problem(given[0], what, "use one of them")
    for key in ("oidc.issuer", "oidc.redirect.url"):
        if key in config and not is_safe_address(config[key]):
            what = "is no URL of HTTPS; HTTP is for addresses of this machine only"
            yield config.problem(key, what, "give the whole URL")
    audience = config.get("oidc.api.audience")
    if audience is not None and audience == config.get("oidc.client.id"):
        what = "is oidc.client.id: ID tokens would be accepted as access tokens"
        yield config.problem("oidc.api.audience", what, "name the API at the provider")
    redirect = config.get("oidc.redirect.url", _CALLBACK)
    if not redirect.endswith(_CALLBACK) or "?" in redirect:
        what = f"does not end in {_CALLBACK}"
        yield config.problem("oidc.redirect.url", what, "add the path")
    if "openid" not in config["oidc.scopes"]:
        what = "lacks the scope openid, with which the provider names the user"
        yield config.problem("oidc.scopes", what, "add openid")


def _read_sign_ins(config: StreamConfig) -> SignIns | None:
    """Sign-ins by OpenID Connect; None where they are not configured.

    Raises:
        NotInstalled: plugin; a package is missing.
    """
    if "oidc.issuer" not in config:
        return None
    try:
        from streamfactory.ui.openid.provider import OpenIdProvider
        from streamfactory.ui.openid.published import Client
    except ImportError as error:
        msg = f"sign-in by OpenID Connect needs a package: {error}"
        remedy = "run: pip install 'streamfactory[oidc]'"
        raise NotInstalled(msg, remedy=remedy) from error
    secret = config.get("oidc.client.secret")
    client = Client(
        config["oidc.issuer"],
        config["oidc.client.id"],
        None if secret is None else str(secret).strip(),
        config["oidc.redirect.url"],
        config["oidc.user.claim"],
        config["oidc.groups.claim"],
        tuple(config["oidc.scopes"]),
        config.get("oidc.api.audience"),
    )
    place = urlsplit(client.redirect)
    host = place.netloc.lower().removesuffix(":443") if place.scheme == "https" else ""
    return SignIns(OpenIdProvider(client), host)


def read_access(config: StreamConfig) -> Access:
    """Who may use the pages: the token, the file of users, and the proxy.

    Raises:
        ConfigError: config; a secret cannot be resolved, is too short, or is not one
            line, or the file of users cannot be used.
    """
    secret = _read_secret(config, "proxy.secret")
    proxy = file = None
    if secret is not None:
        proxy = Proxy(
            secret,
            parse_networks(tuple(config["proxy.addresses"])),
            config["proxy.user.header"],
            config["proxy.groups.header"],
            config["proxy.secret.header"],
        )
    sign_ins = _read_sign_ins(config)
    if "access.file" in config:
        others = proxy is not None or sign_ins is not None
        file = UserFile(config["access.file"], TABLES, others=others)
    return Access(
        config["address"],
        _read_secret(config, "token"),
        config.get("hosts", ()),
        must_log_in=must_log_in(config),
        file=file,
        proxy=proxy,
        sign_ins=sign_ins,
    )


def open_trail(config: StreamConfig) -> AuditTrail | None:
    """The record of changes; None where there is none.

    Raises:
        ConfigError: config; its stream is not in the catalogue, or cannot be written.
    """
    name = config.get("audit.stream")
    if name is None:
        found = audit_stream(Catalogue())
        if found is None:
            return None
        name = found.name
    return AuditTrail(lambda: Catalogue().get(name))


def _read_secret(config: StreamConfig, key: str) -> str | None:
    """Resolve a secret; None where there is none."""
    if key not in config:
        return None
    secret = str(config[key]).strip()
    remedy = "write one: python -c 'import secrets; print(secrets.token_urlsafe())'"
    if len(secret) < MIN_TOKEN:
        msg = f"the {key} of the pages has fewer than {MIN_TOKEN} characters"
        raise ConfigError(msg, remedy=remedy)
    if not secret.isprintable():
        msg = f"the {key} of the pages has line breaks or control characters"
        raise ConfigError(msg, remedy=remedy)
    return secret


def tls_context(config: StreamConfig) -> ssl.SSLContext | None:
    """TLS of the server; None where it is not configured.

    Raises:
        ConfigError: config; a file cannot be read, is no PEM, or does not fit.
    """
    if "tls.certificate" not in config:
        return None
    pem = read_tls(config, "tls.client.ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config["tls.certificate"], config["tls.key"], password="")
    if "tls.client.ca" in pem:
        context.load_verify_locations(cadata=pem["tls.client.ca"].decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
