"""Each load of the NVIDIA driver within a boot is told from the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeletplugin.claims.journal.entry import driver_generation


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "module" / "nvidia").mkdir(parents=True)
    return tmp_path / "module" / "nvidia"


@contextmanager
def never_used_again(folder: Path) -> Iterator[None]:
    """Keep the folder's inode number from being given to another file, as sysfs does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_driver_that_is_loaded_anew_is_another(tmp_path: Path, module: Path) -> None:
    first = driver_generation(tmp_path)
    with never_used_again(module):
        module.rmdir()
        assert driver_generation(tmp_path) == ""
        module.mkdir()
        assert driver_generation(tmp_path) not in (first, "")


def test_a_driver_that_stays_loaded_is_the_same_whatever_is_written_below_it(
    tmp_path: Path, module: Path
) -> None:
    first = driver_generation(tmp_path)
    (module / "refcnt").write_text("1")
    os.utime(module, ns=(0, 0))
    module.chmod(0o700)
    assert driver_generation(tmp_path) == first


def test_without_a_driver_and_of_a_sysfs_that_does_not_answer_there_is_none(tmp_path: Path) -> None:
    assert driver_generation(tmp_path) == ""
    (tmp_path / "module").touch()
    assert driver_generation(tmp_path) == ""
    (tmp_path / "module").unlink()
    (tmp_path / "module").symlink_to("module")
    assert driver_generation(tmp_path) == ""
