"""`topics compact` and `topics verify`, and the library half of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from streamfactory.backends import memory as memory_backend
from streamfactory.spi import (
    Backend,
    ClosedError,
    ConnectionFailed,
    MisuseError,
    Option,
    PermanentError,
    ProducerFactory,
    TopicAdmin,
    Unsupported,
    UntranslatedError,
    Verification,
    hookimpl,
)
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.proving.commands import Outcome
    from tests.topics.conftest import Place

    from streamfactory.wiring.topics.admin import Admin

    Command = Callable[..., Outcome]


def test_a_sound_topic_is_verified(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3, 4)
    topics("truncate", stream, "--before", "1=1", "--yes")
    done = topics("verify", stream)
    assert (done.status, done.out) == (0, "clicks: 6 rows read, no problems\n")
    expected = {"topic": "clicks", "ok": True, "rows": 6, "problems": []}
    assert topics("verify", stream, "--json").json == expected


def test_a_damaged_topic_ends_with_status_1(
    disk: Place, topics: Command, tmp_path: Path
) -> None:
    stream = disk.numbers("clicks", 10_000)
    disk.write("clicks", {"id": [1, 2]})
    segments = sorted((tmp_path / "topics").rglob("data/*.arrow"))
    largest = max(segments, key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:500])
    done = topics("verify", stream, "--json")
    assert (done.status, done.json["ok"], done.json["rows"]) == (1, False, 2)
    assert len(done.json["problems"]) == 1
    assert largest.name in done.json["problems"][0]
    text = topics("verify", stream)
    assert (text.status, text.err) == (1, "")
    assert text.out.startswith("clicks: 2 rows read, 1 problem\n  partition 0, ")


def test_small_files_are_merged(disk: Place, topics: Command) -> None:
    files = {"stream__file__inline__bytes": "0"}
    for number in range(10):
        disk.write("clicks", {"id": [number]}, **files)
    stream = disk.stream("clicks")
    done = topics("compact", stream, "--json").json
    assert (done["before"]["segments"], done["after"]["segments"]) == (10, 1)
    assert topics("verify", stream, "--json").json["rows"] == 10
    for number in range(2):
        disk.write("clicks", {"id": [number]}, **files)
    assert "segments 3 to 1" in topics("compact", stream).out


def test_rows_within_records_are_moved_to_a_file(disk: Place, topics: Command) -> None:
    for number in range(10):
        disk.write("clicks", {"id": [number]})
    stream = disk.stream("clicks")
    done = topics("compact", stream, "--json").json
    facts = [done[when] for when in ("before", "after")]
    assert [one["inline segments"] for one in facts] == [10, 0]
    assert [one["segments"] for one in facts] == [0, 1]
    assert topics("verify", stream, "--json").json["rows"] == 10


def test_a_log_in_memory_has_nothing_to_compact(memory: Place, topics: Command) -> None:
    stream = memory.numbers("clicks", 3)
    assert topics("compact", stream).out == "clicks: nothing to compact\n"


@pytest.mark.parametrize("command", ["compact", "verify", "delete", "grow"])
def test_a_topic_has_to_be_there(command: str, place: Place, topics: Command) -> None:
    extra: dict[str, str] = {"delete": "--yes", "grow": "2"}
    words = [extra[command]] if command in extra else []
    done = topics(command, place.stream("nobody"), *words, "--json")
    assert (done.status, done.error["error"]) == (1, "topic_not_found")


# --- the guarded front ----------------------------------------------------------------


class Boom(Exception):
    """What no backend should let out."""


class Scripted(TopicAdmin):
    """Fails a given number of times, and records its calls."""

    failures: ClassVar[list[Exception]] = []
    calls: ClassVar[list[str]] = []
    closed: ClassVar[int] = 0

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if self.failures:
            raise self.failures.pop(0)

    def create(self, topic: str, schema: object, partitions: int | None) -> None:
        self._step(f"create {topic}")

    def verify(self, topic: str) -> Verification:
        self._step(f"verify {topic}")
        return Verification(7)

    def close(self) -> None:
        type(self).closed += 1


class Plugin:
    """A stream type with that operator, or with another one."""

    def __init__(self, admin: type[TopicAdmin] | None) -> None:
        self._admin = admin

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(
            name="script",
            doc="A script.",
            spi_level=1,
            producer_factory=ProducerFactory,
            topic_admin=self._admin,
            options=(Option("password", "A secret.", secret=True),),
        )


def scripted(*failures: Exception, admin: type[TopicAdmin] | None = Scripted) -> Admin:
    Scripted.failures, Scripted.calls, Scripted.closed = list(failures), [], 0
    manager = PluginManager()
    manager.register(Plugin(admin))
    properties: Mapping[str, Any] = {
        "streamType": "script",
        "stream.script.topic.name": "t",
        "stream.script.password": "hunter22",
        "retry.initial.millis": "1",
        "retry.max.millis": "2",
        "retry.max.attempts": "3",
    }
    return open_admin(properties, plugins=manager)


def test_passing_trouble_is_tried_again() -> None:
    with scripted(ConnectionFailed("gone"), TimeoutError("slow")) as admin:
        assert admin.verify().rows == 7
    assert Scripted.calls == ["verify t"] * 3


def test_what_cannot_be_repeated_is_done_once() -> None:
    trouble = ConnectionFailed("gone")
    with scripted(trouble) as admin, pytest.raises(ConnectionFailed) as caught:
        admin.create(None)
    assert Scripted.calls == ["create t"]
    assert (caught.value.stream, caught.value.what) == ("script:t", "gone")


@pytest.mark.parametrize("act", ["create", "verify"])
def test_foreign_errors_never_cross(act: str) -> None:
    boom = Boom("the password is hunter22")
    with scripted(boom) as admin, pytest.raises(UntranslatedError) as caught:
        admin.create(None) if act == "create" else admin.verify()
    assert str(caught.value).startswith("the plug-in raised Boom: the password is ***")


def test_an_ability_that_is_not_there_is_reported() -> None:
    with scripted() as admin:
        with pytest.raises(Unsupported) as caught:
            admin.grow(3)
        assert caught.value.what == "stream type 'script' cannot grow topics"
        with pytest.raises(Unsupported) as caught:
            admin.topics()
    assert caught.value.what == "stream type 'script' cannot be read"


def test_a_type_without_an_operator_is_reported() -> None:
    with scripted(admin=None) as admin:
        assert admin.facts() == {}
        with pytest.raises(Unsupported) as caught:
            admin.delete()
    assert (
        caught.value.what
        == "stream type 'script' does not support topic administration"
    )
    assert caught.value.remedy == "use the tools of the source"


def test_what_was_opened_is_closed_once() -> None:
    admin = scripted()
    admin.verify()
    admin.close()
    admin.close()
    assert Scripted.closed == 1
    with pytest.raises(ClosedError) as caught:
        admin.verify()
    assert caught.value.what == "the topic administration is closed"


def test_nothing_is_opened_before_something_is_asked() -> None:
    class Fragile(TopicAdmin):
        def __init__(self, config: Any) -> None:
            msg = "no"
            raise PermanentError(msg)

    with scripted(admin=Fragile) as admin, pytest.raises(PermanentError):
        admin.verify()


def test_a_program_operates_topics(memory: Place) -> None:
    with open_admin(memory.properties("clicks")) as admin:
        assert admin.topics() == []
        admin.create(None, 2)
        assert admin.schema().names[:2] == ["key", "value"]
        with pytest.raises(MisuseError):
            admin.create(None, 2)
        admin.grow(3)
        assert [info.partition.id for info in admin.partitions()] == [0, 1, 2]
        with open_admin(memory.properties("x"), topic="clicks") as same:
            assert len(same.partitions()) == 3
            assert same.config.name == "memory:clicks"
        admin.delete()
        assert admin.overview() == []


def test_the_store_of_these_tests_is_their_own(memory: Place) -> None:
    assert memory_backend.store(memory.where["stream.memory.store"]).names() == []
