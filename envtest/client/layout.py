"""Where a cluster keeps its files: one short folder with a subfolder for each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envtest.client.errors import ClusterError

MAX_NODES = 4
# A unix socket address has 108 bytes, the last of which is zero.
MAX_SOCKET_PATH_BYTES = 107
# The longest of the paths that a driver binds below the folder of a cluster.
LONGEST_SOCKET = "node-0/kubelet/plugins_registry/gpu.nvidia.com-reg.sock"


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The folder of one node, and the folders and sockets in it."""

    name: str
    folder: Path

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's root folder (``--root-dir``)."""
        return self.folder / "kubelet"

    @property
    def plugins_dir(self) -> Path:
        """Where kubelet plugins keep their service sockets and data."""
        return self.kubelet_dir / "plugins"

    @property
    def registry_dir(self) -> Path:
        """Where kubelet plugins put their registration sockets."""
        return self.kubelet_dir / "plugins_registry"

    @property
    def cdi_dir(self) -> Path:
        """Where containerd looks for CDI specs; the only such folder of this node."""
        return self.folder / "cdi"

    @property
    def cgroup_dir(self) -> Path:
        """The folders that the embedded runtime makes in place of control groups."""
        return self.folder / "cgroup"

    @property
    def containerd_socket(self) -> Path:
        """The socket of this node's containerd (CRI and containerd's own API)."""
        return self.folder / "containerd.sock"

    @property
    def cni_dir(self) -> Path:
        """The CNI configuration of this node."""
        return self.folder / "cni"

    def host_path(self, path: str) -> Path:
        """The path on this machine of what a node of a real cluster sees below /run or /var/lib/kubelet.

        Pods get it with a hostPath volume of ``path``, which is absolute; /var/run is /run.
        """
        seen = Path(path)
        # A symbolic link to /run on a real node.
        if seen.is_relative_to("/var/run"):
            seen = Path("/run") / seen.relative_to("/var/run")
        for place, folder in (("/var/lib/kubelet", self.kubelet_dir), ("/run/cdi", self.cdi_dir)):
            if seen.is_relative_to(place):
                return folder / seen.relative_to(place)
        return self.folder / "machine" / seen.relative_to("/")


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The state folder of a cluster."""

    folder: Path

    def node(self, index: int) -> NodeLayout:
        """The folder of the node with this index, counted from 0."""
        return NodeLayout(f"node-{index}", self.folder / f"node-{index}")

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a user."""
        return self.folder / f"{user}.kubeconfig"

    def log(self, process: str) -> Path:
        """The log (stdout and stderr) of a process."""
        return self.logs / f"{process}.log"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.folder / "logs"

    @property
    def supervisor_socket(self) -> Path:
        """Where the supervisor takes requests."""
        return self.folder / "supervisor.sock"

    @property
    def etcd_socket(self) -> Path:
        """Where etcd takes requests, without asking who sends them."""
        return self.folder / "etcd.sock"

    @property
    def tokens(self) -> Path:
        """The static tokens that the API server knows (CSV)."""
        return self.folder / "tokens.csv"

    @property
    def pki(self) -> Path:
        """The API server's serving certificate."""
        return self.folder / "pki"

    @property
    def authority(self) -> Path:
        """The certificate that clients of the API server trust."""
        return self.pki / "apiserver.crt"

    @property
    def private_mounts(self) -> Path:
        """What replaces folders of the machine inside the cluster's mount namespace."""
        return self.folder / "machine"


def state_folder(folder: Path) -> ClusterLayout:
    """The layout in ``folder``, an absolute path short enough for all sockets in it.

    Raises:
        ClusterError: the path is too long.
    """
    resolved = folder.resolve()
    room = MAX_SOCKET_PATH_BYTES - len(LONGEST_SOCKET) - 1
    if len(str(resolved).encode()) > room:
        raise ClusterError(
            f"the folder {resolved} is too long for the unix sockets in it: choose one (or a "
            f"TMPDIR) whose path has at most {room} bytes"
        )
    return ClusterLayout(resolved)


def user_cache(environment: Mapping[str, str]) -> Path:
    """The folder for the caches of this project (XDG base directory specification); it may not be there."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home(), ".cache")
    return Path(base, "gpu-dra")
