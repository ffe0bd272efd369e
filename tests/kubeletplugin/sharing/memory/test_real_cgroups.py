"""The control group of a container is the one that the kernel names, and it is known again."""

from pathlib import Path

import pytest

from kubeletplugin.sharing.memory.cgroups import RealCgroups
from tests.gpus import Cgroup, ClaimBlocked, ClaimRefused

SYSTEMD = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"
CGROUPFS = "/kubepods/burstable/pod1/abc"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where cgroup v2 is mounted."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    return tmp_path


def made(root: Path, path: str, populated: int = 1) -> Path:
    folder = root / path.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    return folder


@pytest.mark.parametrize("path", [SYSTEMD, CGROUPFS, f"{CGROUPFS}/inner"])
def test_the_group_of_either_driver_is_found(root: Path, path: str) -> None:
    folder = made(root, path)
    group = RealCgroups(root).of_process(f"0::{path}\n")
    assert group == Cgroup(f"/sys/fs/cgroup{path}", folder.stat().st_ino)
    assert RealCgroups(root).is_there(group)


def test_controllers_of_v1_beside_it_are_passed_over(root: Path) -> None:
    made(root, CGROUPFS)
    told = f"12:misc:/elsewhere\n1:name=systemd:/there\n0::{CGROUPFS}\n"
    assert RealCgroups(root).of_process(told).path == f"/sys/fs/cgroup{CGROUPFS}"


@pytest.mark.parametrize("told", ["11:memory:/kubepods/a\n", f"0::{CGROUPFS}\n"])
def test_a_node_with_cgroup_v1_is_refused_by_name(tmp_path: Path, told: str) -> None:
    made(tmp_path, CGROUPFS)
    with pytest.raises(ClaimRefused, match="the node has cgroup v1") as refused:
        RealCgroups(tmp_path).of_process(told)
    assert "systemd.unified_cgroup_hierarchy=1" in refused.value.way_out


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("", "has no control group of cgroup v2"),
        ("0::/gone\n", "the control group /gone is gone"),
        (f"0::{CGROUPFS} (deleted)\n", "has no control group of cgroup v2"),
        ("0::/\n", "is in the root"),
        ("0::/../../kubepods/a\n", "is outside of what the hook can see"),
        ("0::kubepods\n", "has no control group of cgroup v2"),
    ],
)
def test_a_container_without_a_group_of_its_own_waits(root: Path, told: str, reason: str) -> None:
    made(root, CGROUPFS)
    with pytest.raises(ClaimBlocked, match=reason):
        RealCgroups(root).of_process(told)


def test_a_group_is_gone_with_its_folder(root: Path) -> None:
    folder = made(root, CGROUPFS)
    cgroups = RealCgroups(root)
    group = cgroups.of_process(f"0::{CGROUPFS}")
    (folder / "cgroup.events").unlink()
    assert cgroups.is_there(group), "what it does not tell is no reason to believe that it has ended"
    folder.rmdir()
    assert not cgroups.is_there(group)


def test_a_later_group_at_the_same_path_is_another(root: Path) -> None:
    folder = made(root, CGROUPFS)
    assert not RealCgroups(root).is_there(Cgroup(f"/sys/fs/cgroup{CGROUPFS}", folder.stat().st_ino + 1))


def test_a_group_whose_processes_have_ended_has_given_back_what_it_had(root: Path) -> None:
    folder = made(root, CGROUPFS, populated=0)
    assert not RealCgroups(root).is_there(Cgroup(f"/sys/fs/cgroup{CGROUPFS}", folder.stat().st_ino))
