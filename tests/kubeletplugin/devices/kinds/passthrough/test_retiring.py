"""A node from which the driver is taken away has its GPUs back, but not while a virtual machine runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletplugin.retire import Left, NotRetired, retire
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode


def test_gpus_come_back_from_vfio_before_the_plugin_is_taken_away(tmp_path: Path) -> None:
    data = tmp_path / "plugins" / "gpu.nvidia.com"
    data.mkdir(parents=True)
    node = PassthroughNode(data)
    node.cdi = tmp_path / "cdi"
    node.cdi.mkdir()
    node.restart()
    left = Left(data, tmp_path / "registry", tmp_path / "mps")
    left.registry.mkdir()
    claim = node.vm("vm", 1)
    node.prepare(claim)
    running = node.machine.open_function(node.gpus[1])
    del node.api[claim.namespace, claim.name]
    parts = node.instance()
    node.leave()

    with pytest.raises(NotRetired, match="still holds devices for team/vm"):
        retire(parts, node.mps, left)
    assert node.changed()
    running.release()
    node.machine.settle()
    # Its own fake node lies in the folder that goes, so what comes after the GPUs is not looked at.
    parts.reconciler.finish_releases()

    assert node.changed() == {}
    parts.peers.close()
    node.stop()
