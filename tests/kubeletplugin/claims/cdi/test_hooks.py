"""The copied hook is used, else the host's that a flag names, else that of the driver root."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletplugin.claims.cdi.hook import NO_HOOK, OLDEST_CALLS, Hook, HookSource
from kubeletplugin.claims.cdi.hooks import Hooks, hooks_folder
from kubeletplugin.claims.cdi.spec import HostPaths
from kubeletplugin.devices.host.driver_files import DriverFiles
from tests.kubeletplugin.claims.cdi.fake_hook import hook_program

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


def test_the_copy_is_used_with_all_that_it_knows(node: Node) -> None:
    hook = node.hooks(HookSource(node.image)).of(FILES, node.host)

    assert hook is not None
    assert Path(hook.path).parent.parent == hooks_folder(node.data)
    assert len(hook.calls) == 5


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
