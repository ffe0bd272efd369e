"""Gives each node of a cluster a mount namespace of its own, in which it has the folders of a real node.

Below ``/var/lib/kubelet`` and ``/run`` every node of a real cluster finds files of its own. Here all nodes
are on one machine, where what a DaemonSet installs at the same paths would meet. In its namespace a node has
its own folders at these paths; they stay what they are below the node's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envtest.client.layout import NodeLayout
from envtest.client.readiness import wait_until
from envtest.real.processes import Processes

_MOUNTED = "mounted"
# The folders first, each with the place where the node sees it; mounts of both sides are seen on the other.
_HOLD = """
marker=$1
shift
while [ $# -gt 0 ]; do
    mount --bind "$1" "$2"
    shift 2
done
: > "$marker"
exec sleep infinity
"""


def holder_name(node: NodeLayout) -> str:
    """The name of the process that holds a node's mount namespace, among the cluster's processes."""
    return f"mounts-{node.name}"


def folders(node: NodeLayout) -> tuple[tuple[Path, Path], ...]:
    """The folders of a node, each with the path at which the node sees it, the outer ones first."""
    run = node.host_path("/run")
    return (
        (node.kubelet_dir, Path("/var/lib/kubelet")),
        (run, Path("/run")),
        (node.cdi_dir, Path("/run/cdi")),
    )


def hold(processes: Processes, node: NodeLayout) -> None:
    """Make the mount namespace of a node, and the process that keeps it until the cluster ends.

    Raises:
        NotReady: a folder could not be mounted.
    """
    pairs = folders(node)
    for folder, _ in pairs:
        folder.mkdir(parents=True, exist_ok=True)
    (node.host_path("/run") / "cdi").mkdir(exist_ok=True)
    marker = node.folder / _MOUNTED
    words = [str(word) for pair in pairs for word in pair]
    namespace = ["unshare", "--mount", "--propagation", "unchanged", "--"]
    name = holder_name(node)
    processes.start(name, [*namespace, "sh", "-ec", _HOLD, "sh", str(marker), *words])
    wait_until([name], processes, lambda: marker.exists() or None)


def within(processes: Processes, node: NodeLayout, command: Sequence[str | Path]) -> list[str]:
    """The command line that becomes a command in the mount namespace of a node."""
    pid = processes.cluster_pid(holder_name(node))
    return ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--", *map(str, command)]
