"""A claim's vGPU is made at prepare, given to the container, and taken back at unprepare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletplugin.devices.kinds.vgpu.record import uuid_for
from kubeletplugin.devices.vfio.users import FunctionInDoubt
from tests.gpus import ClaimBlocked, ClaimRefused, DeviceHeld, MadeVgpu
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import (
    A100,
    DEVICES,
    L40S,
    TYPES,
    edits,
    made,
    with_config,
)
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.plugin import FunctionNotMoved

GPU = "gpu-0000-17-00-0"
VIRTUAL_3 = "0000:17:00.7"
"""Virtual function 3 of the first L40S: they begin at .4 of the board."""


def test_a_vgpu_is_made_in_its_slot_and_the_container_gets_its_group_and_nothing_of_the_driver(
    open_node: Open,
) -> None:
    node = open_node(L40S)
    ref = node.prepared_devices("vm", DEVICES[L40S])

    assert made(node) == {VIRTUAL_3: MadeVgpu(TYPES["l40s-8q"])}
    group = (node.sysfs / "bus/pci/devices" / VIRTUAL_3 / "iommu_group").readlink().name
    found = edits(node, ref)
    assert [one["path"] for one in found["deviceNodes"]] == [f"/dev/vfio/{group}", "/dev/vfio/vfio"]
    assert found["env"] == [f"PCI_RESOURCE_GPU_NVIDIA_COM_GPU_0000_17_00_0_VGPU_L40S_8Q_3={VIRTUAL_3}"]
    assert "libcuda" not in node.spec_path(ref).read_text()


def test_a_mediated_device_has_a_uuid_that_follows_from_the_claim(open_node: Open) -> None:
    node = open_node(A100)
    ref = node.prepared_devices("vm", DEVICES[A100])

    uuid = uuid_for(ref.uid, DEVICES[A100])
    assert made(node) == {"0000:3b:00.5": MadeVgpu(TYPES["a100-10c"], uuid)}
    found = edits(node, ref)
    group = (node.sysfs / "bus/mdev/devices" / uuid / "iommu_group").readlink().name
    assert [one["path"] for one in found["deviceNodes"]] == [f"/dev/vfio/{group}", "/dev/vfio/vfio"]
    assert found["env"] == [f"MDEV_PCI_RESOURCE_GPU_NVIDIA_COM_GPU_0000_3B_00_0_VGPU_A100_10C_1={uuid}"]


@pytest.mark.parametrize("machine", [L40S, A100])
def test_iommufd_is_given_where_the_configuration_prefers_it(open_node: Open, machine: str) -> None:
    node = open_node(machine)
    config = with_config(backendPolicy="PreferIommuFD", enableAPIDevice=True)
    ref = node.prepared_devices("vm", DEVICES[machine], **config)

    own, api = (one["path"] for one in edits(node, ref)["deviceNodes"])
    assert own.startswith("/dev/vfio/devices/vfio")
    assert api == "/dev/iommu"


def test_six_of_one_profile_are_made_and_no_seventh_and_no_slot_is_given_out_twice(open_node: Open) -> None:
    node = open_node(L40S)
    for slot in range(6):
        node.prepared_devices(f"vm-{slot}", f"{GPU}-vgpu-l40s-8q-{slot}")

    with pytest.raises(ClaimBlocked, match="the vGPU L40S-8Q cannot be made"):
        node.prepared_devices("vm-6", f"{GPU}-vgpu-l40s-8q-6")
    for device in (f"{GPU}-vgpu-l40s-8q-0", f"{GPU}-vgpu-l40s-24q-0", GPU):
        with pytest.raises(DeviceHeld):
            node.prepared_devices("two", device)
    assert len(made(node)) == 6


@pytest.mark.parametrize(
    ("device", "error", "words"),
    [
        ("l40s-24q-1", ClaimBlocked, "vGPUs of another profile"),
        ("a100-4c-0", ClaimRefused, "no vGPU profile a100-4c"),
        ("l40s-1q-32", ClaimBlocked, r"sriov-manage -e 0000:17:00\.0"),
    ],
)
def test_a_vgpu_that_cannot_be_made_is_refused_with_the_way_out(
    open_node: Open, device: str, error: type[Exception], words: str
) -> None:
    node = open_node(L40S)
    if error is ClaimBlocked and "24q" in device:
        node.prepared_devices("first", f"{GPU}-vgpu-l40s-8q-0")

    with pytest.raises(error, match=words):
        node.prepared_devices("other", f"{GPU}-vgpu-{device}")


def test_a_vgpu_of_somebody_else_in_the_slot_is_left_alone(open_node: Open) -> None:
    node = open_node(L40S)
    file = node.sysfs / "bus/pci/devices" / VIRTUAL_3 / "nvidia/current_vgpu_type"
    node.kernel.write(file, str(TYPES["l40s-8q"]), 1.0)

    with pytest.raises(ClaimBlocked, match="that belongs to no claim"):
        node.prepared_devices("vm", DEVICES[L40S])
    assert made(node) == {VIRTUAL_3: MadeVgpu(TYPES["l40s-8q"])}


@pytest.mark.parametrize("machine", [L40S, A100])
def test_a_vgpu_that_somebody_took_away_is_made_anew(open_node: Open, machine: str) -> None:
    node = open_node(machine)
    ref = node.prepared_devices("vm", DEVICES[machine])
    ((pci, vgpu),) = made(node).items()
    folder = node.sysfs / "bus/pci/devices" / pci
    gone = folder / vgpu.uuid / "remove" if vgpu.uuid else folder / "nvidia/current_vgpu_type"
    node.kernel.write(gone, "1" if vgpu.uuid else "0", 1.0)

    node.prepare(ref)

    assert made(node) == {pci: vgpu}


WORDS = {L40S: "nvidia/current_vgpu_type", A100: "nvidia-471/create"}

Open = Callable[[str], FakeNode]

each_framework = pytest.mark.parametrize("machine", [L40S, A100])


@each_framework
@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_crash_right_after_the_kernels_work_leaves_the_vgpu_to_the_claim(
    open_node: Open, machine: str, is_wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_node(machine)
    ref = node.claim_devices("vm", DEVICES[machine])
    write = node.kernel.write

    def dying(path: Path, text: str, deadline_seconds: float) -> None:
        write(path, text, deadline_seconds)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(node.kernel, "write", dying)
        with pytest.raises(Crash):
            node.prepare(ref)
    there = made(node)
    assert len(there) == 1
    node.restart()

    if is_wanted:
        node.prepare(ref)
        assert made(node) == there
    else:
        assert node.unprepare(ref) is None
        assert made(node) == {}


@each_framework
def test_a_write_that_does_nothing_is_seen(open_node: Open, machine: str) -> None:
    node = open_node(machine)
    node.machine.spoil_kernel("ignore", WORDS[machine], times=1)

    with pytest.raises(FunctionNotMoved, match="does not show it"):
        node.prepared_devices("vm", DEVICES[machine])


def test_a_kernel_that_does_not_answer_leaves_the_vgpu_in_doubt_and_to_the_claim(
    open_node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.devices.kinds.vgpu.held._WRITE_SECONDS", 0.05)
    node = open_node(L40S)
    ref = node.claim_devices("vm", DEVICES[L40S])
    node.machine.spoil_kernel("hang", WORDS[L40S])

    with pytest.raises(FunctionInDoubt):
        node.prepare(ref)
    assert node.entry(ref).state == "releasing"

    node.machine.heal_kernel()
    node.machine.settle()
    assert node.reconciler.finish_releases() == (ref.uid,)
    assert made(node) == {}
