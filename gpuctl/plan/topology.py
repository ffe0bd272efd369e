"""How the GPUs of a node reach each other, as a matrix in the terms of ``nvidia-smi topo -m``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuctl.cli.output import columns
from gpuctl.fleet.gpus import GpuState
from gpuctl.plan.node_gpus import numbers, ranges, typed_attribute

_ROOT = "resource.kubernetes.io/pcieRoot"

PciePath = Literal["X", "PIX", "PXB", "PHB", "NODE", "SYS", "-"]
Path = Literal["NV"] | PciePath

LEGEND: dict[Path, str] = {
    "X": "the GPU itself",
    "NV": "NVLinks, straight or through NVSwitches; the number says how many",
    "PIX": "PCIe within one switch",
    "PXB": "PCIe over several switches below one host bridge",
    "PHB": "PCIe within one host bridge",
    "NODE": "PCIe between the host bridges of one NUMA node",
    "SYS": "PCIe and the link between NUMA nodes",
    "-": "not published",
}


@dataclass(frozen=True, slots=True)
class GpuPaths:
    """A GPU of a node, and how it reaches the others."""

    device: str
    """The device's name in the slices."""

    index: int | None
    """The index as nvidia-smi counts."""

    pciBusID: str | None  # noqa: N815 - as the attribute that Kubernetes defines
    pcie_root: str | None
    pcie_switches: tuple[str, ...]
    """Ports of PCIe switches from the root down; the same for GPUs below the same switch."""

    numa_node: int | None
    cpu_affinity: str | None
    """The CPUs near it, as in local_cpulist of sysfs."""

    nvlink_domain: str | None
    """GPUs with the same value reach each other over NVLink."""

    paths: Mapping[str, Path]
    """By the name of the other device: the best path, in the terms of nvidia-smi topo -m."""

    pcie_paths: Mapping[str, PciePath]
    """By the name of the other device: the path over PCIe, whether there are NVLinks or not."""

    nvlinks: Mapping[str, int]
    """By the name of the other device: how many NVLinks lead there, where that is published."""

    @property
    def label(self) -> str:
        """What the GPU is called in the matrix: ``GPU0``."""
        return self.device if self.index is None else f"GPU{self.index}"

    def path_to(self, device: str) -> str:
        """The best path as nvidia-smi writes it: ``NV12``, ``PIX``."""
        return f"{self.paths[device]}{self.nvlinks.get(device, '')}"


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """What `gpuctl plan --topology` prints: how the GPUs of a node are connected."""

    node: str
    """The node, or the machine."""

    gpus: tuple[GpuPaths, ...]


def topology_of(node: str, gpus: Sequence[GpuState]) -> NodeTopology:
    """The topology of published GPUs."""
    return NodeTopology(node, tuple(_paths(gpu, gpus) for gpu in gpus))


def _paths(gpu: GpuState, gpus: Sequence[GpuState]) -> GpuPaths:
    pcie_paths = {other.device: pcie_path(gpu, other) for other in gpus}
    links = {other.device: _nvlinks(gpu, other) or _nvlinks(other, gpu) for other in gpus if other != gpu}
    linked = [device for device, number in links.items() if number is not None]
    return GpuPaths(
        device=gpu.device,
        index=gpu.index,
        pciBusID=gpu.pci,
        pcie_root=typed_attribute(gpu, _ROOT, str),
        pcie_switches=_switches(gpu),
        numa_node=typed_attribute(gpu, "numaNode", int),
        cpu_affinity=typed_attribute(gpu, "cpuAffinity", str),
        nvlink_domain=typed_attribute(gpu, "nvlinkDomain", str),
        paths=pcie_paths | dict.fromkeys(linked, "NV"),
        pcie_paths=pcie_paths,
        nvlinks={device: number for device, number in links.items() if number},
    )


def _nvlinks(gpu: GpuState, other: GpuState) -> int | None:
    """How many NVLinks lead to the other GPU; 0 if that is not known, None if there are none."""
    peers, links = numbers(gpu, "nvlinkPeers"), numbers(gpu, "nvlinkPeerLinks")
    if other.index not in peers:
        return None
    # One number is published if it is the same for all peers.
    links = links * len(peers) if len(links) == 1 else links
    return links[peers.index(other.index)] if len(links) == len(peers) else 0


def _switches(gpu: GpuState) -> tuple[str, ...]:
    published = typed_attribute(gpu, "pcieSwitches", str)
    return tuple(published.split("/")) if published else ()


def pcie_path(gpu: GpuState, other: GpuState) -> PciePath:
    """How near two GPUs are on PCIe, in the words of nvmlDeviceGetTopologyCommonAncestor."""
    if gpu.device == other.device:
        return "X"
    root, numa_node = (gpu.attributes.get(name) for name in (_ROOT, "numaNode"))
    if root is not None and root == other.attributes.get(_ROOT):
        # Without published switches, GPUs below a common switch look like GPUs below a common host bridge.
        switches, others = _switches(gpu), _switches(other)
        if not switches or switches[:1] != others[:1]:
            return "PHB"
        return "PIX" if switches == others else "PXB"
    if numa_node is None or (others_node := other.attributes.get("numaNode")) is None:
        return "-"
    return "NODE" if numa_node == others_node else "SYS"


def legend(topology: NodeTopology) -> str:
    """What the paths of the matrix mean, a line for each."""
    used = {path for gpu in topology.gpus for path in gpu.paths.values()}
    return "\n".join(f"{path:<5}{meaning}" for path, meaning in LEGEND.items() if path in used)


def topology_rows(topology: NodeTopology) -> list[dict[str, str]]:
    """The matrix, with the near CPUs, NUMA node, PCIe root and NVLink island of each GPU."""
    gpus = topology.gpus
    domains = sorted({gpu.nvlink_domain for gpu in gpus if gpu.nvlink_domain})
    islands: dict[str | None, str] = {None: "-"}
    for number, domain in enumerate(domains):
        members = (gpu.index for gpu in gpus if gpu.nvlink_domain == domain and gpu.index is not None)
        islands[domain] = f"{chr(ord('A') + number)} ({ranges(members)})"
    return [
        {
            "gpu": gpu.label,
            **{other.label: gpu.path_to(other.device) for other in gpus},
            "CPU affinity": gpu.cpu_affinity or "-",
            "NUMA": "-" if gpu.numa_node is None else str(gpu.numa_node),
            "PCIe root": gpu.pcie_root or "-",
            "NVLink island": islands[gpu.nvlink_domain],
        }
        for gpu in gpus
    ]


def topology_text(topology: NodeTopology) -> str:
    """The rows below the node's name, with their legend."""
    rows = topology_rows(topology)
    matrix = columns([*rows[0]], [[*row.values()] for row in rows])
    return "\n".join((topology.node, matrix, legend(topology)))
