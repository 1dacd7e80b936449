"""Rules P1 to P3: a checkpoint is saved whole or not at all, and refused in words."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spi import (
    Checkpoint,
    CheckpointFailed,
    MisuseError,
    Partition,
    Position,
    PositionRefused,
)
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Callable

POSITION = Position({Partition("clicks", 0): 23}, {Partition("clicks", 0): "a1"})
OLD = Checkpoint(POSITION, 3)
NEW = Checkpoint(POSITION.with_offset(Partition("clicks", 0), 99), 4)
TEXT = (
    '{"generation":3,"position":{"incarnations":{"clicks":"a1"},'
    '"offsets":{"clicks":{"0":23}},"version":1},"version":1}\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def checkpoints(folder: Path) -> FileCheckpointStore:
    return FileCheckpointStore(folder)


@pytest.fixture
def saved(checkpoints: FileCheckpointStore, folder: Path) -> Path:
    """The file of a checkpoint that is there."""
    checkpoints.save("g", "0-of-1", OLD)
    return folder / "g" / "0-of-1.json"


def test_new_group_has_no_checkpoints(checkpoints: FileCheckpointStore) -> None:
    assert checkpoints.load("g") == {}


def test_checkpoint_comes_back_and_its_text_is_canonical(
    checkpoints: FileCheckpointStore, saved: Path
) -> None:
    assert checkpoints.load("g") == {"0-of-1": OLD}
    assert saved.read_text() == TEXT
    checkpoints.save("g", "0-of-1", NEW)
    checkpoints.save("g", "1-of-2", OLD)
    checkpoints.save("other", "0-of-1", OLD)
    assert checkpoints.load("g") == {"0-of-1": NEW, "1-of-2": OLD}


def test_text_of_version_one_stays_readable(
    checkpoints: FileCheckpointStore, saved: Path
) -> None:
    saved.write_text(TEXT)
    assert checkpoints.load("g") == {"0-of-1": OLD}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "the checkpoint {path} is not JSON"),
        (TEXT[:-5].encode(), "the checkpoint {path} is not JSON"),
        (b"\xff\xfe", "the checkpoint {path} is not JSON"),
        (b"[" * 100_000, "the checkpoint {path} is not JSON"),
        (b"[]", "{path} is not a checkpoint"),
        (b"{}", "{path} is not a checkpoint"),
        (POSITION.to_json().encode(), "{path} is not a checkpoint"),
        (TEXT.replace("1}\n", "0}\n").encode(), "{path} is not a checkpoint"),
        (TEXT.replace("1}\n", "true}\n").encode(), "{path} is not a checkpoint"),
        (TEXT.replace(":3,", ":-3,").encode(), "{path} is not a checkpoint"),
        (TEXT.replace(":3,", ':"3",').encode(), "{path} is not a checkpoint"),
        (TEXT.replace(":3,", ':3,"more":1,').encode(), "{path} is not a checkpoint"),
        (
            TEXT.replace("23", "-1").encode(),
            "the checkpoint {path}: not a position: -1 is not an offset",
        ),
    ],
)
def test_corrupt_or_foreign_checkpoint_is_refused_and_left_as_it_is(
    checkpoints: FileCheckpointStore, saved: Path, text: bytes, what: str
) -> None:
    saved.write_bytes(text)
    with pytest.raises(PositionRefused) as caught:
        checkpoints.load("g")
    assert str(caught.value) == (
        f"{what.format(path=saved)}; "
        "repair it, or reset the position; nothing was changed"
    )
    assert saved.read_bytes() == text


def test_newer_checkpoint_requires_an_upgrade_whatever_else_it_holds(
    checkpoints: FileCheckpointStore, saved: Path
) -> None:
    saved.write_text('{"version":2,"lanes":[]}')
    with pytest.raises(PositionRefused) as caught:
        checkpoints.load("g")
    assert str(caught.value) == (
        f"the checkpoint {saved} has version 2, expected 1; upgrade streamfactory"
    )


def test_newer_position_requires_an_upgrade(
    checkpoints: FileCheckpointStore, saved: Path
) -> None:
    saved.write_text(TEXT.replace('"version":1},', '"version":7},'))
    with pytest.raises(PositionRefused) as caught:
        checkpoints.load("g")
    assert (
        "position has version 7, but only versions up to 2 are supported"
    ) in caught.value.what


def test_folder_that_cannot_be_read_is_no_new_group(folder: Path) -> None:
    folder.mkdir()
    (folder / "g").write_text("a file where a folder should be")
    with pytest.raises(PositionRefused) as caught:
        FileCheckpointStore(folder).load("g")
    assert caught.value.what == (
        f"the checkpoints in {folder / 'g'} cannot be read: Not a directory"
    )


def test_what_a_crash_left_half_written_is_no_checkpoint(
    checkpoints: FileCheckpointStore, saved: Path
) -> None:
    (saved.parent / ".0-of-1.json.0123").write_text('{"gener')
    (saved.parent / ".1-of-2.json").write_text('{"gener')
    assert checkpoints.load("g") == {"0-of-1": OLD}


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", "a\\b", ".hidden", "a\0b", "a\n", "x" * 129],
)
def test_names_cannot_be_paths(checkpoints: FileCheckpointStore, name: str) -> None:
    for use, what in (
        (lambda: checkpoints.load(name), "group"),
        (lambda: checkpoints.save(name, "0-of-1", OLD), "group"),
        (lambda: checkpoints.save("g", name, OLD), "instance"),
    ):
        with pytest.raises(MisuseError) as caught:
            use()
        assert str(caught.value) == (
            f"the {what} {name!r} cannot name a file; "
            "use letters, digits, dots, dashes, underscores"
        )


# --- failures on the way (rule P3) ----------------------------------------------


def failing(name: str, at: int = 1) -> Callable[..., Any]:
    """The function of that name in `os` that raises when it is called so often."""
    real, calls = getattr(os, name), iter(range(1, 1000))

    def call(*args: Any, **more: Any) -> Any:
        if next(calls) == at:
            raise OSError(28, "No space left on device")
        return real(*args, **more)

    return call


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "fsync"), ("pathlib.Path", "replace"), ("pathlib.Path", "open")],
)
def test_failure_before_the_rename_leaves_the_old_one_and_nothing_else(
    checkpoints: FileCheckpointStore,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
) -> None:
    with monkeypatch.context() as patch:
        if module == "os":
            patch.setattr(os, name, failing(name))
        else:

            def fail(*args: Any, **more: Any) -> Any:
                raise OSError(28, "No space left on device")

            patch.setattr(Path, name, fail)
        with pytest.raises(CheckpointFailed) as caught:
            checkpoints.save("g", "0-of-1", NEW)
    assert str(caught.value) == (
        f"the checkpoint {saved} could not be saved: No space left on device; "
        "save it again; the previous one remains valid"
    )
    assert isinstance(caught.value, OSError)
    assert checkpoints.load("g") == {"0-of-1": OLD}
    assert [*saved.parent.iterdir()] == [saved]


def test_failure_while_writing_leaves_the_old_one_and_nothing_else(
    checkpoints: FileCheckpointStore, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def unwritable(self: Path, *args: Any) -> Any:
        real(self, *args).close()
        return real(self, "rb")

    monkeypatch.setattr(Path, "open", unwritable)
    with pytest.raises(CheckpointFailed) as caught:
        checkpoints.save("g", "0-of-1", NEW)
    assert caught.value.what == f"the checkpoint {saved} could not be saved: write"
    monkeypatch.undo()
    assert checkpoints.load("g") == {"0-of-1": OLD}
    assert [*saved.parent.iterdir()] == [saved]


def test_interrupt_leaves_the_old_one_and_nothing_else(
    checkpoints: FileCheckpointStore, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save("g", "0-of-1", NEW)
    assert checkpoints.load("g") == {"0-of-1": OLD}
    assert [*saved.parent.iterdir()] == [saved]


def test_failure_after_the_rename_does_not_claim_that_the_old_one_holds(
    checkpoints: FileCheckpointStore, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing("fsync", at=2))
        with pytest.raises(CheckpointFailed) as caught:
            checkpoints.save("g", "0-of-1", NEW)
    assert str(caught.value) == (
        f"the checkpoint {saved} may not be durable: No space left on device; "
        "save it again"
    )
    assert checkpoints.load("g") == {"0-of-1": NEW}
    assert [*saved.parent.iterdir()] == [saved]


def test_location_that_is_a_file_cannot_be_saved_to(folder: Path) -> None:
    folder.write_text("not a folder")
    with pytest.raises(CheckpointFailed) as caught:
        FileCheckpointStore(folder).save("g", "0-of-1", OLD)
    assert "could not be saved: " in caught.value.what


def test_file_and_every_folder_that_gained_an_entry_are_synced_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, group = os.fsync, tmp_path / "a" / "b" / "g"
    folders = [tmp_path, tmp_path / "a", tmp_path / "a" / "b", group]
    seen: list[tuple[str, bool]] = []

    def note(descriptor: int) -> None:
        there = os.fstat(descriptor)
        names = [
            str(folder.relative_to(tmp_path))
            for folder in folders
            if folder.exists() and os.path.samestat(folder.stat(), there)
        ]
        name = names[0] if stat.S_ISDIR(there.st_mode) else "the file"
        seen.append((name, (group / "0-of-1.json").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    checkpoints = FileCheckpointStore(tmp_path / "a" / "b")
    checkpoints.save("g", "0-of-1", OLD)
    assert seen == [
        (".", False),
        ("a", False),
        ("a/b", False),
        ("the file", False),
        ("a/b/g", True),
    ]
    seen.clear()
    checkpoints.save("g", "0-of-1", NEW)
    assert seen == [("the file", True), ("a/b/g", True)]


@pytest.mark.parametrize(
    "made",
    [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()],
)
def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    checkpoints: FileCheckpointStore, saved: Path, made: Callable[[Path], None]
) -> None:
    saved.unlink()
    made(saved)
    with pytest.raises(PositionRefused, match="not a regular file"):
        checkpoints.load("g")


def test_a_checkpoint_of_any_length_is_not_read_whole(
    checkpoints: FileCheckpointStore, saved: Path
) -> None:
    with saved.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(PositionRefused, match="1099511627776 bytes"):
        checkpoints.load("g")
