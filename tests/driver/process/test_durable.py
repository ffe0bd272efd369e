"""A durable write leaves the old file or the new one, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driver.errors import StorageError
from driver.process.durable import remove_durably, write_durably


def test_a_file_is_replaced_whole_with_the_mode_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "entry.json"

    write_durably(path, b"old")
    write_durably(path, b"new", 0o644)

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644 & ~os.umask(os.umask(0))
    assert os.listdir(tmp_path) == ["entry.json"]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "child").touch()

    with pytest.raises(StorageError, match=r"writing .*/folder failed: .*\(retryable\)"):
        write_durably(path, b"a folder with content cannot be replaced by a file")

    assert os.listdir(tmp_path) == ["folder"]


def test_a_missing_folder_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"see that the folder .*gone exists"):
        write_durably(tmp_path / "gone" / "file", b"")


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    (tmp_path / "there").touch()

    remove_durably(tmp_path / "there")
    remove_durably(tmp_path / "there")

    assert os.listdir(tmp_path) == []


def test_a_symbolic_link_in_the_way_is_replaced_never_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(victim)

    write_durably(tmp_path / "link", b"ours")

    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "link").read_bytes() == b"ours"
