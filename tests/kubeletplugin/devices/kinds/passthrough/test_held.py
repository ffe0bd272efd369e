"""A claim has GPUs bound to vfio with all of their group, and gives them back as they were."""

import json

import pytest

from tests.clusters import Object
from tests.gpus import ClaimRefused
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.plugin import ClaimRef, FunctionInUse


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


def test_a_controller_that_does_not_answer_keeps_no_gpu_from_coming_back(
    vms: PassthroughNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = vms.prepared_vm("vm", 0)
    monkeypatch.setattr("kubeletplugin.devices.kinds.passthrough.held._BACK_SECONDS", 0.01)
    vms.controllers.joined("controller")
    assert vms.unprepare(claim) is None
    assert vms.changed() == {}


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


def test_a_gpu_that_is_not_there_is_refused(vms: PassthroughNode) -> None:
    (vms.sysfs / "bus/pci/devices" / str(vms.gpus[0])).unlink()
    with pytest.raises(ClaimRefused, match=r"GPU 0000:17:00\.0 does not exist"):
        vms.prepare(vms.vm("vm", 0))
