"""Starts a cluster, if this machine has all that it needs, and leaves nothing behind when that fails."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from envtest.client import paths
from envtest.client.errors import ClusterError, MissingPrerequisite
from envtest.client.layout import MAX_NODES, state_folder
from envtest.client.waiting import wait_for
from envtest.real import build, control_plane, nodes
from envtest.real.api_server import FOLDER_PREFIX
from envtest.real.assets import find_assets
from envtest.real.cluster import RealCluster
from envtest.real.control_plane import Description
from envtest.real.image import busybox_image
from envtest.real.processes import Processes, launch
from envtest.real.slots import take_slot

# The Debian package of each program.
PROGRAMS = {
    "busybox": "busybox-static",
    "mount": "mount",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "umount": "mount",
    "unshare": "util-linux",
}
# A dynamically linked program has the path of its loader (ELF PT_INTERP) in its first page.
_LOADER_MARK = b"/ld-linux"


def start_cluster(
    node_count: int = 1,
    kubernetes: str = build.DEFAULT_KUBERNETES,
    *,
    audit: bool = False,
    gates: Sequence[str] = (),
) -> RealCluster:
    """Start a cluster and return it when all its nodes are Ready, after about six seconds.

    It ends with this process, however that ends.

    Args:
        node_count: from 1 to 4.
        kubernetes: a minor version of ``build.VERSIONS``; if its binaries are nowhere, they are
            built first, which takes minutes.
        audit: have the API server write an audit log, for ``RealCluster.audit_events``.
        gates: feature gates to turn on in the API server, the controller manager and the scheduler.

    Raises:
        MissingPrerequisite: this machine lacks something.
        BuildFailed: the binaries could not be built.
        NotReady: a component did not come up.
        ClusterError: the path of the temporary folder is too long, or no slot is free.
    """
    if not 1 <= node_count <= MAX_NODES:
        raise ClusterError(f"a cluster has 1 to {MAX_NODES} nodes, not {node_count}")
    check_machine()
    assets = find_assets(kubernetes)
    # mkdtemp makes a folder that only root can enter.
    layout = state_folder(Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)))
    slot, slot_lock = take_slot()
    try:
        processes = launch(layout, slot, slot_lock, assets.folder)
    except BaseException:
        shutil.rmtree(layout.folder)
        raise
    finally:
        # The supervisor holds the lock from now on, or nobody does.
        os.close(slot_lock)
    try:
        users = control_plane.make_users(node_count)
        described = Description(layout, slot, assets, users, node_count, audit, tuple(gates))
        return _bring_up(described, processes)
    except BaseException:
        processes.shutdown()
        raise


def _bring_up(described: Description, processes: Processes) -> RealCluster:
    """Start all components, those that can at the same time, and wait for the nodes."""
    control_plane.write_files(described)
    control_plane.start_etcd(processes, described)
    control_plane.start_api_server(processes, described)
    for index, node in enumerate(described.nodes):
        nodes.write_files(described, index)
        nodes.make_mount_namespace(processes, node)
        nodes.start_containerd(processes, described, node)
    archive = described.layout.folder / "busybox.tar"
    archive.write_bytes(busybox_image())
    for node in described.nodes:
        nodes.import_image(processes, described, node, archive)
    cluster = RealCluster(described, processes)
    # They end where they cannot reach the API server; RealCluster has waited for it.
    control_plane.start_controllers(processes, described)
    for node in described.nodes:
        nodes.start_kubelet(processes, described, node)
    for node in described.nodes:
        nodes.wait_kubelet(processes, cluster.api, node)
    # Pods are refused before their service account is there.
    wait_for(cluster.api, paths.service_account("default"), lambda _: True)
    return cluster


def check_machine(
    effective_uid: int | None = None, which: Callable[[str], str | None] = shutil.which
) -> None:
    """Check that a cluster can run here.

    Args:
        effective_uid: the user to check for; this process's unless given.
        which: finds a program on the PATH.

    Raises:
        MissingPrerequisite: names everything that is missing.
    """
    if (os.geteuid() if effective_uid is None else effective_uid) != 0:
        raise MissingPrerequisite("a real cluster needs root (mounts, namespaces, cgroups): run this as root")
    missing = {name: package for name, package in PROGRAMS.items() if which(name) is None}
    busybox = which("busybox")
    if busybox is not None and needs_loader(Path(busybox)):
        missing["a static busybox"] = "busybox-static"
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise MissingPrerequisite(
            f"a real cluster needs {', '.join(sorted(missing))}: apt-get install {packages}"
        )


def needs_loader(program: Path) -> bool:
    """Whether a program is linked dynamically, so that it cannot run alone in an image."""
    with program.open("rb") as file:
        return _LOADER_MARK in file.read(4096)
