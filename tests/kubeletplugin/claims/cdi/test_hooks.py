"""The copied hook is used, else the host's that a flag names, else that of the driver root."""

import subprocess
from pathlib import Path

import pytest

from kubeletplugin.claims.cdi.hook import CACHE, CUDA_COMPAT, LINKS, OLDEST_CALLS, PROFILE, asked_hook
from kubeletplugin.claims.cdi.hooks import Hooks
from tests import needs
from tests.gpus import ConfigError, NodeIncomplete
from tests.kubeletplugin.claims.cdi.fake_hook import ALL, hook_program
from tests.plugin import NO_HOOK, NO_NODES, DriverFiles, Hook, HookSource, HostPaths, hooks_folder

FILES = DriverFiles("580.65.06", hook="/usr/bin/nvidia-cdi-hook")


class Node:
    """A driver root with an old hook, and the plugin's folder."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.root = folder / "driver"
        self.host = HostPaths(self.root, Path("/run/nvidia/driver"))
        self.host_root = folder / "host"
        self.image = hook_program(folder / "image/hook")
        hook_program(self.root / "usr/bin/nvidia-cdi-hook", tuple(sorted(OLDEST_CALLS)))

    def hooks(self, source: HookSource) -> Hooks:
        """What an instance of the plugin has once it has started."""
        hooks = Hooks(source, self.data, lambda: True, self.host_root)
        hooks.install()
        return hooks


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_without_a_copy_that_of_the_driver_root_is_used_by_the_hosts_path(node: Node) -> None:
    hooks = node.hooks(NO_HOOK)

    assert hooks.of(FILES, node.host) == Hook("/run/nvidia/driver/usr/bin/nvidia-cdi-hook", OLDEST_CALLS)
    assert hooks.of(FILES, node.host) is hooks.of(FILES, node.host), "it is asked once"
    assert hooks.of(DriverFiles("580.65.06"), node.host) is None


def test_a_path_of_the_host_that_is_not_seen_from_here_gets_the_oldest_calls(node: Node) -> None:
    assert node.hooks(HookSource(on_host="/opt/hook")).of(FILES, node.host) == Hook("/opt/hook", OLDEST_CALLS)


def test_a_path_of_the_host_that_is_seen_is_asked(node: Node) -> None:
    hook_program(node.host_root / "opt/hook")
    hook = node.hooks(HookSource(on_host="/opt/hook")).of(FILES, node.host)

    assert hook is not None
    assert (hook.path, len(hook.calls)) == ("/opt/hook", 5)


def test_where_the_copy_cannot_be_made_the_driver_roots_serves_until_it_can(node: Node) -> None:
    hooks_folder(node.data).touch()  # a file is in the way
    hooks = node.hooks(HookSource(node.image))
    assert hooks.of(FILES, node.host) == Hook("/run/nvidia/driver/usr/bin/nvidia-cdi-hook", OLDEST_CALLS)

    hooks_folder(node.data).unlink()
    hooks.keep(lambda _text: True)

    hook = hooks.of(FILES, node.host)
    assert hook is not None
    assert Path(hook.path).is_file()


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
