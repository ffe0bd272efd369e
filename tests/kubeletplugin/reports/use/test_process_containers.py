"""A process is found in its container by its control group, whoever manages these."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.reports.use.node_use import (
    LINKS,
    ContainerGroup,
    ProcessContainers,
    container_of,
)

UID = "0f0a1c2e-1111-4222-8333-abcdefabcdef"
SLICE_UID = UID.replace("-", "_")
ID, OTHER = "a1" * 32, "b2" * 32
IN_KUBEPODS = f"kubepods-burstable-pod{SLICE_UID}.slice"


@pytest.mark.parametrize(
    "told",
    [
        f"0::/kubepods.slice/kubepods-burstable.slice/{IN_KUBEPODS}/cri-containerd-{ID}.scope\n",
        f"0::/kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope\n",
        f"0::/kubepods/besteffort/pod{UID}/{ID}\n",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice/docker-{ID}.scope",
        f"0::/../../{IN_KUBEPODS}/cri-containerd-{ID}.scope\n",
        f"0::/kubepods/pod{UID}/{ID}/init.scope\n",
        f"0::/kubepods/pod{UID}/{ID}/pod{UID}/{OTHER}\n",
        f"12:pids:/kubepods/pod{UID}/{ID}\n1:name=systemd:/kubepods/pod{UID}/{ID}\n0::/system.slice\n",
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice/{ID}\n",
    ],
)
def test_a_container_is_told_by_its_group(told: str) -> None:
    assert container_of(told) == ContainerGroup(UID, ID)


@pytest.mark.parametrize(
    "told",
    [
        "",
        "0::/\n",
        "0::/system.slice/nvidia-persistenced.service\n",
        f"0::/kubepods/pod{UID}\n",
        f"0::/kubepods/pod{UID}/{ID[:-1]}\n",
        f"0::/user.slice/{ID}.scope\n",
        f"0::/kubepods/podevil/{ID}\n",
    ],
)
def test_what_is_no_container_of_a_pod_is_none(told: str) -> None:
    assert container_of(told) is None


class Host:
    """The files of a node that are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        (root / LINKS).mkdir(parents=True)

    def process(self, pid: int, group: str) -> None:
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(f"0::{group}\n")

    def link(self, name: str) -> None:
        (self.root / LINKS / name).symlink_to("/var/log/pods/gone")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_names_come_from_the_kubelets_links_and_none_is_followed(host: Host) -> None:
    host.process(7, f"/kubepods/pod{UID}/{ID}")
    host.process(8, "/system.slice/cron.service")
    host.link(f"train-0_team_main-{ID}.log")
    host.link("something else")

    found = ProcessContainers(host.proc, host.root).of([7, 8, 9])

    assert found == {7: ContainerName("team", "train-0", "main"), 8: None}


def test_a_container_without_a_link_is_not_known_and_looked_for_again(host: Host) -> None:
    host.process(7, f"/kubepods/pod{UID}/{ID}")
    containers = ProcessContainers(host.proc, host.root)
    assert containers.of([7]) == {}

    host.link(f"train-0_team_main-{ID}.log")
    assert containers.of([7]) == {7: ContainerName("team", "train-0", "main")}


def test_where_the_hosts_root_is_not_seen_no_container_has_a_name(host: Host) -> None:
    host.process(7, f"/kubepods/pod{UID}/{ID}")
    host.process(8, "/system.slice/cron.service")
    assert ProcessContainers(host.proc, host.root / "elsewhere").of([7, 8]) == {8: None}
