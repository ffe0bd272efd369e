"""Whatever a scheduler allocates, the host makes, in any order: counters and the kernel's rules agree."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Self

import pytest

from driver.kinds.vgpu.names import parse_vgpu_name, profile_label
from fakegpu.sysfs.vgpu_rules import HostedGpu, Vgpu, create_mdev, remove_mdev, set_type
from tests.clusters import Allocator, Object
from tests.driver.kinds.vgpu.hosts import A100, L40S, alone, hosted, inventory, offers
from tests.gpus import Gpu
from tools.conformance.allocation.objects import claim, device_class, exactly, node
from tools.conformance.nodes.mig_nodes import NODE, slices

CLASSES = [device_class("gpu", ["device.driver == 'gpu.nvidia.com'"])]
OWN = "device.attributes['gpu.nvidia.com']"
ROUNDS = 120

HOSTS = {
    "one profile": (L40S, 0, (), ("L40S-8Q",)),
    "all sizes": (L40S, 0, (), tuple(f"L40S-{size}Q" for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 48))),
    "two of one size": (L40S, 0, (), ("L40S-8Q", "L40S-8A", "L40S-48Q")),
    "mediated": (A100, 0, (), ("A100-4C", "A100-10C", "A100-20C", "A100-40C")),
    "on instances": (A100, 1, (9, 14, 19), ("A100-1-5C", "A100-2-10C", "A100-3-20C")),
    "on equal instances": (A100, 1, (19, 19, 19, 20), ("A100-1-5C", "A100-1-5CME")),
}


@dataclass
class Host:
    """A GPU whose vGPUs are handed out: the scheduler's view, and the kernel's."""

    gpu: Gpu
    allocator: Allocator
    kernel: HostedGpu
    allocated: dict[str, Object] = field(default_factory=dict)
    prepared: dict[str, Vgpu] = field(default_factory=dict)
    most: int = 0

    @classmethod
    def of(cls, name: str) -> Self:
        """One of the hosts, all of it free."""
        machine, index, instances, profiles = HOSTS[name]
        found = inventory(machine, *instances)
        offered = offers(alone(found, index), f"vgpu: {{profiles: [{', '.join(profiles)}]}}")
        gpu = found.gpus[index]
        return cls(gpu, Allocator(slices(offered), CLASSES, []), hosted(machine, gpu))

    def allocate(self, number: int, profile: str) -> None:
        wanted = claim(exactly("r", f"{OWN}.profile == '{profile}'"), name=f"claim-{number}")
        found = self.allocator.allocate(node(NODE), [wanted])
        if found is None:
            return
        given = {**wanted, "status": {"allocation": found[0]}}
        self.allocator.assume(given)
        (result,) = found[0]["devices"]["results"]
        self.allocated[result["device"]] = given
        self.most = max(self.most, len(self.allocated))

    def release(self, device: str) -> None:
        self.allocator.release(self.allocated.pop(device))

    def prepare(self, device: str) -> None:
        name = parse_vgpu_name(device)
        assert name is not None
        assert self.gpu.vgpu is not None
        place = self.kernel.places[name.slot]
        (kind,) = (one for one in self.kernel.types if profile_label(one.profile) == name.profile)
        if self.kernel.host.framework == "vfio":
            after = set_type(self.kernel, place, str(kind.id), ())
        else:
            uuid = f"00000000-0000-0000-0000-{name.slot:012x}"
            after = create_mdev(self.kernel, place, kind.id, uuid, Vgpu(place, 0))
        self.prepared[device] = after[-1]
        self.kernel = replace(self.kernel, vgpus=after)

    def unprepare(self, device: str) -> None:
        vgpu = self.prepared.pop(device)
        after = (
            remove_mdev(self.kernel, vgpu.uuid, ())
            if vgpu.uuid
            else set_type(self.kernel, vgpu.function, "0", ())
        )
        self.kernel = replace(self.kernel, vgpus=after)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("seed", range(4))
def test_every_allocation_is_made_in_any_order(host: str, seed: int) -> None:
    *_, profiles = HOSTS[host]
    chance = Random(f"{host} {seed}")  # noqa: S311 - a test that can be repeated
    scene = Host.of(host)
    # A few profiles at a time, so that a GPU becomes full of one, and empty for another.
    for number in range(ROUNDS):
        step = chance.choice(("allocate", "allocate", "prepare", "prepare", "unprepare", "release"))
        waiting = sorted(scene.allocated.keys() - scene.prepared.keys())
        if step == "allocate":
            scene.allocate(number, chance.choice(profiles))
        elif step == "prepare" and waiting:
            scene.prepare(chance.choice(waiting))
        elif step == "unprepare" and scene.prepared:
            scene.unprepare(chance.choice(sorted(scene.prepared)))
        elif step == "release" and waiting:
            scene.release(chance.choice(waiting))

    assert scene.most > 0


@pytest.mark.parametrize("host", [name for name in HOSTS if "instances" not in name])
def test_the_scheduler_can_use_up_all_that_the_host_makes(host: str) -> None:
    *_, profiles = HOSTS[host]
    for profile in profiles:
        scene = Host.of(host)
        (kind,) = (one for one in scene.kernel.types if one.profile == profile)
        for number in range(kind.most + 1):
            scene.allocate(number, profile)
        assert len(scene.allocated) == kind.most
        for device in list(scene.allocated):
            scene.prepare(device)
        assert scene.kernel.creatable(scene.kernel.places[-1]) == ()


def test_an_instance_of_each_profile_has_one_vgpu() -> None:
    found = inventory(A100, 9, 14, 19)
    offered = offers(alone(found, 1), "vgpu: {profiles: [A100-1-5C, A100-2-10C, A100-3-20C, A100-7-40C]}")

    assert [device.attributes["profile"] for device in offered.devices] == [
        "A100-1-5C", "A100-2-10C", "A100-3-20C",
    ]  # fmt: skip
