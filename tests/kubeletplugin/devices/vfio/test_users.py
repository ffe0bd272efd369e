"""Who has a device node open is told by device numbers, whatever processes call themselves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletplugin.devices.vfio.users import FunctionUsers, named, users_of
from tests import needs
from tests.driver.hardware.pci_trees import PciTree, at
from tests.gpus import PciFunction
from tests.plugin import User

POD = "3f0d8c1e-5b5d-4a59-9d5b-0d2f1c7f5e11"
CONTAINER = "0123456789abcdef" * 4
HOLDER = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia0"
    path.write_text("")
    return path


@pytest.fixture
def holder(node: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the node open."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDER, str(node)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    yield process
    process.communicate()


def test_who_has_this_very_node_open_is_found_by_any_name_of_it(
    node: Path, holder: subprocess.Popen[bytes]
) -> None:
    other, link = node.parent / "innocent", node.parent / "nvidia1"
    other.hardlink_to(node)
    link.symlink_to(node)
    for nodes in ([node, node.parent / "nothing"], [other]):
        (user,) = users_of(nodes)
        assert user.pid == holder.pid
        assert user.name.startswith("python")
    assert users_of([link]) == (), "a link is no node"

    node.unlink()
    node.write_text("")
    with node.open():
        assert users_of([node]) == (), "another file of that name, which this process alone has open"


class FakeProc:
    """A /proc whose processes may be as hostile as a test wants them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def rights(
        self, process: str, user: int, effective: int, bounding: int, users: str = "user:[4026531837]"
    ) -> None:
        """What the kernel says of a process; without this nothing."""
        folder = self.root / process
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/user").symlink_to(users)
        masks = f"CapEff:\t{effective:016x}\nCapBnd:\t{bounding:016x}\n"
        (folder / "status").write_text(f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n{masks}")

    def process(
        self, pid: int, target: Path, name: str = "train", cgroup: str = "0::/\n", kind: str = "ext4"
    ) -> None:
        folder = self.root / str(pid)
        for part in ("fd", "fdinfo"):
            (folder / part).mkdir(parents=True)
        (folder / "fd/3").symlink_to(target)
        (folder / "fdinfo/3").write_text("pos:\t0\nflags:\t0100002\nmnt_id:\t42\n")
        (folder / "mountinfo").write_text(
            f"41 1 0:5 / / rw - nfs4 server:/x rw\n42 1 8:1 / /a rw,relatime shared:1 - {kind} /dev/sda rw\n"
        )
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(cgroup)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    (tmp_path / "proc").mkdir()
    return FakeProc(tmp_path / "proc")


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope\n",
        f"12:devices:/kubepods/besteffort/pod{POD}/{CONTAINER}\n1:name=systemd:/\n",
        f"0::/../../kubepods-pod{POD.replace('-', '_')}.slice/crio-{CONTAINER}.scope\n",
    ],
)
def test_the_control_group_tells_pod_and_container(node: Path, proc: FakeProc, cgroup: str) -> None:
    proc.process(7, node, cgroup=cgroup)

    assert users_of([node], proc.root) == (User(7, "train", POD, CONTAINER),)


@pytest.mark.parametrize("cgroup", ["", "0::/system.slice/nvidia-persistenced.service\n", "garbage\x00pod\n"])
def test_a_process_of_the_host_is_of_no_pod(node: Path, proc: FakeProc, cgroup: str) -> None:
    proc.process(7, node, cgroup=cgroup)

    assert users_of([node], proc.root) == (User(7, "train"),)


ALL, OF_PODS = 0x1FFFFFFFFFF, 0xA80425FB


@pytest.mark.parametrize(
    ("rights", "is_of_node"),
    [
        ((0, ALL, ALL), True),
        ((113, 0, ALL), True),
        ((0, 1 << 21, 1 << 21), True),
        ((1000, 0, ALL), False),
        ((0, OF_PODS, OF_PODS), False),
        ((113, 0, OF_PODS), False),
        ((0, ALL, ALL, "user:[4026532999]"), False),
    ],
    ids=[
        "root of the node",
        "an account of the system",
        "a controller that gave up its other rights",
        "a person",
        "root of a pod",
        "another user of a pod",
        "root of a user namespace",
    ],
)
def test_the_kernel_says_whether_a_process_is_of_the_node(
    node: Path, proc: FakeProc, rights: tuple[int, int, int] | tuple[int, int, int, str], is_of_node: bool
) -> None:
    proc.rights("self", 0, ALL, ALL)
    proc.process(7, node, name="nvidia-persiste")
    proc.rights("7", *rights)

    (user,) = users_of([node], proc.root)

    assert user.is_of_node is is_of_node


def test_of_whom_the_kernel_says_nothing_is_not_of_the_node(node: Path, proc: FakeProc) -> None:
    proc.rights("self", 0, ALL, ALL)
    proc.process(7, node, name="nvidia-persiste")

    assert [user.is_of_node for user in users_of([node], proc.root)] == [False]


def test_a_hostile_name_reaches_no_terminal(node: Path, proc: FakeProc) -> None:
    proc.process(7, node, name="\x1b[2J\nprocess 1 (systemd)")

    assert str(*users_of([node], proc.root)) == "?[2J?process 1 (systemd) (process 7)"


def test_files_of_servers_are_not_asked_for(node: Path, proc: FakeProc) -> None:
    proc.process(7, node, kind="nfs4")

    assert users_of([node], proc.root) == ()


def test_processes_that_vanish_are_passed_by(node: Path, proc: FakeProc) -> None:
    proc.process(7, node)
    (proc.root / "8").mkdir()
    (proc.root / "9/fd").mkdir(parents=True)
    (proc.root / "9/fd/3").symlink_to(node)

    assert [user.pid for user in users_of([node], proc.root)] == [7]


def test_a_char_device_is_known_by_its_number_in_any_root(proc: FakeProc, tmp_path: Path) -> None:
    copy = tmp_path / "copy-of-zero"
    try:
        os.mknod(copy, 0o20600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip(needs.NO_DEVICE_NODES)
    proc.process(7, copy)

    assert [user.pid for user in users_of([Path("/dev/zero")], proc.root)] == [7]


def test_null_devices_of_pretend_nodes_are_told_apart(proc: FakeProc, tmp_path: Path) -> None:
    nodes = [tmp_path / "nvidia0", tmp_path / "nvidia1"]
    try:
        for node in nodes:
            os.mknod(node, 0o20600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip(needs.NO_DEVICE_NODES)
    proc.process(7, nodes[0])
    proc.process(8, Path("/dev/null"))

    assert [[user.pid for user in users_of([node], proc.root)] for node in nodes] == [[7], []]


def test_many_users_are_not_all_named() -> None:
    users = [User(pid, "train") for pid in range(1, 8)]

    assert named(users).endswith("train (process 5) and 2 more")
    assert named(users[:2]) == "train (process 1), train (process 2)"


def test_the_nodes_of_a_gpu_are_those_of_either_driver(tmp_path: Path) -> None:
    tree = PciTree(tmp_path / "sys")
    folder = tree.function("0000:81:00.0", group=7)
    (folder / "drm/card1").mkdir(parents=True)
    information = tmp_path / "proc/driver/nvidia/gpus/0000:81:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t 12\n")
    function = PciFunction(at("0000:81:00.0"), 0x10DE, 0x2330, 0x030200, iommu_group=7, vfio_device="vfio3")

    nodes = [str(node.relative_to(tmp_path)) for node in FunctionUsers(tmp_path, tree.root).nodes(function)]
    assert nodes == ["dev/vfio/7", "dev/vfio/devices/vfio3", "dev/nvidia12", "dev/dri/card1"]
