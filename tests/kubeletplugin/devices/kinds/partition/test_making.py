"""Partitions are made at exactly their place and destroyed without a trace, whatever goes wrong meanwhile."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kubeletplugin.devices.kinds.partition.gpu_instances import describe_processes
from kubeletplugin.devices.kinds.partition.making import MigSwitch
from tests.gpus import ClaimBlocked, FakeDevice, NvmlDevice, Placement, Watch, profile_slug
from tests.kubeletplugin.fake_node import Crash
from tests.kubeletplugin.partition_scene import Scene
from tests.plugin import InstanceInUse, PartitionRecord


@pytest.mark.parametrize(
    ("machine", "profile", "start", "compute_profile"),
    [
        ("hgx-h100", "1g-20gb", 6, 7),
        ("hgx-h100", "7g-80gb", 0, 4),
        ("rtx-pro-6000-octo", "2g-48gb-no-me", 6, 1),
        ("rtx-pro-6000-octo", "1g-24gb-me-all", 9, 0),
    ],
)
def test_the_compute_instance_is_all_of_its_gpu_instance(
    open_scene: Callable[..., Scene], machine: str, profile: str, start: int, compute_profile: int
) -> None:
    scene = open_scene(machine)

    made = scene.make(scene.located(profile, start))

    (instance,) = scene.machine.state.gpus[scene.pci()].mig.instances
    (compute,) = instance.compute_instances
    assert profile_slug(made.profile) == profile
    assert (instance.placement.start, compute.profile_id) == (start, compute_profile)
    assert made.compute_instance_id == compute.id


def test_a_partition_in_use_stays_and_its_process_is_named(scene: Scene) -> None:
    made, other = scene.make(scene.located("1g-10gb", 0)), scene.make(scene.located("1g-10gb", 1))
    scene.machine.set_processes(made.uuid, (os.getpid(),))
    scene.machine.set_processes(other.uuid, (99999999,))

    with pytest.raises(InstanceInUse, match=r"still used by .*: end them") as refused:
        scene.destroy(made)
    assert f"process {os.getpid()}" in refused.value.for_log
    assert refused.value.process_ids == (os.getpid(),)
    with pytest.raises(
        InstanceInUse, match=r"still used by a process without a name \(process 99999999\): end them"
    ):
        scene.destroy(other)
    assert scene.partitions.exists(scene.pci(), made)


def test_a_process_of_a_pod_is_named_in_the_nodes_log_alone(tmp_path: Path) -> None:
    """Another tenant may have it: whoever made the request reads the error in events."""
    pod = "3f0d8c1e-5b5d-4a59-9d5b-0d2f1c7f5e11"
    for pid, group in ((7, "/system.slice/dcgm.service"), (8, f"/kubepods/pod{pod}/{'c' * 64}")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text("secret\n")
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{group}\n")

    assert describe_processes([7], tmp_path) == ("secret (process 7)",) * 2
    who, told = describe_processes([7, 8], tmp_path)
    assert who == "the processes that the node's log names"
    assert told == f"secret (process 7), secret (process 8 of pod {pod})"


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_instance_id": 12},
        {"profile_id": 20, "gpu_instance_id": None},
        {"start": 1, "gpu_instance_id": None},
    ],
    ids=["another id", "another profile", "another place"],
)
def test_an_instance_that_differs_in_one_thing_is_not_the_records(
    scene: Scene, change: dict[str, int | None]
) -> None:
    made = scene.make(scene.located("1g-10gb", 0))
    other = replace(made, **change)  # type: ignore[arg-type]  # fields of the record

    scene.destroy(other)

    assert scene.partitions.exists(scene.pci(), made)
    assert not scene.partitions.exists(scene.pci(), other)


CREATIONS = ["create_gpu_instance", "create_compute_instance"]
STEPS = ["gpu instance", "compute instance", "made"]


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


def test_a_note_that_takes_longer_than_a_call_may_is_no_hung_call(open_scene: Callable[..., Scene]) -> None:
    scene = open_scene(deadline_seconds=1.0)
    lane_is_free: list[tuple[str, ...]] = []

    def note(step: str, _: PartitionRecord) -> None:
        scene.discovery.on_gpu(scene.pci(), lambda device, watch: watch("uuid", device.uuid))
        lane_is_free.append((step, *scene.guard.hung()))

    made = scene.partitions.make(scene.pci(), scene.located("1g-10gb", 0), frozenset(), note)
    scene.partitions.destroy(scene.pci(), made, note)

    assert lane_is_free == [(step,) for step in (*STEPS, "destroyed")]


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
