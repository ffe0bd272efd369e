"""Renders the configuration files of a cluster's components; pure, from values to text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envtest.client.layout import NodeLayout
from envtest.real.slots import Slot

IMAGE = "localhost/busybox:1"


@dataclass(frozen=True, slots=True)
class User:
    """A user that the API server knows by a static token, with at most one group."""

    name: str
    token: str
    group: str = ""


def tokens_csv(users: Mapping[str, User]) -> str:
    """The API server's ``--token-auth-file``: token, user, UID and group of each user."""
    rows = []
    for key, user in users.items():
        fields = [user.token, user.name, key, *([user.group] if user.group else [])]
        rows.append(",".join(fields))
    return "\n".join(rows) + "\n"


def kubeconfig(server: str, authority: Path, token: str) -> str:
    """A kubeconfig (JSON) that trusts ``authority`` and shows a bearer token."""
    cluster = {"server": server, "certificate-authority": str(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "cluster",
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
        },
        indent=1,
    )


def scheduler_configuration(kubeconfig_path: Path) -> str:
    """The scheduler's configuration (JSON).

    Its client may send as much as it likes: the default limit of 50 requests a second would hide
    what the driver costs when many pods start.
    """
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig_path), "qps": 1000, "burst": 2000},
        }
    )


def audit_policy() -> str:
    """An audit policy (JSON) that logs each request once it is answered: user, verb and object.

    For writes of ResourceSlices it logs the body as well.
    """
    slices = {"group": "resource.k8s.io", "resources": ["resourceslices"]}
    return json.dumps(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            # One event for each request, not a second one at its beginning.
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Request", "resources": [slices], "verbs": ["create", "update", "patch"]},
                {"level": "Metadata"},
            ],
        }
    )


def kubelet_configuration(node: NodeLayout, index: int, slot: Slot, client_authority: Path) -> str:
    """The kubelet's configuration (JSON) of the node with this index.

    It takes the machine as it is: full disks, swap and cgroup v1 are ignored, and iptables stay untouched.
    """
    # No eviction for lack of memory or disk.
    plenty = {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"}
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(client_authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            # The kubelet kills processes of pods that it does not know in its cgroup root: two kubelets need
            # two.
            "cgroupRoot": f"/{slot.cgroup(index)}",
            "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
            # No limits on the cgroup of all pods.
            "enforceNodeAllocatable": [],
            "evictionHard": plenty,
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "imageGCHighThresholdPercent": 100,
            # Off, since the kubelet cannot measure the use of every root file system.
            "localStorageCapacityIsolation": False,
            "logging": {"verbosity": 3},
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(node.folder / "pod-logs"),
            "port": slot.kubelet_port(index),
            "readOnlyPort": 0,
            # Pods have no DNS.
            "resolvConf": "",
            "volumePluginDir": str(node.folder / "volume-plugins"),
        },
        indent=1,
    )


def cni_configuration(node: NodeLayout, index: int, slot: Slot) -> str:
    """The CNI network list (JSON) of a node: a veth pair for each pod, addresses from its subnet.

    Pods reach this machine, and so the API server, but nothing beyond it: there is no address translation.
    """
    ranges = [[{"subnet": str(slot.pod_subnet(index))}]]
    routes = [{"dst": "0.0.0.0/0"}]
    files = str(node.folder / "addresses")
    addresses = {"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": files}
    plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})


def containerd_configuration(node: NodeLayout, binaries: Path) -> str:
    """containerd's configuration (TOML) with CDI on and nothing outside the node's folder.

    NRI is off: its socket has one fixed path, which only one containerd of a machine can have. With
    ``restrict_oom_score_adj`` containerd does not ask for a lower OOM score than its own, which takes
    CAP_SYS_RESOURCE.
    """
    return f"""\
version = 3
root = "{node.folder}/containerd"
state = "{node.folder}/run"

[grpc]
  address = "{node.containerd_socket}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["{node.cdi_dir}"]
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{binaries}"]
  conf_dir = "{node.cni_dir}"

[plugins."io.containerd.nri.v1.nri"]
  disable = true
"""
