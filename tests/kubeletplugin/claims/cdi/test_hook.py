"""A hook is asked what it knows, and where it comes from is read from the flag."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from driver.errors import ConfigError, NodeIncomplete
from kubeletplugin.claims.cdi.hook import CACHE, CUDA_COMPAT, LINKS, NO_NODES, PROFILE, HookSource, asked_hook
from tests import needs
from tests.kubeletplugin.claims.cdi.fake_hook import ALL, hook_program


def test_a_hook_knows_what_its_help_names(tmp_path: Path) -> None:
    newest = hook_program(tmp_path / "newest")
    older = hook_program(tmp_path / "older", ("update-ldcache", "create-symlinks", "chmod"))

    assert asked_hook(newest, "/on/host").calls == {LINKS, CUDA_COMPAT, CACHE, NO_NODES, PROFILE}
    assert asked_hook(newest, "/on/host").path == "/on/host"
    assert asked_hook(older, "/on/host").calls == {LINKS, CACHE}, "what it says of a call is no call"


@pytest.mark.parametrize("calls", [(), tuple(call for call in ALL if call != "create-symlinks")])
def test_what_lacks_the_oldest_calls_is_no_hook(tmp_path: Path, calls: tuple[str, ...]) -> None:
    program = hook_program(tmp_path / "hook", calls)

    with pytest.raises(NodeIncomplete, match="is not a usable nvidia-cdi-hook; its --help says: COMMANDS:"):
        asked_hook(program, "/on/host")


def test_a_file_that_cannot_be_run_is_said_to_be_so(tmp_path: Path) -> None:
    hook_program(tmp_path / "hook").chmod(0o644)

    with pytest.raises(NodeIncomplete, match=r"cannot run .*hook: Permission denied"):
        asked_hook(tmp_path / "hook", "/on/host")


@needs.MOUNTS
def test_a_folder_that_is_mounted_noexec_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", folder], check=True)
    try:
        with pytest.raises(NodeIncomplete, match=r"file system is mounted noexec: .* --cdi-hook"):
            asked_hook(hook_program(folder / "hook"), "/on/host")
    finally:
        subprocess.run(["umount", folder], check=True)


def test_the_flag_names_a_file_to_copy_or_a_path_of_the_host(tmp_path: Path) -> None:
    program = hook_program(tmp_path / "hook")

    assert HookSource.from_flag(f"copy:{program}") == HookSource(program)
    assert HookSource.from_flag("/opt/nvidia-cdi-hook") == HookSource(on_host="/opt/nvidia-cdi-hook")
    assert HookSource.from_flag("copy") == HookSource(), "no image is around the tests"


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("copy:/nowhere", "the file /nowhere does not exist"),
        ("copy:here", "is not an absolute path"),
        ("nvidia-cdi-hook", "is not an absolute path: give copy, copy:FILE, or the path"),
        ("", "is not an absolute path"),
    ],
)
def test_a_flag_that_names_none_is_refused(flag: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HookSource.from_flag(flag)
