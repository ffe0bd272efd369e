"""Every node has its own folders at the paths that all nodes of a real cluster have."""

from __future__ import annotations

from pathlib import Path

from envtest.client.layout import NodeLayout
from envtest.real.nodes import folders


def test_what_a_node_sees_at_a_path_lies_in_its_own_folder() -> None:
    node = NodeLayout("node-1", Path("/tmp/k/node-1"))

    assert node.host_path("/var/lib/kubelet/plugins") == node.plugins_dir
    assert node.host_path("/run/cdi/one.json") == node.cdi_dir / "one.json"
    assert node.host_path("/var/run/cdi") == node.cdi_dir
    assert node.host_path("/run/nvidia/driver").is_relative_to(node.folder)


def test_the_folders_are_mounted_where_the_node_looks_for_them() -> None:
    node = NodeLayout("node-1", Path("/tmp/k/node-1"))

    for folder, seen in folders(node):
        assert node.host_path(str(seen)) == folder
