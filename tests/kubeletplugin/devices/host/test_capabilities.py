"""The device nodes of an instance are those that the driver names now, and the right ones or none."""

import os
import stat
from pathlib import Path

import pytest

from kubeletplugin.devices.host.gpu_nodes import Capabilities, DeviceFolder
from tests import needs
from tests.gpus import NodeIncomplete
from tests.plugin import DeviceNode

CAPABILITIES = "proc/driver/nvidia/capabilities"


def can_make_nodes() -> bool:
    """Whether this process may make device nodes: CAP_MKNOD is bit 27 of its capabilities."""
    status = Path("/proc/self/status").read_text()
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> 27 & 1)


class Root:
    """A driver root with one instance, gi3 with ci0, of GPU 1."""

    def __init__(self, folder: Path, minors: tuple[int, int] = (30, 31)) -> None:
        self.folder = folder
        (folder / "dev/nvidia-caps").mkdir(parents=True)
        (folder / "dev/nvidiactl").symlink_to("/dev/null")
        for name, minor in zip(("gi3", "gi3/ci0"), minors, strict=True):
            self.capability(name, f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
            (folder / f"dev/nvidia-caps/nvidia-cap{minor}").symlink_to("/dev/null")

    def capability(self, name: str, text: str | bytes) -> None:
        """Write the file of an instance."""
        path = self.folder / CAPABILITIES / "gpu1/mig" / name / "access"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def devices(self, text: str) -> None:
        """Write what the kernel says of majors."""
        (self.folder / "proc/devices").write_text(text)

    def nodes(self, compute_instance_id: int = 0) -> tuple[DeviceNode, DeviceNode]:
        """Ask for the nodes of the instance."""
        capabilities = Capabilities.below(self.folder, self.folder / "none")
        return capabilities.nodes(DeviceFolder(str(self.folder)), 1, 3, compute_instance_id)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_both_nodes_are_those_that_the_files_name(root: Root) -> None:
    assert [node.path for node in root.nodes()] == [
        "/dev/nvidia-caps/nvidia-cap30",
        "/dev/nvidia-caps/nvidia-cap31",
    ]


def test_minors_are_read_fresh_each_time(root: Root) -> None:
    before = root.nodes()
    (root.folder / "dev/nvidia-caps/nvidia-cap77").symlink_to("/dev/null")
    root.capability("gi3", "DeviceFileMode: 292\nDeviceFileMinor:\t77\n")

    after = root.nodes()

    assert (after[0].path, after[1]) == ("/dev/nvidia-caps/nvidia-cap77", before[1])


def test_the_capabilities_of_a_driver_root_come_before_the_nodes_own(tmp_path: Path) -> None:
    Root(tmp_path / "root")
    (tmp_path / "none").mkdir()

    assert Capabilities.below(tmp_path / "root", tmp_path / "proc").proc == tmp_path / "root/proc"
    assert Capabilities.below(tmp_path / "none", tmp_path / "proc").proc == tmp_path / "proc"
    assert Capabilities.below(Path("/nowhere")).proc == Path("/proc")


def test_an_instance_that_the_driver_does_not_know_is_named(root: Root) -> None:
    with pytest.raises(
        NodeIncomplete, match="gi3/ci5/access of a MIG instance is missing or has no minor number"
    ):
        root.nodes(compute_instance_id=5)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"DeviceFileMinor:\n",
        b"DeviceFileMinor: -1\n",
        b"XDeviceFileMinor: 3\n",
        b"DeviceFileMinor: 30; rm\n",
        b"DeviceFileMinor: ../30\n",
        b"DeviceFileMinor: 99999999999\n",
        b"\xff\xfe\x00",
    ],
)
def test_a_file_that_names_no_minor_is_an_error(root: Root, text: bytes) -> None:
    root.capability("gi3", text)

    with pytest.raises(NodeIncomplete, match="has no minor number"):
        root.nodes()


@pytest.mark.parametrize("instead", ["nothing", "a file", "a folder"])
def test_a_missing_node_is_an_error_that_says_how_it_is_made(root: Root, instead: str) -> None:
    node = root.folder / "dev/nvidia-caps/nvidia-cap31"
    node.unlink()
    if instead != "nothing":
        node.write_text("") if instead == "a file" else node.mkdir()

    with pytest.raises(
        NodeIncomplete,
        match=r"nvidia-cap31 of a MIG instance is missing below .* run nvidia-modprobe -f "
        "/proc/driver/nvidia/capabilities/gpu1/mig/gi3/ci0/access on the node",
    ):
        root.nodes()


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ("  1 nvidia-caps\n", r"nvidia-cap30 of a MIG instance is 1:3 and not 1:30"),
        ("511 nvidia-caps\n", r"nvidia-cap30 of a MIG instance is 1:3 and not 511:30"),
    ],
    ids=["another minor", "a major of an earlier driver"],
)
def test_a_node_that_opens_something_else_is_refused(root: Root, devices: str, found: str) -> None:
    root.devices(f"Character devices:\n  1 mem\n{devices}195 nvidia\n")

    with pytest.raises(NodeIncomplete, match=found):
        root.nodes()


@pytest.mark.parametrize("devices", ["510 nvidia-caps-imex-channels\n", "", "x nvidia-caps\n"])
def test_where_the_kernel_names_no_major_none_is_checked(root: Root, devices: str) -> None:
    root.devices(devices)

    assert len(root.nodes()) == 2


@pytest.mark.skipif(not can_make_nodes(), reason=needs.NO_DEVICE_NODES)
def test_a_node_that_nobody_made_yet_is_made_as_the_driver_wants_it(tmp_path: Path) -> None:
    root = Root(tmp_path, (3, 5))
    for minor in (3, 5):
        (tmp_path / f"dev/nvidia-caps/nvidia-cap{minor}").unlink()
    (tmp_path / "dev/nvidia-caps").rmdir()
    root.devices("  1 nvidia-caps\n")  # null and zero are 1:3 and 1:5

    made = root.nodes()

    assert [(node.major, node.minor) for node in made] == [(1, 3), (1, 5)]
    status = (tmp_path / "dev/nvidia-caps/nvidia-cap5").stat()
    assert stat.S_ISCHR(status.st_mode)
    assert (stat.S_IMODE(status.st_mode), status.st_rdev) == (0o444, os.makedev(1, 5))
    assert root.nodes() == made
    DeviceFolder(str(tmp_path)).make("/dev/nvidia-caps/nvidia-cap9", 1, 3, 0o777)
    assert stat.S_IMODE((tmp_path / "dev/nvidia-caps/nvidia-cap9").stat().st_mode) == 0o664, "never for all"
