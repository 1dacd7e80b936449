"""`StreamConfig`: a secret is in no text of it, and is resolved when it is used."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streamfactory.spi import ConfigError, StreamConfig
from streamfactory.spi.config import Setting
from streamfactory.spi.masking import mask_secrets
from streamfactory.spi.references import (
    has_reference,
    is_reference,
    malformed,
    resolve,
)

PLANTED = 'hunter2-"Q\\uote'


def setting(key: str, text: str, *, secret: bool = False) -> Setting:
    value = None if secret else text
    return Setting(key, f"stream.x.{key}", text, value, "clicks.toml:3", secret)


def config_of(*settings: Setting, client: tuple[Setting, ...] = ()) -> StreamConfig:
    return StreamConfig(
        "clicks",
        "x",
        settings={s.key: s for s in settings},
        client={"consumer": {s.key: s for s in client}},
        decoder="json",
        decoder_settings={"token": setting("token", "${env:TOKEN}", secret=True)},
    )


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamConfig:
    """Three secrets: from the environment, from a file, and in the clear."""
    monkeypatch.setenv("TOKEN", PLANTED)
    (tmp_path / "password").write_text(f"{PLANTED}-file\n")
    return config_of(
        setting("topic.name", "clicks"),
        setting("password", f"${{file:{tmp_path / 'password'}}}", secret=True),
        setting("key", f"{PLANTED}-literal", secret=True),
        client=(setting("sasl.password", "${env:TOKEN}", secret=True),),
    )


def test_a_secret_is_in_no_text_of_a_configuration(config: StreamConfig) -> None:
    texts = [repr(config), repr(config.settings), config.digest(), str(config)]
    assert not [text for text in texts if "hunter2" in text]
    assert repr(config) == (
        "StreamConfig('clicks', stream.x.topic.name=clicks, "
        f"stream.x.password={config.settings['password'].text}, stream.x.key=***, "
        "stream.x.sasl.password=${env:TOKEN}, stream.x.token=${env:TOKEN})"
    )


def test_a_pickle_holds_references_not_what_they_name(config: StreamConfig) -> None:
    settings = {k: s for k, s in config.settings.items() if k != "key"}
    without_literal = replace(config, settings=settings)
    assert without_literal["password"] == f"{PLANTED}-file"  # resolving leaves no trace
    pickled = pickle.dumps(without_literal)
    assert b"hunter2" not in pickled
    copy = pickle.loads(pickled)
    assert copy == without_literal
    assert copy.digest() == without_literal.digest()
    assert copy["password"] == f"{PLANTED}-file"


def test_secrets_are_resolved_when_they_are_asked_for(
    config: StreamConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.decoder_options() == {"token": PLANTED}
    monkeypatch.setenv("TOKEN", "rotated")
    (tmp_path / "password").write_text("rotated too\r\n")
    assert config["password"] == "rotated too"
    assert config.decoder_options() == {"token": "rotated"}
    assert config.client_properties("consumer") == {"sasl.password": "rotated"}
    assert config.client_properties("producer") == {}


def test_masking_takes_every_secret_out_of_a_text(config: StreamConfig) -> None:
    wild = f"refused {PLANTED}-file for {PLANTED!r} and {PLANTED}"
    assert config.mask(wild) == "refused *** for '***' and ***"


@pytest.mark.parametrize("shown", [16, 17, 30, 99])
def test_masking_takes_the_beginning_of_a_secret_that_was_cut(shown: int) -> None:
    secret = "planted-" * 12
    text = f"{secret[:shown]!r} is no number, nor is {secret[:shown]}..., nor planted"
    assert (
        mask_secrets(text, [secret]) == "'***' is no number, nor is ***..., nor planted"
    )


def test_masking_continues_if_a_secret_cannot_be_resolved(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKEN")
    assert config.mask(f"{PLANTED}-literal") == "***"


def test_an_error_of_resolving_names_the_reference_never_a_value(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKEN")
    with pytest.raises(ConfigError) as caught:
        config.decoder_options()
    assert str(caught.value) == (
        "${env:TOKEN} cannot be resolved: the environment variable is not set"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("${env:P}", "${env:P}"),
        ("${file:/run/p}", "${file:/run/p}"),
        ("literal", "***"),
        ("${env:USER}:hunter2", "***"),
        ("hunter2${env:P}", "***"),
        ("$${env:P}", "***"),
    ],
)
def test_only_a_reference_is_shown_of_a_secret(text: str, shown: str) -> None:
    assert setting("password", text, secret=True).shown == shown
    assert setting("topic", text).shown == text


def test_the_digest_differs_for_different_settings() -> None:
    base = config_of(setting("a", "1"), setting("b", "2"))
    same = config_of(setting("b", "2"), setting("a", "1"))
    assert base.digest() == same.digest()
    assert hash(base) == hash(same)
    others = [
        config_of(setting("a", "1")),
        config_of(setting("a", "1"), setting("b", "3")),
        config_of(setting("a", "1\nstream.x.b=2")),
        replace(base, name="other"),
        config_of(setting("a", "1"), setting("b", "2"), client=(setting("c", ""),)),
    ]
    assert len({base.digest(), *(other.digest() for other in others)}) == 6


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "from streamfactory.spi import StreamConfig\n"
        "from streamfactory.spi.config import Setting\n"
        "s = Setting('a', 'stream.x.a', '1', 1, 'here')\n"
        "print(StreamConfig('clicks', 'x', {'a': s}).digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    here = StreamConfig(
        "clicks", "x", {"a": Setting("a", "stream.x.a", "1", 1, "here")}
    )
    assert digests == {f"{here.digest()}\n"}


def test_a_configuration_is_a_map_of_what_is_set(config: StreamConfig) -> None:
    assert list(config) == ["topic.name", "password", "key"]
    assert len(config) == 3
    assert config.topic == "clicks"
    assert config.get("group.id", "none") == "none"
    with pytest.raises(KeyError):
        config["group.id"]


# --- references -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("plain", "plain"),
        ("", ""),
        ("${env:A}", "one"),
        ("x${env:A}y${env:A}", "xoneyone"),
        ("$${env:A}", "${env:A}"),
        ("$$${env:A}", "$${env:A}"),
        ("$5 {a} $", "$5 {a} $"),
        ("$${env:A", "${env:A"),
        ("${env:NESTED}", "${env:A}"),
    ],
)
def test_references_are_replaced_once(
    text: str, resolved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "one")
    monkeypatch.setenv("NESTED", "${env:A}")
    assert resolve(text) == resolved


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "${env:NOT_SET}",
            "${env:NOT_SET} cannot be resolved: the environment variable is not set",
        ),
        ("${env:}", "${env:} is not a reference: write ${env:NAME} or ${file:PATH}"),
        ("${HOME}", "${HOME} is not a reference: write ${env:NAME} or ${file:PATH}"),
        (
            "${vault:db/password}",
            (
                "${vault:db/password} is not a reference: unknown reference scheme "
                "'vault'; known are env, file; install streamfactory-vault"
            ),
        ),
        (
            "${file:missing}",
            "${file:missing} cannot be resolved: No such file or directory",
        ),
        ("${file:.}", "${file:.} cannot be resolved: it is not a regular file"),
        (
            "${file:/dev/zero}",
            "${file:/dev/zero} cannot be resolved: it is not a regular file",
        ),
        (
            "${file:/etc/hostname}",
            (
                "${file:/etc/hostname} cannot be resolved: the file is in no folder of "
                "STREAMFACTORY_SECRETS, by default /run/secrets and the working "
                "directory"
            ),
        ),
        (
            "${file:long}",
            "${file:long} cannot be resolved: the file is larger than 1 MiB",
        ),
        (
            "${env:A",
            "has a reference without closing }; write $${ for a literal ${",
        ),
        (
            "${env:A\0B}",
            "${env:A\0B} cannot be resolved: the environment variable is not set",
        ),
        ("${file:latin}", "${file:latin} cannot be resolved: not UTF-8 text"),
    ],
)
def test_a_reference_that_names_nothing_is_an_error_with_a_message(
    text: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMFACTORY_SECRETS", f"/dev:{Path.cwd()}")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(ConfigError) as caught:
        resolve(text)
    assert str(caught.value) == what


@pytest.mark.parametrize(
    ("text", "has", "whole", "wrong"),
    [
        ("plain", False, False, False),
        ("${env:A}", True, True, False),
        ("x${env:A}", True, False, False),
        ("$${env:A}", False, False, False),
        ("${A}", True, True, True),
        ("$${A}", False, False, False),
        ("${env:A}${B}", True, False, True),
        ("${env:A}${env:B", True, False, True),
        ("$${env:B", False, False, False),
    ],
)
def test_the_form_of_references(
    *, text: str, has: bool, whole: bool, wrong: bool
) -> None:
    assert has_reference(text) is has
    assert is_reference(text) is whole
    assert (malformed(text) is not None) is wrong


def test_many_references_do_not_make_a_value_of_any_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONG", "x" * 100_000)
    assert len(resolve("${env:LONG}" * 10)) == 1_000_000
    with pytest.raises(ConfigError, match="longer than 1 MiB"):
        resolve("${env:LONG}" * 80_000)


@pytest.mark.parametrize(
    ("folders", "allowed"),
    [
        (None, {"here", "link", "deep/inside"}),
        ("other", {"outside"}),
        ("deep::other", {"deep/inside", "outside"}),
        ("", set()),
    ],
)
def test_files_are_read_below_the_folders_that_the_user_allows(
    folders: str | None,
    allowed: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    (project / "deep").mkdir(parents=True)
    other.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("STREAMFACTORY_SECRETS", raising=False)
    if folders is not None:
        texts = [name and str(tmp_path / name) for name in folders.split(":")]
        deep = str(project / "deep")
        named = [deep if text.endswith("/deep") else text for text in texts]
        monkeypatch.setenv("STREAMFACTORY_SECRETS", ":".join(named))
    for file in (project / "here", project / "deep/inside", other / "outside"):
        file.write_text("text\n")
    (project / "link").symlink_to("here")
    (project / "escape").symlink_to(other / "outside")
    paths = {
        "here": "here",
        "link": "link",
        "deep/inside": str(project / "deep/inside"),
        "outside": str(other / "outside"),
        "up": "../other/outside",
        "escape": "escape",
    }
    read = set()
    for name, path in paths.items():
        with suppress(ConfigError):
            assert resolve(f"${{file:{path}}}") == "text"
            read.add(name)
    reached = {"outside", "up", "escape"} if "outside" in allowed else set()
    assert read == allowed | reached


def test_root_as_the_working_directory_allows_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(ConfigError, match="in no folder of STREAMFACTORY_SECRETS"):
        resolve("${file:etc/hostname}")


def test_a_pipe_is_not_waited_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        resolve(f"${{file:{tmp_path / 'pipe'}}}")
