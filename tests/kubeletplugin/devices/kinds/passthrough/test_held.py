"""A claim has GPUs bound to vfio with all of their group, and gives them back as they were."""

import json
from pathlib import Path

import pytest

from tests.clusters import Object
from tests.gpus import ClaimBlocked, ClaimRefused, DeviceHeld, DriverNotLoaded, NvmlDevice, Watch
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.plugin import ClaimRef, FunctionInUse, NotLetGo


def spec(node: PassthroughNode, ref: ClaimRef) -> Object:
    """The claim's CDI spec, which has to be a valid one."""
    found: Object = json.loads(node.spec_path(ref).read_bytes())
    validate(found)
    return found


def paths(node: PassthroughNode, ref: ClaimRef) -> list[str]:
    """The nodes that a container gets."""
    found = spec(node, ref)
    edits = [found["containerEdits"], *(one["containerEdits"] for one in found["devices"])]
    return [entry["path"] for edit in edits for entry in edit.get("deviceNodes", ())]


def test_gpus_of_one_group_go_together(vms: PassthroughNode) -> None:
    claim = vms.prepared_vm("vm", 2, 3)

    assert vms.changed() == {"0000:ca:00.0": "vfio-pci", "0000:cb:00.0": "vfio-pci"}
    assert paths(vms, claim) == ["/dev/vfio/57", "/dev/vfio/vfio"]
    assert spec(vms, claim)["devices"][0]["containerEdits"]["env"] == [
        "PCI_RESOURCE_GPU_NVIDIA_COM_GPU_0000_CA_00_0_0000_CB_00_0_VFIO=0000:ca:00.0,0000:cb:00.0"
    ]
    assert vms.unprepare(claim) is None
    assert vms.changed() == {}


def test_a_container_gets_the_nodes_of_vfio_and_nothing_of_the_nvidia_driver(vms: PassthroughNode) -> None:
    claim = vms.prepared_vm("vm", 0)

    assert paths(vms, claim) == ["/dev/vfio/24", "/dev/vfio/vfio"]
    assert "mounts" not in spec(vms, claim)["containerEdits"]
    assert spec(vms, claim)["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    host = {node["hostPath"] for node in spec(vms, claim)["devices"][0]["containerEdits"]["deviceNodes"]}
    assert host == {str(vms.driver_root / "dev/vfio/24"), str(vms.driver_root / "dev/vfio/vfio")}


def test_iommufd_gives_a_node_for_each_function(vms: PassthroughNode) -> None:
    claim = vms.prepared_vm("vm", 1, iommu={"backendPolicy": "PreferIommuFD"})

    *devices, api = paths(vms, claim)
    assert api == "/dev/iommu"
    assert len(devices) == len(set(devices)) == 4
    assert all(one.startswith("/dev/vfio/devices/vfio") for one in devices)


def test_own_sessions_of_nvml_are_let_go_of_and_the_controller_is_asked(vms: PassthroughNode) -> None:
    asked: list[int] = []

    def ask(number: int) -> None:
        asked.append(number)
        vms.controllers.answered("controller", number, "")

    vms.controllers._ask = ask  # noqa: SLF001 - the stream to the controller
    vms.controllers.joined("controller")
    assert len(vms.listed()) == 4  # a session is open, and has every GPU
    claim = vms.prepared_vm("vm", 0)
    assert asked == [1, 0]
    vms.unprepare(claim)

    assert asked == [1, 0, 2, 0]
    assert vms.changed() == {}


def test_a_controller_that_cannot_let_go_has_the_claim_wait_with_nothing_changed(
    vms: PassthroughNode,
) -> None:
    vms.controllers.joined("controller")
    vms.controllers.answered("controller", 1, "a call of NVML hangs")
    claim = vms.vm("vm", 0)
    with pytest.raises(NotLetGo, match="a call of NVML hangs"):
        vms.prepare(claim)
    assert vms.changed() == {}
    assert vms.journal.get(claim.uid) is None
    vms.controllers.left("controller")
    vms.prepare(claim)


def test_a_controller_that_does_not_answer_keeps_no_gpu_from_coming_back(
    vms: PassthroughNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = vms.prepared_vm("vm", 0)
    monkeypatch.setattr("kubeletplugin.devices.kinds.passthrough.held._BACK_SECONDS", 0.01)
    vms.controllers.joined("controller")
    assert vms.unprepare(claim) is None
    assert vms.changed() == {}


def test_persistence_mode_is_put_back_when_the_gpu_could_not_be_taken(vms: PassthroughNode) -> None:
    vms.turn_persistence_on(0)
    vms.machine.spoil_kernel("fail", "driver_override", error=5)
    claim = vms.vm("vm", 0)
    with pytest.raises(ClaimBlocked):
        vms.prepare(claim)
    assert vms.persistence(0)
    assert vms.changed() == {}


def test_a_node_needs_no_nvidia_driver(vms: PassthroughNode) -> None:
    vms.machine.driver_gone()
    without = vms.drivers()
    with pytest.raises(DriverNotLoaded):
        vms.listed()
    claim = vms.prepared_vm("vm", 0)
    assert paths(vms, claim) == ["/dev/vfio/24", "/dev/vfio/vfio"]
    assert vms.unprepare(claim) is None
    assert vms.drivers() == without


def test_a_busy_gpu_names_who_uses_it_and_is_waited_for(vms: PassthroughNode) -> None:
    vms.machine.add_process(vms.gpus[0], 4711)
    claim = vms.vm("vm", 0)
    with pytest.raises(FunctionInUse, match="4711"):
        vms.prepare(claim)
    vms.patience_seconds = 20.0
    vms.restart()
    vms.on_complaint = lambda _text: vms.machine.end_process(vms.gpus[0], 4711)
    vms.prepare(claim)
    assert len(vms.complaints) == 1


def test_mig_mode_is_not_changed_for_it(tmp_path: Path) -> None:
    node = PassthroughNode(tmp_path, "hgx-h100")

    def turn_on(device: NvmlDevice, watch: Watch) -> None:
        watch("set_mig_mode", lambda: device.set_mig_mode(True))

    node.discovery.on_gpu(node.gpus[0], turn_on)
    with pytest.raises(ClaimBlocked, match=r"MIG mode of 0000:.* is on, and passthrough does not change it"):
        node.prepare(node.vm("vm", 0))
    assert node.discovery.mig_enabled(node.gpus[0])
    node.stop()


def test_a_gpu_is_a_virtual_machines_or_of_containers_and_never_both(tmp_path: Path) -> None:
    node = PassthroughNode(tmp_path, "hgx-h100")
    machine, whole = node.vm("vm", 0), node.claim("whole", 0)
    part = node.claim_devices("part", node.part(0))
    for holder, refused in ((machine, (whole, part)), (whole, (machine,)), (part, (machine,))):
        node.prepare(holder)
        for other in refused:
            with pytest.raises(DeviceHeld):
                node.prepare(other)
        node.unprepare(holder)
    assert node.changed() == {}
    node.stop()


def test_gpus_that_are_not_in_one_group_are_refused(vms: PassthroughNode) -> None:
    with pytest.raises(ClaimRefused, match="not in the IOMMU group"):
        vms.prepare(vms.vm("vm", 0, 1))
    assert vms.changed() == {}


def test_a_gpu_that_is_not_there_is_refused(vms: PassthroughNode) -> None:
    (vms.sysfs / "bus/pci/devices" / str(vms.gpus[0])).unlink()
    with pytest.raises(ClaimRefused, match=r"GPU 0000:17:00\.0 does not exist"):
        vms.prepare(vms.vm("vm", 0))
