"""A partition's name leads to what it means on its GPU; MIG mode follows what a GPU is used for."""

import json
from collections.abc import Callable
from io import StringIO

import pytest

from driver.process.log import configure
from tests.gpus import (
    ClaimRefused,
    NvmlDevice,
    PartitionName,
    Watch,
    load_catalogue,
    parse_partition_name,
    partition_device_name,
)
from tests.kubeletplugin.partition_scene import Scene
from tests.plugin import PartitionRecord


@pytest.mark.parametrize(
    ("machine", "catalogue"),
    [
        ("a30-quad", "a30-24gb"),
        ("dgx-a100", "a100-40gb"),
        ("hgx-h100", "h100-80gb"),
        ("hgx-b200", "b200-180gb"),
        ("rtx-pro-6000-octo", "rtx-pro-6000-96gb"),
    ],
)
def test_the_name_of_every_profile_and_place_is_found(
    open_scene: Callable[..., Scene], machine: str, catalogue: str
) -> None:
    scene = open_scene(machine)
    offered = load_catalogue(catalogue)

    for profile in offered.profiles:
        for place in offered.placements[profile.id]:
            name = parse_partition_name(partition_device_name(scene.pci(), profile.name, place.start))
            assert name is not None
            found = scene.partitions.locate(name)
            assert found == PartitionRecord(
                profile.name, profile.id, place.start, place.size, memory_bytes=profile.memory_bytes
            )
            assert found.placement == place


@pytest.mark.parametrize("static", [False, True])
def test_a_gpu_without_mig_has_no_partition(open_scene: Callable[..., Scene], *, static: bool) -> None:
    scene = open_scene("l40s-octo")

    with pytest.raises(ClaimRefused, match=r"none: it has no MIG|does not exist any more"):
        scene.partitions.locate(PartitionName(scene.pci(), "1g-10gb", 0, static))


def test_a_static_partition_is_found_with_its_ids_and_its_uuid(scene: Scene) -> None:
    scene.turn_on()
    scene.foreign_part(scene.foreign(9, 0, 4), 2)
    owner = scene.foreign(9, 4, 4)
    part = scene.foreign_part(owner, 2)

    record = scene.static("3g-40gb", 4)

    assert record == PartitionRecord(
        "3g.40gb",
        9,
        4,
        4,
        gpu_instance_id=owner.id,
        compute_instance_id=part.id,
        uuid=record.uuid,
        memory_bytes=record.memory_bytes,
    )
    assert record.memory_bytes >> 30 == 39
    assert record.uuid.startswith("MIG-")
    assert record.uuid != scene.static("3g-40gb", 0).uuid
    assert scene.partitions.exists(scene.pci(), record)


def test_the_parts_of_one_instance_are_told_apart_by_their_compute_slices(scene: Scene) -> None:
    scene.turn_on()
    owner = scene.foreign(9, 4, 4)
    parts = [scene.foreign_part(owner, 0) for _ in range(3)]

    found = [scene.static("1c-3g-40gb", 4, part.placement.start) for part in parts]

    assert [record.compute_instance_id for record in found] == [part.id for part in parts]
    assert {record.profile for record in found} == {"1c.3g.40gb"}
    assert len({record.uuid for record in found}) == 3
    with pytest.raises(ClaimRefused, match="does not exist any more"):
        scene.static("1c-3g-40gb", 4, 5)


@pytest.mark.parametrize("made", ["nothing", "another place", "another profile", "no compute instance"])
def test_a_static_partition_that_is_not_there_is_refused(scene: Scene, made: str) -> None:
    scene.turn_on()
    if made == "another place":
        scene.foreign_part(scene.foreign(9, 0, 4), 2)
    elif made == "another profile":
        scene.foreign_part(scene.foreign(14, 4, 2), 1)
    elif made == "no compute instance":
        scene.foreign(9, 4, 4)

    with pytest.raises(
        ClaimRefused, match=r"the partition 3g-40gb at memory slice 4 of GPU .+ does not exist any"
    ):
        scene.static("3g-40gb", 4)


def test_a_static_partition_that_the_admin_destroyed_exists_no_more(scene: Scene) -> None:
    scene.turn_on()
    scene.foreign_part(scene.foreign(9, 4, 4), 2)
    record = scene.static("3g-40gb", 4)
    scene.machine.reset(0)
    assert not scene.partitions.exists(scene.pci(), record)
    scene.turn_on()
    scene.foreign(9, 4, 4)

    assert not scene.partitions.exists(scene.pci(), record)


def test_a_part_that_is_gone_does_not_exist_because_its_neighbour_does(scene: Scene) -> None:
    scene.turn_on()
    owner = scene.foreign(9, 4, 4)
    first, second = (scene.foreign_part(owner, 0) for _ in range(2))
    gone, left = (scene.static("1c-3g-40gb", 4, part.placement.start) for part in (first, second))

    def job(device: NvmlDevice, watch: Watch) -> None:
        watch("destroy_compute_instance", lambda: device.destroy_compute_instance(owner.id, first.id))

    scene.discovery.on_gpu(scene.pci(), job)

    assert not scene.partitions.exists(scene.pci(), gone)
    assert scene.partitions.exists(scene.pci(), left)


@pytest.mark.parametrize("spoilt", ["in use", "an error"])
def test_a_mode_that_cannot_be_put_to_rest_is_logged_and_nobody_fails(scene: Scene, spoilt: str) -> None:
    scene.turn_on()
    lines = StringIO()
    configure("info", lines)
    if spoilt == "in use":
        scene.machine.set_processes(0, (5000001,))
    else:
        scene.machine.fail("set_mig_mode")

    scene.partitions.turn_off_if_empty(scene.pci())

    (line,) = map(json.loads, lines.getvalue().splitlines())
    assert (line["event"], line["gpu"]) == ("MIG mode stays on", str(scene.pci()))
    assert ("in-use" if spoilt == "in use" else "nvmlDeviceSetMigMode") in line["reason"]
    assert scene.mode() == (True, True)


def test_rest_of_a_gpu_whose_mode_needs_a_reset_does_not_even_try(open_scene: Callable[..., Scene]) -> None:
    scene = open_scene("dgx-a100")
    scene.turn_on()
    before = scene.mode()
    scene.machine.fail("set_mig_mode")
    lines = StringIO()
    configure("info", lines)

    scene.partitions.turn_off_if_empty(scene.pci())

    assert (lines.getvalue(), scene.mode()) == ("", before)
