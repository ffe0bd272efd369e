"""Brings up a node of a cluster: its mount namespace, containerd with the test image, and the kubelet.

On a real node, ``/var/lib/kubelet`` and ``/run`` are its own. Here all nodes are on one machine, and the pods
of a DaemonSet would share these paths. So each node has a mount namespace, in which its own folders are
mounted there.
"""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Sequence
from pathlib import Path

from envtest.client import paths
from envtest.client.api import ApiClient, Object
from envtest.client.errors import ApiRefused, CommandFailed
from envtest.client.layout import NodeLayout
from envtest.client.waiting import wait_until
from envtest.real import cgroups, commands, render
from envtest.real.containers import ctr
from envtest.real.control_plane import Description
from envtest.real.processes import Processes

_MOUNTED = "mounted"
# Gets a marker file, then pairs of a folder and the path to mount it at. sleep keeps the namespace alive: the
# kernel removes one that no process is in.
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


def containerd_name(node: NodeLayout) -> str:
    """The name of a node's containerd among the cluster's processes."""
    return f"containerd-{node.name}"


def kubelet_name(node: NodeLayout) -> str:
    """The name of a node's kubelet among the cluster's processes."""
    return f"kubelet-{node.name}"


def write_files(description: Description, index: int) -> None:
    """Make the folders, configuration and control groups of the node with this index."""
    node, slot = description.layout.node(index), description.slot
    for folder in (node.plugins_dir, node.registry_dir, node.cdi_dir, node.cni_dir):
        folder.mkdir(parents=True)
    cni = render.cni_configuration(node, index, slot)
    (node.cni_dir / "10-pods.conflist").write_text(cni)
    containerd = render.containerd_configuration(node, description.assets.folder)
    (node.folder / "containerd.toml").write_text(containerd)
    authority = description.layout.folder / "kubelet-client.crt"
    kubelet = render.kubelet_configuration(node, index, slot, authority)
    (node.folder / "kubelet.json").write_text(kubelet)
    # The kubelet does not start without its cgroup root.
    cgroups.make(slot.cgroup(index))


def start_containerd(processes: Processes, description: Description, node: NodeLayout) -> None:
    """Start the containerd of a node."""
    binary = description.assets.binary("containerd")
    command = within(processes, node, [binary, *commands.containerd(node)])
    processes.start(containerd_name(node), command)


def import_image(processes: Processes, description: Description, node: NodeLayout, archive: Path) -> None:
    """Load an image archive into a node's containerd, once that answers.

    Raises:
        NotReady: containerd ended or did not take it in time.
    """
    command = [*ctr(description.assets, node), "images", "import", str(archive)]

    def imported() -> bool | None:
        if not node.containerd_socket.exists():
            return None
        done = subprocess.run(command, capture_output=True, check=False)
        return True if done.returncode == 0 else None

    wait_until([containerd_name(node)], processes, imported)


def tag_image(description: Description, node: NodeLayout, image: str, name: str) -> None:
    """Give an image of a node another name beside its own.

    Raises:
        CommandFailed: there is no such image.
    """
    command = [*ctr(description.assets, node), "images", "tag", "--force", image, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"tagging {image} on {node.name}", done.returncode, done.stdout, done.stderr)


def start_kubelet(processes: Processes, description: Description, node: NodeLayout) -> None:
    """Start the kubelet of a node."""
    arguments = commands.kubelet(description.layout, node)
    command: list[str | Path] = [description.assets.binary("kubelet"), *arguments]
    processes.start(kubelet_name(node), within(processes, node, command))


def wait_kubelet(processes: Processes, api: ApiClient, node: NodeLayout) -> None:
    """Wait until a kubelet serves and its node is Ready.

    Raises:
        NotReady: it ended, or did not get there in time.
    """

    def ready() -> bool | None:
        try:
            if api.text(f"{paths.node(node.name)}/proxy/healthz") != "ok":
                return None
            return True if is_ready(api.get(paths.node(node.name))) else None
        except ApiRefused as error:
            # The kubelet has not registered its node yet, or does not serve yet: then the API server, which
            # passes the request on to it, answers 5xx.
            if error.status in (http.client.NOT_FOUND, *range(500, 600)):
                return None
            raise

    wait_until([kubelet_name(node), containerd_name(node)], processes, ready)


def is_ready(node: Object) -> bool:
    """Whether a Node object says that it takes pods."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _holder_name(node: NodeLayout) -> str:
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


def make_mount_namespace(processes: Processes, node: NodeLayout) -> None:
    """Make the mount namespace of a node, and a process that keeps it until the cluster ends.

    Raises:
        NotReady: a folder could not be mounted.
    """
    pairs = folders(node)
    for folder, _ in pairs:
        folder.mkdir(parents=True, exist_ok=True)
    (node.host_path("/run") / "cdi").mkdir(exist_ok=True)
    marker = node.folder / _MOUNTED
    words = [str(word) for pair in pairs for word in pair]
    # unchanged: what a container or a plugin mounts with Bidirectional propagation stays visible outside.
    namespace = ["unshare", "--mount", "--propagation", "unchanged", "--"]
    name = _holder_name(node)
    processes.start(name, [*namespace, "sh", "-ec", _HOLD, "sh", str(marker), *words])
    # Only now are all folders mounted.
    wait_until([name], processes, lambda: marker.exists() or None)


def within(processes: Processes, node: NodeLayout, command: Sequence[str | Path]) -> list[str]:
    """The command line that runs a command in the mount namespace of a node."""
    pid = processes.cluster_pid(_holder_name(node))
    return ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--", *map(str, command)]
