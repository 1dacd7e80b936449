"""Plug-ins of strangers: found by name, loaded late, and harmless when they are broken.

A distribution is installed as an installer would leave it: modules and a `.dist-info`
folder on the path.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from streamfactory.spi import (
    Backend,
    BrokenPlugin,
    Decoder,
    DuplicatePlugin,
    NotInstalled,
    PluginBlocked,
    PluginError,
    PluginTooNew,
    UnknownPlugin,
    hookimpl,
)
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.plugins.manager import PluginInfo, PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TINY = """
    from streamfactory.spi import Backend, ConsumerFactory, Decoder, Option, hookimpl

    class Tiny(ConsumerFactory):
        def create_partition_level_consumer(self, client_id, partition, fields=None):
            raise NotImplementedError

        def create_metadata_provider(self, client_id):
            raise NotImplementedError

    def tiny(**words):
        words = {"name": "tiny", "doc": "Tiny.", "spi_level": 1, **words}
        return Backend(consumer_factory=Tiny, **words)
"""
GOOD = """
    @hookimpl
    def streamfactory_backend():
        return tiny()
"""


class Install(Protocol):
    """Installs one distribution."""

    def __call__(
        self,
        name: str,
        source: str,
        *,
        backends: str = "",
        decoders: str = "",
        version: str = "1.0",
    ) -> None: ...


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install_one(
        name: str,
        source: str,
        *,
        backends: str = "",
        decoders: str = "",
        version: str = "1.0",
    ) -> None:
        module = name.replace("-", "_")
        text = textwrap.dedent(TINY) + textwrap.dedent(source)
        (site / f"{module}.py").write_text(text)
        info = site / f"{module}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata)
        groups = {BACKENDS: backends, DECODERS: decoders}
        points = "".join(f"[{g}]\n{lines}\n" for g, lines in groups.items() if lines)
        (info / "entry_points.txt").write_text(points)
        importlib.invalidate_caches()

    yield install_one
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(site)):
            del sys.modules[name]


@pytest.fixture
def plugins() -> PluginManager:
    return PluginManager({})


def refusal(plugins: PluginManager, name: str) -> PluginError:
    with pytest.raises(PluginError) as caught:
        plugins.backend(name)
    return caught.value


def listed(plugins: PluginManager, *, load: bool = False) -> dict[str, PluginInfo]:
    """The backends by distribution and name; built-ins other than memory left out."""
    infos = plugins.list(BACKENDS, load=load)
    return {
        f"{info.distribution}/{info.name}": info
        for info in infos
        if info.distribution != "streamfactory" or info.name == "memory"
    }


# --- found --------------------------------------------------------------------------


def test_backend_and_decoder_of_a_third_party_are_found_by_name(
    install: Install, plugins: PluginManager
) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    decoder = """
        @hookimpl
        def streamfactory_decoder():
            return Decoder(name="upper", doc="Upper case.", spi_level=1)
    """
    install("tiny-decoder", decoder, decoders="upper = tiny_decoder")
    assert plugins.backend("tiny").doc == "Tiny."
    assert plugins.decoder("upper").doc == "Upper case."
    assert "tiny" in plugins.names(BACKENDS)
    assert "upper" in plugins.names(DECODERS)
    assert "upper" not in plugins.names(BACKENDS)


def test_listing_imports_nothing(install: Install, plugins: PluginManager) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream", version="2.5")
    info = listed(plugins)["tiny-stream/tiny"]
    assert info == PluginInfo("tiny", BACKENDS, "tiny-stream", "2.5", "tiny_stream")
    assert "tiny_stream" not in sys.modules
    plugins.backend("tiny")
    assert listed(plugins)["tiny-stream/tiny"].loaded
    assert "tiny_stream" in sys.modules


def test_a_distribution_behind_another_of_its_name_is_hidden(
    install: Install,
    plugins: PluginManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream", version="2.5")
    info = tmp_path / "later" / "tiny_stream-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text("Name: Tiny.Stream\nVersion: 1.0\n\nName: x\n")
    info.joinpath("entry_points.txt").write_text(f"[{BACKENDS}]\nold = tiny_stream\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(info.parent)])
    assert "tiny" in plugins.names(BACKENDS)
    assert "old" not in plugins.names(BACKENDS)
    assert listed(plugins)["tiny-stream/tiny"].version == "2.5"
    monkeypatch.setattr(sys, "path", [str(info.parent), *sys.path])
    assert "tiny" not in plugins.names(BACKENDS)
    assert listed(plugins)["Tiny.Stream/old"].version == "1.0"


def test_built_ins_go_the_same_way(plugins: PluginManager) -> None:
    info = listed(plugins)["streamfactory/memory"]
    assert info.target == "streamfactory.backends.memory"
    assert plugins.backend("memory").name == "memory"
    assert plugins.decoder("raw").name == "raw"


def test_every_built_in_loads_or_names_the_package_to_install(
    plugins: PluginManager,
) -> None:
    for group in (BACKENDS, DECODERS):
        found = plugins.list(group, load=True)
        own = [info for info in found if info.distribution == "streamfactory"]
        assert len(own) > 5
        for info in own:
            assert info.loaded or isinstance(info.error, NotInstalled)


def test_unknown_name_lists_known_ones_and_a_near_match(
    install: Install, plugins: PluginManager
) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    error = refusal(plugins, "tinny")
    assert isinstance(error, UnknownPlugin)
    known = ", ".join(plugins.names(BACKENDS))
    assert str(error) == (
        f"unknown stream type 'tinny'; known are {known}; did you mean 'tiny'?"
    )
    with pytest.raises(UnknownPlugin) as caught:
        plugins.decoder("zzz")
    known = ", ".join(plugins.names(DECODERS))
    assert str(caught.value) == f"unknown decoder 'zzz'; known are {known}"


# --- broken -------------------------------------------------------------------------

OWNER = "plug-in 'tiny of tiny-stream 1.0'"

BROKEN = {
    "raises": (
        "raise RuntimeError('no luck')",
        f"{OWNER} failed to load: RuntimeError: no luck",
    ),
    "exits": (
        "import sys; sys.exit(3)",
        f"{OWNER} failed to load: SystemExit: 3",
    ),
    "syntax": (
        "def (:",
        f"{OWNER} failed to load: SyntaxError: invalid syntax (tiny_stream.py",
    ),
    "missing name": (
        "from streamfactory.spi import NoSuchThing",
        (
            f"{OWNER} failed to load: ImportError: cannot import name 'NoSuchThing' "
            "from 'streamfactory.spi'"
        ),
    ),
    "missing module of an installed package": (
        "import pyarrow.no_such_module",
        (
            f"{OWNER} failed to load: ModuleNotFoundError: No module named "
            "'pyarrow.no_such_module'"
        ),
    ),
    "no hook": ("", f"{OWNER} has no hook `streamfactory_backend` marked @hookimpl"),
    "unmarked hook": (
        "def streamfactory_backend(): return tiny()",
        f"{OWNER} has no hook `streamfactory_backend` marked @hookimpl",
    ),
    "wrong hook name": (
        "@hookimpl\ndef streamfactory_bakend(): return tiny()",
        f"{OWNER}: PluginValidationError: ",
    ),
    "arguments": (
        "@hookimpl\ndef streamfactory_backend(config): return tiny()",
        f"{OWNER}: PluginValidationError: ",
    ),
    "hook of a decoder": (
        "@hookimpl\ndef streamfactory_decoder(): return tiny()",
        (
            f"{OWNER} has no hook `streamfactory_backend` marked @hookimpl, but "
            "`streamfactory_decoder`"
        ),
    ),
    "two hooks": (
        (
            "@hookimpl\ndef streamfactory_backend(): return tiny()\n"
            "@hookimpl\ndef streamfactory_decoder(): return None"
        ),
        (f"{OWNER} has two hooks, expected one; give each a module and an entry point"),
    ),
    "hook raises": (
        "@hookimpl\ndef streamfactory_backend(): return {}['gone']",
        f"{OWNER}: KeyError: 'gone'",
    ),
    "hook exits": (
        "@hookimpl\ndef streamfactory_backend(): raise SystemExit(1)",
        f"{OWNER}: SystemExit: 1",
    ),
    "wrong answer": (
        "@hookimpl\ndef streamfactory_backend(): return {'name': 'tiny'}",
        f"the hook of {OWNER} returned a dict, expected a Backend",
    ),
    "wrong descriptor": (
        (
            "@hookimpl\ndef streamfactory_backend():\n"
            "    return Decoder(name='tiny', doc='x', spi_level=1)"
        ),
        f"the hook of {OWNER} returned a Decoder, expected a Backend",
    ),
    "other name": (
        "@hookimpl\ndef streamfactory_backend(): return tiny(name='other')",
        (f"{OWNER} describes itself as 'other'; the entry point and `name` must agree"),
    ),
    "bad name": (
        "@hookimpl\ndef streamfactory_backend(): return tiny(name='A.b')",
        f"{OWNER} has the name 'A.b': use lower-case letters, digits, _ and -",
    ),
    "no level": (
        "@hookimpl\ndef streamfactory_backend(): return tiny(spi_level='1')",
        f"{OWNER} has the SPI level '1', expected an integer from 1",
    ),
    "no factory": (
        (
            "@hookimpl\ndef streamfactory_backend():\n"
            "    return Backend(name='tiny', doc='x', spi_level=1)"
        ),
        f"{OWNER} has neither a consumer factory nor a producer factory",
    ),
    "options that are none": (
        "@hookimpl\ndef streamfactory_backend(): return tiny(options=('host',))",
        f"{OWNER} has options that are not of class `Option`",
    ),
    "option twice": (
        (
            "@hookimpl\ndef streamfactory_backend():\n"
            "    a, b = Option('host', 'A.'), Option('peer', 'B.', aliases=('Host',))\n"
            "    return tiny(options=(a, b))"
        ),
        f"{OWNER} declares 'host' twice",
    ),
    "word of the framework": (
        (
            "@hookimpl\ndef streamfactory_backend():\n"
            "    return tiny(options=(Option('startingoffsets', 'A.'),))"
        ),
        f"{OWNER} declares 'startingoffsets', an option of the framework",
    ),
    "alias of a shared option": (
        (
            "@hookimpl\ndef streamfactory_backend():\n"
            "    return tiny(options=(Option('t', 'A.', aliases=('topic.name',)),))"
        ),
        f"{OWNER} has the alias 'topic.name', an option of every stream",
    ),
    "strange carried column": (
        (
            "from streamfactory.spi import ProducerFactory\n"
            "class Sink(ProducerFactory):\n"
            "    CARRIES = frozenset({'_key', '_header'})\n"
            "@hookimpl\ndef streamfactory_backend():\n"
            "    return tiny(producer_factory=Sink)"
        ),
        f"{OWNER} carries '_header': known are _key, _headers, _timestamp, _topic",
    ),
    "strange namespace": (
        (
            "@hookimpl\ndef streamfactory_backend():\n"
            "    return tiny(client_namespaces=frozenset({'admin'}))"
        ),
        f"{OWNER} has a client namespace 'admin': known: consumer, producer, catalog",
    ),
}


@pytest.mark.parametrize(("source", "what"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_plugin_is_disabled_with_its_reason(
    install: Install, plugins: PluginManager, source: str, what: str
) -> None:
    install("tiny-stream", source, backends="tiny = tiny_stream")
    error = refusal(plugins, "tiny")
    assert isinstance(error, BrokenPlugin)
    assert str(error).startswith(what)
    assert type(refusal(plugins, "tiny")) is BrokenPlugin  # and stays so
    infos = listed(plugins, load=True)
    assert str(infos["tiny-stream/tiny"].error).startswith(what)
    assert infos["streamfactory/memory"].loaded


def test_broken_plugin_hurts_no_other(install: Install, plugins: PluginManager) -> None:
    install("bad-stream", "raise RuntimeError", backends="bad = bad_stream")
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    assert isinstance(refusal(plugins, "bad"), BrokenPlugin)
    assert plugins.backend("tiny").name == "tiny"
    assert plugins.backend("memory").name == "memory"


def test_a_cause_is_kept(install: Install, plugins: PluginManager) -> None:
    install("tiny-stream", "raise RuntimeError('x')", backends="tiny = tiny_stream")
    first, second = refusal(plugins, "tiny"), refusal(plugins, "tiny")
    assert isinstance(first.__cause__, RuntimeError)
    assert second.__cause__ is first.__cause__
    assert first is not second  # each raise has a traceback of its own


def test_plugin_for_a_later_level_is_disabled(
    install: Install, plugins: PluginManager
) -> None:
    source = """
        @hookimpl
        def streamfactory_backend():
            return tiny(spi_level=2)
    """
    install("tiny-stream", source, backends="tiny = tiny_stream")
    error = refusal(plugins, "tiny")
    assert isinstance(error, PluginTooNew)
    assert str(error) == (
        "'tiny' requires SPI level 2, but this is level 1; upgrade streamfactory"
    )


@pytest.mark.parametrize(
    ("point", "command"),
    [
        ("tiny = tiny_stream [fast]", "run: pip install 'tiny-stream[fast]'"),
        ("tiny = tiny_stream [fast,tls]", "run: pip install 'tiny-stream[fast,tls]'"),
        ("tiny = tiny_stream", "run: pip install 'tiny-stream'"),
    ],
)
def test_missing_client_reports_the_command(
    install: Install, plugins: PluginManager, point: str, command: str
) -> None:
    install("tiny-stream", "import no_such_client.fast", backends=point)
    error = refusal(plugins, "tiny")
    assert isinstance(error, NotInstalled)
    assert str(error) == (
        "'tiny' requires the package 'no_such_client', which is not installed; "
        + command
    )
    assert isinstance(error.__cause__, ImportError)


def test_entry_point_without_its_module_is_broken_not_uninstalled(
    install: Install, plugins: PluginManager
) -> None:
    install("tiny-stream", GOOD, backends="tiny = no_such_module_here")
    error = refusal(plugins, "tiny")
    assert isinstance(error, BrokenPlugin)
    assert str(error) == (
        f"{OWNER} failed to load: ModuleNotFoundError: No module named "
        "'no_such_module_here'"
    )


# --- names claimed twice --------------------------------------------------------------


def test_name_claimed_by_two_third_parties_names_both(
    install: Install, plugins: PluginManager
) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    install("other-stream", GOOD, backends="tiny = other_stream")
    error = refusal(plugins, "tiny")
    assert isinstance(error, DuplicatePlugin)
    assert str(error) == (
        "stream type 'tiny' is provided by other-stream and tiny-stream; uninstall "
        "one, or block one with STREAMFACTORY_PLUGINS_BLOCK"
    )
    infos = listed(plugins, load=True)
    assert isinstance(infos["tiny-stream/tiny"].error, DuplicatePlugin)
    assert isinstance(infos["other-stream/tiny"].error, DuplicatePlugin)
    assert "tiny_stream" not in sys.modules


@pytest.mark.parametrize("target", ["tiny_stream", "shared_target"])
def test_blocking_one_of_two_leaves_the_other(install: Install, target: str) -> None:
    install("shared-target", GOOD)
    install("tiny-stream", GOOD, backends=f"tiny = {target}")
    install("other-stream", GOOD, backends=f"tiny = {target}")
    plugins = PluginManager({"STREAMFACTORY_PLUGINS_BLOCK": "Other_Stream"})
    assert plugins.backend("tiny").name == "tiny"
    infos = listed(plugins)
    assert infos["tiny-stream/tiny"].loaded
    assert isinstance(infos["other-stream/tiny"].error, PluginBlocked)


def test_built_in_keeps_its_name(install: Install, plugins: PluginManager) -> None:
    install("tiny-stream", GOOD, backends="memory = tiny_stream")
    assert plugins.backend("memory").doc.startswith("Streams within one process")
    infos = listed(plugins, load=True)
    assert infos["streamfactory/memory"].loaded
    assert str(infos["tiny-stream/memory"].error).startswith(
        "stream type 'memory' is provided by streamfactory and tiny-stream; "
    )
    assert "tiny_stream" not in sys.modules


def test_a_backend_and_a_decoder_may_share_a_name(
    install: Install, plugins: PluginManager
) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    decoder = """
        @hookimpl
        def streamfactory_decoder():
            return Decoder(name="tiny", doc="x", spi_level=1)
    """
    install("tiny-decoder", decoder, decoders="tiny = tiny_decoder")
    assert isinstance(plugins.backend("tiny"), Backend)
    assert isinstance(plugins.decoder("tiny"), Decoder)


# --- block and allow ------------------------------------------------------------------


@pytest.mark.parametrize("word", ["tiny", "TINY", "tiny-stream", " x, Tiny.Stream ,"])
def test_blocking_by_name_or_distribution(install: Install, word: str) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    plugins = PluginManager({"STREAMFACTORY_PLUGINS_BLOCK": word})
    error = refusal(plugins, "tiny")
    assert isinstance(error, PluginBlocked)
    assert str(error) == "'tiny' is blocked by STREAMFACTORY_PLUGINS_BLOCK"
    assert plugins.backend("memory").name == "memory"
    assert isinstance(listed(plugins)["tiny-stream/tiny"].error, PluginBlocked)


@pytest.mark.parametrize("word", ["memory", "streamfactory"])
def test_allowing_a_plugin_refuses_all_others(install: Install, word: str) -> None:
    install("tiny-stream", GOOD, backends="tiny = tiny_stream")
    plugins = PluginManager({"STREAMFACTORY_PLUGINS_ALLOW": word})
    assert plugins.backend("memory").name == "memory"
    assert str(refusal(plugins, "tiny")) == (
        "'tiny' is not allowed by STREAMFACTORY_PLUGINS_ALLOW"
    )


def test_blocking_goes_before_allowing() -> None:
    plugins = PluginManager(
        {
            "STREAMFACTORY_PLUGINS_ALLOW": "memory",
            "STREAMFACTORY_PLUGINS_BLOCK": "memory",
        }
    )
    assert isinstance(refusal(plugins, "memory"), PluginBlocked)


def test_the_environment_of_the_process_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMFACTORY_PLUGINS_BLOCK", "memory")
    assert isinstance(refusal(PluginManager(), "memory"), PluginBlocked)


# --- from Python ----------------------------------------------------------------------


class Notebook:
    """A plug-in as somebody writes it in a cell."""

    def __init__(self, **words: Any) -> None:
        memory = PluginManager({}).backend("memory")
        self._words = {
            "name": "cell",
            "doc": "From a cell.",
            "spi_level": 1,
            "consumer_factory": memory.consumer_factory,
            **words,
        }

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(**self._words)


def test_registering_from_python(plugins: PluginManager) -> None:
    descriptor = plugins.register(Notebook())
    assert plugins.backend("cell") is descriptor
    assert "cell" in plugins.names(BACKENDS)
    info = listed(plugins)["(registered here)/cell"]
    assert info.loaded
    with pytest.raises(DuplicatePlugin) as caught:
        plugins.register(Notebook())
    assert str(caught.value).startswith("stream type 'cell' is registered already; ")
    plugins.unregister(BACKENDS, "cell")
    plugins.unregister(BACKENDS, "cell")
    assert isinstance(refusal(plugins, "cell"), UnknownPlugin)
    assert plugins.register(Notebook()).name == "cell"


def test_registering_what_is_no_plugin(plugins: PluginManager) -> None:
    with pytest.raises(BrokenPlugin) as caught:
        plugins.register(SimpleNamespace())
    assert "has no hook `streamfactory_backend` marked @hookimpl" in str(caught.value)
    with pytest.raises(PluginTooNew):
        plugins.register(Notebook(spi_level=99))
    assert "cell" not in plugins.names(BACKENDS)


def test_managers_do_not_share_what_is_registered(plugins: PluginManager) -> None:
    plugins.register(Notebook())
    assert isinstance(refusal(PluginManager({}), "cell"), UnknownPlugin)


# --- threads --------------------------------------------------------------------------


def test_first_loads_from_many_threads_import_once(
    install: Install, plugins: PluginManager
) -> None:
    source = """
        import time

        calls = []

        @hookimpl
        def streamfactory_backend():
            calls.append(1)
            time.sleep(0.02)  # long enough for the others to arrive
            return tiny()
    """
    install("tiny-stream", source, backends="tiny = tiny_stream")
    barrier = threading.Barrier(8)

    def load(_: int) -> Backend:
        barrier.wait(timeout=300)
        return plugins.backend("tiny")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(load, range(8)))
    assert all(descriptor is found[0] for descriptor in found)
    assert sys.modules["tiny_stream"].calls == [1]
