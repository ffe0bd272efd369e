"""Whatever goes wrong while a partition is made or destroyed, it is undone, or a later call does the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from driver.errors import ClaimBlocked, ClaimRefused
from driver.nvml.api import Code, NvmlDevice, NvmlTimeout
from driver.nvml.deadline import Watch
from driver.nvml.mig import Placement
from fakegpu.nvml.fake_nvml import FakeDevice
from kubeletplugin.devices.kinds.partition.making import MigSwitch
from kubeletplugin.devices.kinds.partition.record import PartitionRecord
from tests.eventually import eventually
from tests.kubeletplugin.partition_scene import Crash, Scene, unmade

CREATIONS = ["create_gpu_instance", "create_compute_instance"]
DESTRUCTIONS = ["destroy_gpu_instance", "destroy_compute_instance"]
STEPS = ["gpu instance", "compute instance", "made"]


@pytest.mark.parametrize("call", [*CREATIONS, *DESTRUCTIONS])
@pytest.mark.parametrize("code", [Code.UNKNOWN, Code.UNINITIALIZED], ids=["an error", "a void session"])
def test_a_call_that_says_it_failed_but_did_its_work_has_done_it(scene: Scene, call: str, code: Code) -> None:
    scene.machine.fail_after(call, code=code, times=1)

    made = scene.make(scene.located("1g-10gb", 5))

    (instance,) = scene.machine.state.gpus[scene.pci()].mig.instances
    assert (instance.id, len(instance.compute_instances)) == (made.gpu_instance_id, 1)
    assert scene.steps == STEPS
    scene.destroy(made)
    assert scene.noted == unmade(made)
    assert scene.instances() == ()


@pytest.mark.parametrize("call", CREATIONS)
def test_after_a_crash_within_a_step_the_journal_finds_what_it_left(scene: Scene, call: str) -> None:
    record = scene.located("2g-20gb", 4)
    scene.crash_after = {"create_gpu_instance": "gpu instance"}.get(call, "compute instance")
    with pytest.raises(Crash):
        scene.make(record)
    if call == "create_gpu_instance":
        scene.foreign(14, 4, 2)
    else:
        scene.foreign_part(scene.instances()[0], 1)
    assert scene.noted is not None

    made = scene.make(scene.noted)

    assert [gi.id for gi in scene.instances()] == [made.gpu_instance_id]
    scene.destroy(made)
    assert scene.instances() == ()


def test_a_new_attempt_forgets_the_ids_of_one_that_is_gone(scene: Scene) -> None:
    record = scene.located("1g-10gb", 0)
    stale = replace(record, attempted=True, gpu_instance_id=14, compute_instance_id=3, uuid="MIG-old")
    scene.crash_after = "gpu instance"

    with pytest.raises(Crash):
        scene.make(stale)

    assert scene.noted == replace(record, attempted=True)


@pytest.mark.parametrize("call", CREATIONS)
def test_a_creation_that_hangs_is_found_once_it_comes_back(
    open_scene: Callable[..., Scene], call: str
) -> None:
    scene = open_scene(deadline_seconds=0.4)
    scene.turn_on()
    scene.machine.hang(call)

    with pytest.raises(NvmlTimeout):
        scene.make(scene.located("1g-10gb", 0))
    assert scene.noted is not None
    assert scene.noted.attempted

    scene.machine.heal()
    eventually("nothing hangs", scene.guard.hung, lambda hung: not hung)
    made = scene.make(scene.noted)
    assert [gi.id for gi in scene.instances()] == [made.gpu_instance_id]
    assert scene.partitions.exists(scene.pci(), made)


def test_a_note_that_takes_longer_than_a_call_may_is_no_hung_call(open_scene: Callable[..., Scene]) -> None:
    scene = open_scene(deadline_seconds=1.0)
    lane_is_free: list[tuple[str, ...]] = []

    def note(step: str, _: PartitionRecord) -> None:
        scene.discovery.on_gpu(scene.pci(), lambda device, watch: watch("uuid", device.uuid))
        lane_is_free.append((step, *scene.guard.hung()))

    made = scene.partitions.make(scene.pci(), scene.located("1g-10gb", 0), frozenset(), note)
    scene.partitions.destroy(scene.pci(), made, note)

    assert lane_is_free == [(step,) for step in (*STEPS, "destroyed")]


def test_a_process_that_keeps_the_mode_off_is_named_and_nothing_is_left_pending(scene: Scene) -> None:
    scene.machine.set_processes(0, (5000001,))  # beyond pid_max: no process of this machine

    with pytest.raises(ClaimBlocked, match=r"turned on: the GPU is used by .*process 5000001\)"):
        scene.make(scene.located("1g-10gb", 0))

    assert scene.mode() == (False, False)
    assert scene.steps == []


class Hopeful(FakeDevice):
    """A GPU whose driver says wrongly that no reset is needed."""

    def mig_without_reset(self) -> bool:
        return True


@pytest.mark.parametrize("way", ["on", "off"])
def test_a_driver_that_is_wrong_about_the_reset_leaves_no_mode_pending(
    open_scene: Callable[..., Scene], way: str
) -> None:
    scene = open_scene("dgx-a100")
    if way == "off":
        scene.turn_on()
    before, pci, machine = scene.mode(), scene.pci(), scene.machine
    nvml = machine.nvml()
    nvml.init()
    device = Hopeful(nvml.session, machine.spec, machine.spec.slot(pci), machine.state.session)

    def job(watch: Watch) -> None:
        switch = MigSwitch(pci, device, watch)
        switch.turn_on() if way == "on" else switch.turn_off()

    with pytest.raises(ClaimBlocked, match=f"cannot be turned {way}: the GPU has to be reset"):
        scene.guard.run("a lane", job)

    assert scene.mode() == before


def test_a_gpu_that_tells_neither_of_resets_nor_its_model_is_left_alone(scene: Scene) -> None:
    scene.machine.not_supported("mig_without_reset")
    record = scene.located("1g-10gb", 0)
    scene.machine.not_supported("architecture")

    with pytest.raises(ClaimRefused, match="needs a reset"):
        scene.make(record)


@pytest.mark.parametrize(("machine", "free"), [("hgx-h100", True), ("dgx-a100", False)])
def test_with_a_driver_that_cannot_tell_the_architecture_says_whether_a_reset_is_needed(
    open_scene: Callable[..., Scene], machine: str, *, free: bool
) -> None:
    scene = open_scene(machine)
    scene.machine.not_supported("mig_without_reset")
    record = scene.located("1g-10gb" if free else "1g-5gb", 0)

    if free:
        assert scene.partitions.exists(scene.pci(), scene.make(record))
    else:
        with pytest.raises(ClaimRefused):
            scene.make(record)


def test_a_mode_that_goes_off_in_the_middle_is_worth_another_try(scene: Scene) -> None:
    record = scene.located("1g-10gb", 0)

    def off(device: NvmlDevice, watch: Watch) -> str:
        return watch("set_mig_mode", lambda: device.set_mig_mode(False))

    def note(step: str, noted: PartitionRecord) -> None:
        scene.note(step, noted)
        if step == "gpu instance":
            scene.discovery.on_gpu(scene.pci(), off)

    with pytest.raises(ClaimBlocked, match="was turned off while a partition was being made"):
        scene.partitions.make(scene.pci(), record, frozenset(), note)

    assert scene.noted == record
    assert scene.partitions.exists(scene.pci(), scene.make(record))


def test_a_gpu_that_lets_nobody_change_instances_is_refused_for_good(scene: Scene) -> None:
    scene.machine.not_supported("create_gpu_instance")

    with pytest.raises(ClaimRefused, match="does not let this machine make MIG instances"):
        scene.make(scene.located("1g-10gb", 0))


@pytest.mark.parametrize(("profile_id", "size"), [(9, 4), (19, 1)], ids=["another profile", "the same"])
def test_a_foreign_instance_that_comes_in_between_is_not_taken_over(
    scene: Scene, profile_id: int, size: int
) -> None:
    record = scene.located("1g-10gb", 0)

    def note(step: str, noted: PartitionRecord) -> None:
        scene.note(step, noted)
        if step == "gpu instance":
            scene.foreign(profile_id, 0, size)

    with pytest.raises(
        ClaimBlocked, match=r"has no room for 1g\.10gb at memory slice 0 next to GPU instance"
    ):
        scene.partitions.make(scene.pci(), record, frozenset(), note)

    assert scene.noted == record
    scene.destroy(scene.noted)
    assert [gi.placement for gi in scene.instances()] == [Placement(0, size)]
