"""Partitions are made at exactly their place, destroyed without a trace, and never somebody else's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from driver.errors import ClaimBlocked
from driver.kinds.partition.names import profile_slug
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse, describe_processes
from tests.kubeletplugin.partition_scene import Scene


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
