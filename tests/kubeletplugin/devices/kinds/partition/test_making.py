"""Partitions are made at exactly their place, destroyed without a trace, and never somebody else's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from driver.errors import ClaimBlocked, ClaimRefused
from driver.kinds.partition.names import profile_slug
from driver.nvml.mig import GpuInstance, Placement
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse, describe_processes
from kubeletplugin.devices.kinds.partition.record import PartitionRecord
from tests.kubeletplugin.partition_scene import Scene, unmade

ALL_STEPS = ["gpu instance", "compute instance", "made"]


def made_uuid(scene: Scene, record: PartitionRecord, gpu: int = 0) -> str:
    """What NVML calls the partition."""
    found = scene.discovery.on_gpu(
        scene.pci(gpu), lambda device, watch: watch("mig_devices", device.mig_devices)
    )
    (uuid,) = (
        device.uuid
        for device in found
        if (device.gpu_instance_id, device.compute_instance_id)
        == (record.gpu_instance_id, record.compute_instance_id)
    )
    return uuid


def test_the_first_partition_turns_the_mode_on_and_each_step_is_noted(scene: Scene) -> None:
    record = scene.located("3g-40gb", 4)

    made = scene.make(record)

    assert scene.steps == ALL_STEPS
    assert scene.noted == made
    assert unmade(made) == record
    assert made.attempted
    assert scene.instances() == (GpuInstance(made.gpu_instance_id or 0, 9, Placement(4, 4)),)
    assert made.uuid == made_uuid(scene, made)
    assert made.uuid.startswith("MIG-")
    assert scene.partitions.exists(scene.pci(), made)


def test_the_attempt_is_noted_before_anything_lies_at_the_place_and_the_id_before_more_follows(
    scene: Scene,
) -> None:
    seen: list[tuple[str, bool, int | None, int]] = []

    def note(step: str, record: PartitionRecord) -> None:
        seen.append((step, record.attempted, record.gpu_instance_id, len(scene.instances())))

    made = scene.partitions.make(scene.pci(), scene.located("2g-20gb", 2), frozenset(), note)

    assert seen == [
        ("gpu instance", True, None, 0),
        ("compute instance", True, made.gpu_instance_id, 1),
        ("made", True, made.gpu_instance_id, 1),
    ]


def test_a_second_partition_finds_the_mode_on(scene: Scene) -> None:
    scene.make(scene.located("1g-10gb", 0))
    scene.steps.clear()

    scene.make(scene.located("1g-10gb", 6))

    assert scene.steps == ALL_STEPS
    assert [gi.placement.start for gi in scene.instances()] == [0, 6]


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


def test_making_again_what_is_there_finds_it(scene: Scene) -> None:
    made = scene.make(scene.located("1g-10gb", 3))
    before = scene.instances()

    assert scene.make(made) == made
    assert scene.instances() == before


def test_a_destroyed_partition_leaves_nothing_and_the_mode_rests_after_the_last(scene: Scene) -> None:
    first, second = scene.make(scene.located("1g-10gb", 0)), scene.make(scene.located("1g-10gb", 1))

    scene.destroy(first)
    scene.partitions.turn_off_if_empty(scene.pci())
    assert scene.noted == unmade(first)
    assert [gi.placement.start for gi in scene.instances()] == [1]
    assert not scene.partitions.exists(scene.pci(), first)

    scene.destroy(second)
    assert scene.mode() == (True, True)
    scene.partitions.turn_off_if_empty(scene.pci())
    assert scene.mode() == (False, False)


def test_what_is_gone_already_is_destroyed_with_the_mode_off_too(scene: Scene) -> None:
    made = scene.make(scene.located("1g-10gb", 0))
    scene.machine.reboot()

    scene.destroy(made)

    assert scene.noted == unmade(made)
    assert not scene.partitions.exists(scene.pci(), made)


def test_a_record_without_an_attempt_owns_nothing(scene: Scene) -> None:
    record = scene.located("1g-10gb", 0)
    scene.turn_on()
    other = scene.foreign(19, 0, 1)

    scene.destroy(record)

    assert scene.instances() == (other,)
    assert scene.steps == []


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

    scene.destroy(replace(made, **change))  # type: ignore[arg-type]  # fields of the record

    assert len(scene.instances()) == 1
    assert scene.partitions.exists(scene.pci(), made)
    assert not scene.partitions.exists(scene.pci(), replace(made, **change))  # type: ignore[arg-type]


def test_a_foreign_instance_in_the_way_blocks_and_is_named(scene: Scene) -> None:
    scene.turn_on()
    other = scene.foreign(9, 0, 4)
    record = scene.located("1g-10gb", 2)

    with pytest.raises(
        ClaimBlocked, match=rf"GPU instance {other.id} \(profile id 9, placement 0:4\), which"
    ):
        scene.make(record)

    assert scene.instances() == (other,)
    assert scene.steps == []


def test_a_foreign_instance_exactly_like_the_wanted_one_is_not_taken_over(scene: Scene) -> None:
    scene.turn_on()
    other = scene.foreign(19, 2, 1)
    record = scene.located("1g-10gb", 2)

    with pytest.raises(ClaimBlocked, match="which this driver did not make"):
        scene.make(record)

    scene.destroy(scene.noted or record)
    assert scene.instances() == (other,)


def test_another_claims_leftover_in_the_way_is_told_apart_from_a_foreign_one(scene: Scene) -> None:
    left = scene.make(scene.located("2g-20gb", 0))

    with pytest.raises(ClaimBlocked, match="which another claim has or had"):
        scene.make(scene.located("1g-10gb", 1), ours=frozenset({left.gpu_instance_id or 0}))


def test_engines_that_ran_out_block_and_name_who_has_them(scene: Scene) -> None:
    first = scene.make(scene.located("1g-10gb-me", 0))
    record = scene.located("1g-10gb-me", 1)

    with pytest.raises(
        ClaimBlocked, match=rf"no room for 1g.10gb\+me .* GPU instance {first.gpu_instance_id} "
    ):
        scene.make(record)

    assert scene.noted == record
    assert [gi.id for gi in scene.instances()] == [first.gpu_instance_id]


def test_a_partition_in_use_stays_and_its_process_is_named(scene: Scene) -> None:
    made, other = scene.make(scene.located("1g-10gb", 0)), scene.make(scene.located("1g-10gb", 1))
    scene.machine.set_processes(made.uuid, (os.getpid(),))
    scene.machine.set_processes(other.uuid, (99999999,))

    with pytest.raises(InstanceInUse, match=r"still used by .*: end them") as refused:
        scene.destroy(made)
    assert f"process {os.getpid()}" in refused.value.for_log
    assert refused.value.process_ids == (os.getpid(),)
    assert refused.value.retryable
    with pytest.raises(
        InstanceInUse, match=r"still used by a process without a name \(process 99999999\): end them"
    ):
        scene.destroy(other)
    assert scene.partitions.exists(scene.pci(), made)

    scene.machine.set_processes(made.uuid, ())
    scene.destroy(made)
    assert [gi.id for gi in scene.instances()] == [other.gpu_instance_id]


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


def test_an_instance_in_use_by_nobody_that_nvml_names_says_so(scene: Scene) -> None:
    made = scene.make(scene.located("1g-10gb", 0))
    scene.machine.fail("destroy_compute_instance", code=19, times=1)

    with pytest.raises(InstanceInUse, match="a process that NVML does not name"):
        scene.destroy(made)

    scene.destroy(made)
    assert scene.instances() == ()


def test_where_the_mode_needs_a_reset_it_is_never_touched(open_scene: Callable[..., Scene]) -> None:
    scene = open_scene("dgx-a100")
    record = scene.located("1g-5gb", 0)

    with pytest.raises(ClaimRefused, match="needs a reset of the GPU, which this driver never does"):
        scene.make(record)
    assert scene.mode() == (False, False)
    assert scene.steps == []

    scene.turn_on()
    made = scene.make(record)
    scene.destroy(made)
    scene.partitions.turn_off_if_empty(scene.pci())
    assert scene.mode() == (True, True)
    assert scene.instances() == ()


def test_56_partitions_are_made_and_destroyed_at_once_on_eight_gpus(scene: Scene) -> None:
    def seven(gpu: int) -> list[PartitionRecord]:
        made: list[PartitionRecord] = []
        for start in range(7):
            others = frozenset(one.gpu_instance_id or 0 for one in made)
            made.append(scene.make(scene.located("1g-10gb", start, gpu), gpu, others))
        return made

    with ThreadPoolExecutor(8) as pool:
        by_gpu = list(pool.map(seven, range(8)))

    assert len({record.uuid for records in by_gpu for record in records}) == 56
    assert all(len(scene.instances(gpu)) == 7 for gpu in range(8))
    for gpu, records in enumerate(by_gpu):
        for record in records:
            scene.destroy(record, gpu)
        scene.partitions.turn_off_if_empty(scene.pci(gpu))
    assert {scene.mode(gpu) for gpu in range(8)} == {(False, False)}
