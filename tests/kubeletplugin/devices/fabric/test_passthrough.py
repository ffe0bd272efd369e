"""GPUs of virtual machines on a shared fabric: active before they leave the driver, until they are back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpus import ClaimRefused
from tests.kubeletplugin.devices.fabric.fabric_node import (
    MACHINE,
    claim_modules,
    connected,
    position,
    prepared,
    records,
)
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.kubeletplugin.fake_node import Crash
from tests.plugin import ClaimRef


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PassthroughNode]:
    """Eight H100 in shared NVSwitch mode."""
    node = PassthroughNode(tmp_path, MACHINE)
    yield node
    node.stop()


def vm_of(node: PassthroughNode, name: str, *modules: int) -> ClaimRef:
    """A claim for the GPUs of these modules, each a device of its own."""
    return node.claim_devices(name, *(node.device(position(node, module)) for module in modules))


def test_a_partition_is_active_before_its_gpus_are_bound_and_until_they_are_back(
    node: PassthroughNode,
) -> None:
    seen: dict[str, list[tuple[bool, bool]]] = {}

    def follow(step: str) -> None:
        seen.setdefault(step, []).append((bool(node.changed()), connected(node) == (3,)))

    node.on_step = follow
    ref = vm_of(node, "vm", 1, 2)
    node.prepare(ref)
    assert (seen["fabric noted"], seen["fabric activated"]) == ([(False, False)], [(False, True)])
    assert len(node.changed()) == 2
    assert connected(node) == (3,)
    node.unprepare(ref)
    assert seen["fabric deactivated"] == [(False, False)]
    assert (node.changed(), connected(node), records(node)) == ({}, (), [])


@pytest.mark.parametrize("form", ["vm", "container"])
def test_persistence_mode_is_off_when_a_partition_is_activated_and_on_again_at_the_end(
    node: PassthroughNode, form: str
) -> None:
    gpus = [position(node, module) for module in (1, 2)]
    node.turn_persistence_on(gpus[0])
    node.turn_persistence_on(position(node, 3))
    seen: dict[str, list[bool]] = {}

    def follow(step: str) -> None:
        seen.setdefault(step, [node.persistence(gpu) for gpu in gpus])

    node.on_step = follow
    ref = vm_of(node, "vm", 1, 2) if form == "vm" else claim_modules(node, "train", 1, 2)
    node.prepare(ref)
    assert (seen["fabric noted"], seen["fabric activated"]) == ([True, False], [False, False])
    assert node.persistence(position(node, 3))
    node.unprepare(ref)
    assert [node.persistence(gpu) for gpu in gpus] == [True, False]
    assert connected(node) == ()


def test_another_load_of_the_driver_ends_nothing_of_a_vm(node: PassthroughNode) -> None:
    node.driver_generation = "load-1"
    ref = vm_of(node, "vm", 1, 2)
    node.prepare(ref)
    node.driver_generation = "load-2"
    node.machine.fabric.start(keeps=True)
    node.fabric.run_once()
    assert node.machine.fabric.state.active == connected(node) == (3,)
    node.unprepare(ref)
    assert (connected(node), records(node)) == ((), [])


def test_a_gpu_that_nobody_can_tell_from_others_is_refused(node: PassthroughNode) -> None:
    node.bind_by_hand(position(node, 1))
    with pytest.raises(ClaimRefused, match="does not report its module") as caught:
        node.prepare(vm_of(node, "vm", 1))
    assert "the GPU is bound to the NVIDIA driver" in caught.value.way_out


def _steps(folder: Path) -> tuple[list[str], list[str]]:
    """All steps of a claim for two GPUs, of prepare and of unprepare."""
    folder.mkdir()
    node = PassthroughNode(folder, MACHINE)
    ref = vm_of(node, "vm", 1, 2)
    node.prepare(ref)
    making = list(node.steps)
    node.steps.clear()
    node.unprepare(ref)
    node.stop()
    return making, list(node.steps)


def test_every_step_may_be_the_last(tmp_path: Path) -> None:
    making, unmaking = _steps(tmp_path / "steps")
    assert making.index("fabric active") < len(making) - 4
    for operation, steps in (("prepare", making), ("unprepare", unmaking)):
        for step in dict.fromkeys(steps):
            folder = tmp_path / f"{operation}-{step}".replace(" ", "-")
            folder.mkdir()
            node = PassthroughNode(folder, MACHINE)
            ref = vm_of(node, "vm", 1, 2)
            if operation == "unprepare":
                node.prepare(ref)
            node.crash_after = step
            with pytest.raises(Crash):
                node.prepare(ref) if operation == "prepare" else node.unprepare(ref)
            node.discovery.close()  # as the end of a process does
            node.restart()
            node.prepare(ref)
            assert connected(node) == (3,), step
            node.unprepare(ref)
            assert (node.changed(), connected(node), records(node)) == ({}, (), []), step
            prepared(node, "next", 2)
            assert connected(node) == (8,), step
            node.stop()
