"""The demo's act about MIG, held against the fake machine: what it says was made was there, and went."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from driver.nvml.mig import Placement
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.pods import ContainerFacts, DemoFailed, PodFacts
from gpuctl.demo.story import Narrator, StoryFacts, check_shared, partition_picture, tell
from gpuctl.plan.node_gpus import GpuFacts

Instances = dict[str, list[tuple[int, int]]]


class Witness(Narrator):
    """Writes down at each picture which GPU instances the machine has, from the machine's own state file."""

    def __init__(self, cluster: DemoCluster) -> None:
        self.text = io.StringIO()
        self.seen: list[Instances] = []
        self._cluster = cluster
        super().__init__(Console(file=self.text, width=80))

    def show(self, picture: RenderableType) -> None:
        super().show(picture)
        self.seen.append(self.instances())

    def instances(self) -> Instances:
        """The places of the GPU instances by PCI address, for each GPU in MIG mode."""
        (state,) = self._cluster.kubeconfig.parent.rglob("state.json")
        gpus = FakeMachine.open(f"{self._cluster.machine}@{state}").state.gpus
        return {
            str(pci): sorted((one.placement.start, one.placement.size) for one in gpu.mig.instances)
            for pci, gpu in gpus.items()
            if gpu.mig.enabled
        }


def played(machine: str) -> tuple[StoryFacts, Witness, Instances]:
    """The story on a machine, with what was on the machine at each picture and at the end."""
    with closing(DemoCluster("embedded", machine)) as cluster:
        witness = Witness(cluster)
        return tell(cluster, witness), witness, witness.instances()


def test_seven_pods_share_a_gpu_another_stays_whole_and_all_are_whole_in_the_end() -> None:
    facts, witness, end = played("hgx-h100")

    assert witness.seen == [{}, {}, {"0000:1b:00.0": [(start, 1) for start in range(7)]}, {}]
    assert end == {}
    act = facts.partitions
    assert act is not None
    assert (act.gpu, act.profile) == ("gpu-0000-1b-00-0", "1g.10gb")
    assert act.made == {act.gpu: tuple(Placement(start, 1) for start in range(7))}
    assert act.left == {}
    shared = {device for pod in act.small for device in pod.devices}
    assert shared == {f"gpu-0000-1b-00-0-mig-1g-10gb-{start}" for start in range(7)}
    assert act.big is not None
    assert act.big.devices == ("gpu-0000-df-00-0",)
    assert set(act.huge.devices) == {gpu.device for gpu in facts.gpus}
    text = witness.text.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "│small-6 │small-5 │small-4 │small-3 │small-2 │small-1 │small-0 │········│" in text
    assert "each sees only /dev/nvidia0 and the capability nodes of its own part" in text
    assert "GPU 7: whole, big has it\nGPU 1-6: whole, free" in text


def test_on_a_node_of_one_gpu_nothing_stays_whole_beside_the_small_pods() -> None:
    facts, witness, end = played("gh200")

    assert [len(places) for places in witness.seen[2].values()] == [7]
    assert end == {}
    assert facts.partitions is not None
    assert facts.partitions.big is None
    assert facts.partitions.huge.devices == (facts.partitions.gpu,)


@pytest.fixture
def gpu() -> GpuFacts:
    return GpuFacts("gpu-0000-1b-00-0", 0, "H100", "0000:1b:00.0", 0, 80 * 2**30, None, ())


def small(index: int, *nodes: str, device: str = "gpu-0000-1b-00-0-mig-1g-10gb-{}") -> PodFacts:
    """A pod with the partition at this memory slice, whose container sees these nodes."""
    seen = ContainerFacts("main", nodes, {}, 0)
    return PodFacts(f"small-{index}", (device.format(index),), (seen,))


def of_its_own(index: int) -> PodFacts:
    """A pod as it has to be: the GPU's node and two capability nodes that nobody else has."""
    caps = (f"/dev/nvidia-caps/nvidia-cap{2 * index}", f"/dev/nvidia-caps/nvidia-cap{2 * index + 1}")
    return small(index, "/dev/nvidia0", "/dev/nvidiactl", *caps)


def places(*starts: int) -> tuple[Placement, ...]:
    return tuple(Placement(start, 1) for start in starts)


def test_pods_with_parts_of_their_own_pass(gpu: GpuFacts) -> None:
    pods = [of_its_own(1), of_its_own(0)]
    assert check_shared(gpu, pods, {gpu.device: places(0, 1)}) == "/dev/nvidia0"


def wrong() -> Iterator[tuple[list[PodFacts], dict[str, tuple[Placement, ...]], str]]:
    """Pods, what the machine has, and a word of the complaint."""
    name, good = "gpu-0000-1b-00-0", [of_its_own(0), of_its_own(1)]
    yield good, {name: places(0)}, "the machine made"
    yield good, {name: places(0, 1, 2)}, "the machine made"
    yield good, {name: places(0, 1), "gpu-0000-43-00-0": ()}, "the machine made"
    yield good, {}, "the machine made"
    yield [replace(of_its_own(0), devices=(name,))], {name: places(0)}, "not a partition of"
    yield [small(0, device="gpu-0000-43-00-0-mig-1g-10gb-{}")], {name: places(0)}, "not a partition of"
    neighbour = replace(of_its_own(0), devices=(f"{name}-mig-1g-10gb-1",))
    yield [of_its_own(0), neighbour], {name: places(0, 1)}, "capability nodes"
    yield [small(0, "/dev/nvidia0")], {name: places(0)}, "capability nodes"
    other = small(1, "/dev/nvidia1", *of_its_own(1).containers[0].device_nodes[2:])
    yield [of_its_own(0), other], {name: places(0, 1)}, "capability nodes"


@pytest.mark.parametrize(("pods", "made", "named"), list(wrong()))
def test_pods_that_see_more_or_less_than_their_part_end_the_story(
    gpu: GpuFacts, pods: list[PodFacts], made: dict[str, tuple[Placement, ...]], named: str
) -> None:
    with pytest.raises(DemoFailed, match=named):
        check_shared(gpu, pods, made)


def test_the_picture_puts_each_pod_where_its_part_lies(gpu: GpuFacts) -> None:
    other = replace(gpu, device="gpu-0000-43-00-0", index=1)

    text = partition_picture(gpu, [of_its_own(0), of_its_own(2)], places(0, 2), None, [gpu, other], 4).plain

    assert "│     small-0      │··················│     small-2      │··················│" in text
    assert text.splitlines()[-1] == "GPU 1: whole, free"
