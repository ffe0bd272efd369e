"""The copy of the hook on the host is whole, as the image's, and stays for as long as a spec names it."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from driver.errors import StorageError
from kubeletplugin.claims.cdi.hooks import HookCopies, hooks_folder
from kubeletplugin.claims.cdi.spec import MEMORY_HOOK
from kubeletplugin.devices.host.driver_files import HOOK
from tests.kubeletplugin.claims.cdi.fake_hook import hook_program


def nobody(_text: str) -> bool:
    """No spec names a copy."""
    return False


def copies(folder: Path, version: str, alone: Callable[[], bool] = lambda: True) -> HookCopies:
    """Those of an instance whose image has this version."""
    (folder / "data").mkdir(exist_ok=True)
    return HookCopies(
        folder / "data", {HOOK: hook_program(folder / version / "hook", version=version)}, alone
    )


def versions(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in hooks_folder(folder / "data").iterdir())


def test_the_copy_lies_in_a_folder_of_its_version_and_can_be_run_by_all(tmp_path: Path) -> None:
    copy = copies(tmp_path, "1.20.1").install() / HOOK

    assert copy.read_bytes() == (tmp_path / "1.20.1/hook").read_bytes()
    assert (copy.name, versions(tmp_path)) == ("nvidia-cdi-hook", ["1.20.1"])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (copy, copy.parent, copy.parent.parent)}
    assert modes == {0o755}


def test_a_start_leaves_a_good_copy_and_replaces_any_other(tmp_path: Path) -> None:
    own = copies(tmp_path, "1.20.1")
    copy = own.install() / HOOK
    first = copy.stat().st_ino

    assert (own.install() / HOOK).stat().st_ino == first
    copy.write_bytes(copy.read_bytes()[:-10])  # what a power cut leaves, or somebody
    assert (own.install() / HOOK).read_bytes() == (tmp_path / "1.20.1/hook").read_bytes()
    copy.chmod(0o600)
    assert stat.S_IMODE((own.install() / HOOK).stat().st_mode) == 0o755


@pytest.mark.parametrize("version", ["../../etc", "a/b", "", "-rf", "x" * 80], ids=repr)
def test_a_version_that_is_none_does_not_become_a_path(tmp_path: Path, version: str) -> None:
    own = copies(tmp_path, "1")
    (tmp_path / "1/hook.version").write_text(version)

    own.install()

    assert versions(tmp_path) == ["unknown"]


def test_an_older_copy_stays_for_as_long_as_a_spec_names_it(tmp_path: Path) -> None:
    older = copies(tmp_path, "1.18.0").install() / HOOK
    own = copies(tmp_path, "1.20.1")
    own.install()

    assert own.tidy(lambda text: text in str(older)) == ()
    assert versions(tmp_path) == ["1.18.0", "1.20.1"]
    assert own.tidy(nobody) == (older.parent.name,)
    assert versions(tmp_path) == ["1.20.1"]


def test_nothing_is_removed_while_another_instance_lives(tmp_path: Path) -> None:
    copies(tmp_path, "1.18.0").install()
    own = copies(tmp_path, "1.20.1", alone=lambda: False)
    own.install()

    assert own.tidy(nobody) == ()
    assert versions(tmp_path) == ["1.18.0", "1.20.1"]


def test_a_copy_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    own = copies(tmp_path, "1.20.1")
    copy = own.install() / HOOK
    shutil.rmtree(hooks_folder(tmp_path / "data"))

    own.tidy(nobody)

    assert copy.is_file()


def test_what_an_interrupted_copy_left_is_removed(tmp_path: Path) -> None:
    own = copies(tmp_path, "1.20.1")
    copy = own.install() / HOOK
    litter = copy.with_name(".tmp-nvidia-cdi-hook-0123456789ab")
    litter.touch()

    own.tidy(nobody)

    assert sorted(copy.parent.iterdir()) == [copy]


def test_programs_of_one_image_lie_in_one_folder_and_another_content_of_either_is_another(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    sources = {HOOK: hook_program(tmp_path / "image/hook"), MEMORY_HOOK: tmp_path / "image/memory"}
    sources[MEMORY_HOOK].write_bytes(b"first")
    own = HookCopies(tmp_path / "data", sources, lambda: True)
    first = own.install()

    assert sorted(path.name for path in first.iterdir()) == [MEMORY_HOOK, HOOK]
    assert {stat.S_IMODE(path.stat().st_mode) for path in first.iterdir()} == {0o755}
    sources[MEMORY_HOOK].write_bytes(b"second")
    second = HookCopies(tmp_path / "data", sources, lambda: True).install()
    assert first != second
    assert [(folder / MEMORY_HOOK).read_bytes() for folder in (first, second)] == [b"first", b"second"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    own = copies(tmp_path, "1.20.1")
    hooks_folder(tmp_path / "data").touch()  # a file is in the way

    with pytest.raises(StorageError, match=r"cannot be copied to .*/hook: .* make --plugins-dir writable"):
        own.install()
