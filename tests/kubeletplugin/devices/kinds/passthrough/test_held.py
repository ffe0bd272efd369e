"""A claim has GPUs bound to vfio, whoever else has them open, and others hear how they are."""

import pytest

from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.plugin import FunctionInUse


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


def test_a_look_while_a_gpu_is_handed_over_says_nothing_of_the_claim(vms: PassthroughNode) -> None:
    """Else its status says until the next look that the GPU is not bound, and the pod runs."""
    claim = vms.vm("vm", 1)
    told: dict[str, set[tuple[str, str]]] = {}

    def look(step: str) -> None:
        told[step] = {(device, one.health.word) for device, one in vms.told_health().items()}

    vms.on_step = look
    vms.prepare(claim)

    assert {word for _, word in told["spec written"] - told["begun"]} == {"Healthy"}, "when it is handed over"


def test_the_metadata_of_the_device_have_its_address_its_group_and_its_node(vms: PassthroughNode) -> None:
    (held,) = vms.entry(vms.prepared_vm("vm", 2, 3)).devices
    assert dict(vms.kinds.of(held).metadata(held)) == {
        "resource.kubernetes.io/pciBusID": "0000:ca:00.0",
        "iommuGroup": 57,
        "vfioNode": "/dev/vfio/57",
    }
