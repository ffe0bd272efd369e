"""A GPU that a virtual machine has is held, not lost: nothing of what is published moves or changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.publish.changeover import Published, Seen
from tests.clusters import Backoff, Changeover, Object
from tests.controller.mig_node import POOL, slices
from tests.controller.observed import Observed
from tests.gpus import FakeKernel, FakeMachine, Guard, NodeState, build_sysfs, gpu_device_name, parse_config

ALL_KINDS = (
    "mig: {dynamic: {profiles: [1g, 3g]}}, shared: {strategy: TimeSlicing, shares: 4}, passthrough: true"
)
ALONE = "offer: passthrough"
SECONDS = 5.0


class Node:
    """A fake machine with its kernel, the controller's look at it, and what it would have published."""

    def __init__(self, folder: Path, guard: Guard, rule: str, machine: str) -> None:
        self.flag = f"{machine}@{folder / 'state.json'}"
        self.machine = FakeMachine.open(self.flag)
        self.sysfs = build_sysfs(folder, self.machine)
        self.gpus = sorted(self.machine.state.gpus)
        self.kernel = FakeKernel(self.sysfs, self.machine)
        self.kernel.load_module("vfio_pci", SECONDS)  # from then on there is IOMMUFD
        self.guard = guard
        self.rules = parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", "rules")
        self.allocated: frozenset[str] = frozenset()
        self.slices: list[Object] = []
        self.held: tuple[str, ...] = ()
        self.begin()

    def begin(self) -> None:
        """Start a controller, which knows nothing but what is stored."""
        self.changeover = Changeover(POOL, lambda: self.allocated, 0.0, Backoff(0.0, 0.0))
        self.remembered = Published()
        self.seen = Observed(self.guard, self.flag, None, self.sysfs)
        self.seen.rules = self.rules
        self.tell(*self.held)

    def tell(self, *held: str) -> None:
        """The plugin says what claims hold."""
        self.held = held
        self.seen.observer.plugin_reports(NodeState(held))

    def look(self) -> list[Object]:
        """Look, publish, and give what is stored then."""
        self.seen.check()
        self.seen.discovery.close()
        seen = Seen(self.seen.all[-1], frozenset(self.held), self.slices)
        self.remembered = self.changeover.step(self.remembered, seen)
        self.slices = slices(self.remembered.offers)
        return self.slices

    def bind(self, gpu: int, driver: str) -> None:
        """Have another kernel driver take a GPU, as prepare and unprepare do."""
        pci = str(self.gpus[gpu])
        function = self.sysfs / "bus/pci/devices" / pci
        self.kernel.write(function / "driver_override", driver, SECONDS)
        self.kernel.write(function / "driver" / "unbind", pci, SECONDS)
        self.kernel.write(self.sysfs / "bus/pci/drivers_probe", pci, SECONDS)
        assert (function / "driver").readlink().name == driver

    def devices(self) -> list[Object]:
        """What is published, in its order."""
        return [device for one in self.slices for device in one["spec"].get("devices", ())]

    def names(self) -> list[str]:
        return [device["name"] for device in self.devices()]

    def taints(self) -> set[str]:
        return {taint["key"] for device in self.devices() for taint in device.get("taints", ())}

    def vfio(self, gpu: int) -> str:
        """The name of a GPU for a virtual machine."""
        return f"{gpu_device_name(self.gpus[gpu])}-vfio"


@pytest.fixture(params=[ALL_KINDS, ALONE], ids=["beside its other forms", "alone"])
def node(request: pytest.FixtureRequest, tmp_path: Path, guard: Guard) -> Node:
    return Node(tmp_path, guard, request.param, "hgx-h100")


def test_the_slices_are_the_same_while_a_virtual_machine_has_a_gpu_and_afterwards(node: Node) -> None:
    gpu = 3
    before = node.look()
    assert node.vfio(gpu) in node.names()

    node.tell(node.vfio(gpu))
    assert node.look() == before
    node.bind(gpu, "vfio-pci")
    assert node.look() == before
    node.begin()  # a controller that starts meanwhile
    assert node.look() == before
    node.slices = []  # wiped by a kubelet
    assert node.look() == before
    node.bind(gpu, "nvidia")
    node.tell()
    assert node.look() == before
    assert node.seen.events.posted == []


@pytest.mark.parametrize(
    "rule", ["passthrough: true", ALL_KINDS], ids=["beside the whole GPU", "beside all forms"]
)
def test_a_look_that_comes_before_the_plugin_says_who_has_the_gpu_frees_nothing_of_it(
    tmp_path: Path, guard: Guard, rule: str
) -> None:
    """On a busy node a pod was given the GPU that a virtual machine had just got, and waited for its end."""
    node = Node(tmp_path, guard, rule, "hgx-h100")
    node.changeover = replace(node.changeover, settle_seconds=60.0)
    node.look()
    node.allocated = frozenset({node.vfio(3)})
    node.bind(3, "vfio-pci")
    node.look()
    node.tell(node.vfio(3))
    node.look()

    of_gpu = [one for one in node.devices() if one["name"].startswith(node.vfio(3).removesuffix("-vfio"))]
    assert len(of_gpu) > 1
    assert [one["name"] for one in of_gpu if not one.get("taints") and not one.get("consumesCounters")] == []


def test_all_gpus_of_a_node_may_be_with_virtual_machines(node: Node) -> None:
    before = node.look()
    node.tell(*map(node.vfio, range(8)))
    for gpu in range(8):
        node.bind(gpu, "vfio-pci")
    assert node.look() == before
    node.begin()
    assert node.look() == before
    assert node.taints() == set()


def test_a_node_without_an_nvidia_driver_offers_its_gpus_to_virtual_machines(
    tmp_path: Path, guard: Guard
) -> None:
    node = Node(tmp_path, guard, ALONE, "l40s-octo")
    node.machine.driver_gone()

    node.look()

    assert node.names() == [node.vfio(gpu) for gpu in range(8)]
    assert node.taints() == set()


def test_a_gpu_that_somebody_else_took_loses_its_other_forms_and_not_before_they_are_free(
    tmp_path: Path, guard: Guard
) -> None:
    node = Node(tmp_path, guard, ALL_KINDS, "hgx-h100")
    node.look()
    mine = node.vfio(4).removesuffix("-vfio")
    node.bind(4, "vfio-pci")
    node.allocated = frozenset({mine})

    node.look()
    node.look()
    assert [name for name in node.names() if name.startswith(mine)] == [f"{mine}-vfio", mine]
    assert node.taints() == {"gpu.nvidia.com/blocked", "gpu.nvidia.com/changing"}

    node.allocated = frozenset()
    node.look()
    assert [name for name in node.names() if name.startswith(mine)] == [f"{mine}-vfio"]
    assert node.taints() == set()
