"""Metrics tell what each claim has of its GPU and uses of it; unknown values are left out."""

from contextlib import suppress
from pathlib import Path

import pytest

from fakegpu.use.state import ProcessState
from kubeletplugin.reports.use.node_use import LINKS, ContainerGroup, ProcessContainers, container_of
from tests.gpus import NotSupported, gpu_device_name
from tests.kubeletplugin.fake_node import POOL
from tests.kubeletplugin.reports.use.use_node import GIB, UseNode
from tests.plugin import ContainerName, record_of


def test_a_whole_gpu_is_told_with_whose_it_is_and_what_is_used(h100: UseNode) -> None:
    ref = h100.claim("train", 2)
    h100.has_class(ref, "gpu-exclusive")
    h100.prepare(ref)
    h100.run(ref, 71, pod="train-0")
    h100.machine.use(2, compute=0.75, processes={71: 30 * GIB})

    (labels, one), *_ = h100.samples("device_info")
    assert one == 1
    assert labels == {
        "claim_namespace": "team",
        "claim": "train",
        "pod": "train-0",
        "class": "gpu-exclusive",
        "kind": "whole",
        "device": gpu_device_name(h100.gpus[2]),
        "uuid": h100.machine.uuid(h100.gpus[2]),
        "share_id": "",
        "pool": POOL,
        "gpu_uuid": h100.machine.uuid(h100.gpus[2]),
        "pci_bus_id": str(h100.gpus[2]),
        "profile": "",
    }
    total = h100.of_gpu(2)["memory_total_bytes"]
    assert h100.told("train") == {
        "memory_allocated_bytes": total,
        "memory_used_bytes": 30 * GIB,
        "share_ratio": 1,
        "utilization_ratio": 0.75,
    }


def test_a_partition_is_told_with_its_profile_its_part_and_what_is_used_of_it(h100: UseNode) -> None:
    ref = h100.prepared_devices("slice", h100.part())
    entry = h100.journal.get(ref.uid)
    record = record_of(entry.devices[0]) if entry is not None else None
    assert record is not None
    assert record.gpu_instance_id is not None
    uuid = record.uuid
    h100.machine.use(uuid, compute=0.5, used_bytes=4 * GIB)
    begin_sample(h100, 0, record.gpu_instance_id)

    told = h100.told("slice")

    ((info, _),) = h100.samples("device_info")
    assert (info["kind"], info["profile"], info["uuid"]) == ("partition", "1g.10gb", uuid)
    assert info["gpu_uuid"] == h100.machine.uuid(h100.gpus[0])
    assert (told["memory_used_bytes"], told["utilization_ratio"]) == (4 * GIB, 0.5)
    assert told["share_ratio"] == told["memory_allocated_bytes"] / h100.of_gpu(0)["memory_total_bytes"]
    assert 0.1 < told["share_ratio"] < 0.15
    assert "utilization_ratio" not in h100.of_gpu(0), "NVML does not tell it with MIG on"


def begin_sample(node: UseNode, gpu: int, instance: int) -> None:
    """Ask for the first time how busy a partition is, which NVML answers from the second time on."""
    with suppress(NotSupported):
        node.discovery.on_gpu(node.gpus[gpu], lambda device, _watch: device.partition_utilisation(instance))


def shares(node: UseNode) -> None:
    """Two claims with a share of GPU 1, one process each, and a process of the host."""
    device = f"{gpu_device_name(node.gpus[1])}-ts-4"
    for number, name in enumerate(("a", "b")):
        ref = node.prepared_shares(name, device)
        node.run(ref, 81 + number, pod=f"{name}-0")
    node.lay_process(90, "/system.slice/monitor.service")


def test_shares_are_told_apart_by_their_processes(h100: UseNode) -> None:
    shares(h100)
    device = f"{gpu_device_name(h100.gpus[1])}-ts-4"
    idle, without_container = (h100.claim_shares(name, device) for name in "cd")
    for ref in (idle, without_container):
        h100.prepare(ref)
    h100.run(idle, 83, pod="c-0")
    h100.machine.use(
        1,
        processes={
            81: ProcessState(81, 6 * GIB, 0.5),
            82: ProcessState(82, 2 * GIB, 0.25),
            90: ProcessState(90, GIB, 0.1),
        },
    )

    assert h100.told("a") == {
        "memory_allocated_bytes": (81559 - 454) * 2**20 // 4,
        "memory_used_bytes": 6 * GIB,
        "share_ratio": pytest.approx(0.25),
        "utilization_ratio": 0.5,
    }
    assert h100.told("b")["memory_used_bytes"] == 2 * GIB
    assert h100.told("c")["memory_used_bytes"] == 0
    assert "memory_used_bytes" not in h100.told("d")
    assert {labels["kind"] for labels, _ in h100.samples("device_info")} == {"time-slicing"}
    containers = {
        (labels["claim"], labels["pod"], labels["container"]): value
        for labels, value in h100.samples("container_gpu_memory_used_bytes")
    }
    assert containers == {("a", "a-0", "main"): 6 * GIB, ("b", "b-0", "main"): 2 * GIB}
    assert h100.of_gpu(1)["memory_used_bytes"] == 9 * GIB


def test_with_a_process_of_nobody_knows_whom_shares_of_its_gpu_have_no_use_told(h100: UseNode) -> None:
    shares(h100)
    h100.machine.use(1, processes={81: 6 * GIB, 99: GIB})
    assert not {"memory_used_bytes", "utilization_ratio"} & h100.told("a").keys()
    assert h100.told("a")["share_ratio"] == pytest.approx(0.25)
    assert h100.of_gpu(1)["memory_used_bytes"] == 7 * GIB


def test_a_claim_of_several_pods_names_none_and_its_containers_each(h100: UseNode) -> None:
    ref = h100.prepared("both", 3)
    h100.run(ref, 61, pod="one")
    h100.run(ref, 62, pod="two")
    h100.machine.use(3, processes={61: GIB, 62: 2 * GIB})

    ((labels, used),) = h100.samples("device_memory_used_bytes")
    assert (labels["pod"], used) == ("", 3 * GIB)
    containers = h100.samples("container_gpu_memory_used_bytes")
    assert sorted((one["pod"], value) for one, value in containers) == [("one", GIB), ("two", 2 * GIB)]


def test_a_gpu_tells_what_it_draws_and_how_hot_it_is(h100: UseNode) -> None:
    h100.machine.use(4, compute=0.5, power_milliwatts=350_500, temperature_celsius=66)

    h100.machine.fail("power_milliwatts", gpu=5)

    told = h100.of_gpu(4)

    assert (told["power_watts"], told["power_limit_watts"]) == (350.5, 700)
    assert (told["temperature_celsius"], told["utilization_ratio"]) == (66, 0.5)
    assert told.keys() - h100.of_gpu(5).keys() == {"power_watts"}, "a call that fails leaves out its own"


def test_a_gpu_that_hangs_has_no_readings_and_holds_up_neither_the_others_nor_a_prepare(
    h100: UseNode,
) -> None:
    h100.machine.hang("memory_use", gpu=0)
    try:
        assert h100.of_gpu(0).keys() == {"info", "memory_total_bytes", "memory_allocated_bytes"}
        assert "memory_used_bytes" in h100.of_gpu(1)
        h100.prepared("train", 0)
        assert h100.told("train") == {
            "memory_allocated_bytes": h100.of_gpu(0)["memory_total_bytes"],
            "share_ratio": 1,
        }
    finally:
        h100.machine.heal()


def test_while_nvml_is_let_go_of_nothing_is_read_and_what_the_journal_says_is_told(h100: UseNode) -> None:
    h100.prepared("train", 2)
    with h100.discovery.let_go():
        assert h100.told("train").keys() == {"memory_allocated_bytes", "share_ratio"}


def test_devices_are_counted_by_type_as_nvidias_driver_does(h100: UseNode) -> None:
    h100.prepared("two", 0, 1)
    h100.prepared_devices("slice", h100.part(6, 3))

    labels = {"node": "node-a", "driver": "gpu.nvidia.com"}
    registry = h100.metrics.registry
    for device_type, count in (("gpu", 2), ("mig", 1)):
        told = {**labels, "device_type": device_type}
        assert registry.get_sample_value("nvidia_dra_prepared_devices", told) == count


UID = "0f0a1c2e-1111-4222-8333-abcdefabcdef"
SLICE_UID = UID.replace("-", "_")
ID, OTHER = "a1" * 32, "b2" * 32
IN_KUBEPODS = f"kubepods-burstable-pod{SLICE_UID}.slice"


@pytest.mark.parametrize(
    "told",
    [
        f"0::/kubepods.slice/kubepods-burstable.slice/{IN_KUBEPODS}/cri-containerd-{ID}.scope\n",
        f"0::/kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope\n",
        f"0::/kubepods/besteffort/pod{UID}/{ID}\n",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice/docker-{ID}.scope",
        f"0::/kubepods/pod{UID}/{ID}/pod{UID}/{OTHER}\n",
        f"12:pids:/kubepods/pod{UID}/{ID}\n1:name=systemd:/kubepods/pod{UID}/{ID}\n0::/system.slice\n",
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice/{ID}\n",
    ],
)
def test_a_container_is_told_by_its_group(told: str) -> None:
    assert container_of(told) == ContainerGroup(UID, ID)


@pytest.mark.parametrize(
    "told",
    [
        "0::/\n",
        "0::/system.slice/nvidia-persistenced.service\n",
        f"0::/kubepods/pod{UID}\n",
        f"0::/user.slice/{ID}.scope\n",
        f"0::/kubepods/podevil/{ID}\n",
    ],
)
def test_what_is_no_container_of_a_pod_is_none(told: str) -> None:
    assert container_of(told) is None


class Host:
    """The files of a node that are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        (root / LINKS).mkdir(parents=True)

    def process(self, pid: int, group: str) -> None:
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(f"0::{group}\n")

    def link(self, name: str) -> None:
        (self.root / LINKS / name).symlink_to("/var/log/pods/gone")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_names_come_from_the_kubelets_links_and_none_is_followed(host: Host) -> None:
    host.process(7, f"/kubepods/pod{UID}/{ID}")
    host.process(8, "/system.slice/cron.service")
    host.link(f"train-0_team_main-{ID}.log")
    host.link("something else")

    found = ProcessContainers(host.proc, host.root).of([7, 8, 9])

    assert found == {7: ContainerName("team", "train-0", "main"), 8: None}


def test_a_container_without_a_link_is_not_known_and_looked_for_again(host: Host) -> None:
    host.process(7, f"/kubepods/pod{UID}/{ID}")
    containers = ProcessContainers(host.proc, host.root)
    assert containers.of([7]) == {}
    host.link(f"train-0_team_main-{ID}.log")
    assert containers.of([7]) == {7: ContainerName("team", "train-0", "main")}
