"""A write leaves the old file or the new one, and nothing else; a durable one also after a power cut."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.process.durable import remove, remove_durably, remove_unfinished, write_atomically, write_durably
from tests.gpus import StorageError
from tests.power_cut import PowerCutDisk

Write = Callable[..., None]

every_write = pytest.mark.parametrize("write", [write_atomically, write_durably])
every_remove = pytest.mark.parametrize("take_away", [remove, remove_durably])


@every_write
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "path"])
def test_a_file_is_replaced_whole_with_the_mode_asked_for(
    tmp_path: Path, write: Write, as_text: bool
) -> None:
    path = tmp_path / "entry.json"
    named = str(path) if as_text else path

    write(named, b"old")
    before = os.umask(0o077)
    try:
        write(named, b"new", 0o644)
    finally:
        os.umask(before)

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["entry.json"]


@every_write
def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_litter(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "child").touch()

    with pytest.raises(StorageError, match=r"writing .*/folder failed: .*\(retryable\)"):
        write(path, b"a folder with content cannot be replaced by a file")

    assert os.listdir(tmp_path) == ["folder"]


@every_remove
def test_removing_what_is_not_there_is_fine(tmp_path: Path, take_away: Write) -> None:
    (tmp_path / "there").touch()

    take_away(tmp_path / "there")
    take_away(tmp_path / "there")
    take_away(tmp_path / "gone" / "file")

    assert os.listdir(tmp_path) == []


@every_write
def test_a_symbolic_link_in_the_way_is_replaced_never_followed(tmp_path: Path, write: Write) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(victim)

    write(tmp_path / "link", b"ours")

    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "link").read_bytes() == b"ours"


@given(st.data())
def test_what_was_written_or_removed_durably_outlives_a_power_cut(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "gone").write_bytes(b"old")
        disk = PowerCutDisk(Path(folder))
        with disk.followed():
            write_durably(Path(folder) / "kept", b"first")
            write_durably(Path(folder) / "kept", b"second")
            remove_durably(Path(folder) / "gone")

        disk.cut(lambda choices: data.draw(st.integers(0, choices - 1)))

        assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == {"kept": b"second"}


def test_what_need_not_outlive_a_power_cut_may_be_lost_torn_or_back_again(tmp_path: Path) -> None:
    left: set[tuple[bytes | None, bytes | None]] = set()
    for seed in range(200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        old, new = folder / "old", folder / "new"
        old.write_bytes(b"old")
        disk = PowerCutDisk(folder)
        with disk.followed():
            write_atomically(new, b"new")
            remove(old)

        disk.cut(random.Random(seed).randrange)  # noqa: S311 - no secret

        left.add((content(old), content(new)))
    assert left == {(back, torn) for back in (None, b"old") for torn in (None, b"", b"n", b"ne", b"new")}


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


UNFINISHED = ".tmp-ours.json-0123456789ab"
STRANGERS = (
    "ours.json",
    ".tmp-theirs.json-0123456789ab",
    ".tmp-ours.json",
    ".tmp-ours.json-short",
    ".tmp-ours.json-0123456789xy",
    "tmp-ours.json-0123456789ab",
)


def laid(folder: Path) -> Path:
    for name in (UNFINISHED, *STRANGERS):
        (folder / name).touch()
    return folder


def is_ours(name: str) -> bool:
    return name == "ours.json"


def test_what_a_process_left_unfinished_is_removed_and_nothing_else(tmp_path: Path) -> None:
    assert remove_unfinished(laid(tmp_path), is_ours, lambda: False) == 0, "another may be writing"
    assert len(os.listdir(tmp_path)) == 1 + len(STRANGERS)
    assert remove_unfinished(tmp_path, is_ours, lambda: True) == 1
    assert sorted(os.listdir(tmp_path)) == sorted(STRANGERS)
    assert remove_unfinished(tmp_path / "gone", is_ours, lambda: True) == 0


def test_what_a_process_begins_while_it_is_asked_for_stays(tmp_path: Path) -> None:
    """It may have begun after it was found that nobody else lives."""

    def alone() -> bool:
        (tmp_path / ".tmp-ours.json-ffffffffffff").touch()
        return True

    assert remove_unfinished(laid(tmp_path), is_ours, alone) == 1
    assert (tmp_path / ".tmp-ours.json-ffffffffffff").exists()


def test_the_name_of_an_unfinished_file_is_known_again(tmp_path: Path) -> None:
    with PowerCutDisk(tmp_path).followed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", _end)
        patch.setattr(os, "unlink", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "ours.json", b"")
    assert remove_unfinished(tmp_path, is_ours, lambda: True) == 1


def _end(*_: object) -> None:
    raise KeyboardInterrupt
