"""How the GPUs of a node reach each other, as a matrix in the terms of ``nvidia-smi topo -m``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table

from gpuctl.plan.node_gpus import GpuFacts, ranges

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
class Cell:
    """How one GPU reaches another: the best path, the path over PCIe, and the number of NVLinks if known."""

    path: Path
    pcie: PciePath
    nvlinks: int | None = None

    def __str__(self) -> str:
        """As nvidia-smi writes it: ``NV12``, ``PIX``."""
        return f"{self.path}{self.nvlinks}" if self.nvlinks else self.path


@dataclass(frozen=True, slots=True)
class Matrix:
    """The GPUs of a node in their order, and how each reaches each."""

    gpus: tuple[GpuFacts, ...]
    cells: tuple[tuple[Cell, ...], ...]

    def as_data(self) -> dict[str, Any]:
        """The matrix for scripts."""
        return {
            "gpus": [
                {
                    "device": gpu.device,
                    "index": gpu.index,
                    "pciBusID": gpu.pci,
                    "pcieRoot": gpu.pcie_root,
                    "pcieSwitches": list(gpu.pcie_switches),
                    "numaNode": gpu.numa_node,
                    "cpuAffinity": gpu.cpu_affinity,
                    "nvlinkDomain": gpu.nvlink_island,
                    "paths": {name: cell.path for name, cell in self._row(row)},
                    "pciePaths": {name: cell.pcie for name, cell in self._row(row)},
                    "nvlinks": {name: cell.nvlinks for name, cell in self._row(row) if cell.nvlinks},
                }
                for gpu, row in zip(self.gpus, self.cells, strict=True)
            ]
        }

    def _row(self, row: tuple[Cell, ...]) -> list[tuple[str, Cell]]:
        return list(zip((gpu.device for gpu in self.gpus), row, strict=True))


def matrix_of(gpus: Sequence[GpuFacts]) -> Matrix:
    """The matrix of published GPUs."""
    return Matrix(tuple(gpus), tuple(tuple(_cell(one, other) for other in gpus) for one in gpus))


def label(gpu: GpuFacts) -> str:
    """What the GPU is called in the matrix: ``GPU0``."""
    return gpu.label if gpu.index is None else f"GPU{gpu.index}"


def _cell(one: GpuFacts, other: GpuFacts) -> Cell:
    pcie = pcie_path(one, other)
    if pcie != "X" and (other.index in one.nvlink_peers or one.index in other.nvlink_peers):
        return Cell("NV", pcie, _nvlinks(one, other) or _nvlinks(other, one))
    return Cell(pcie, pcie)


def _nvlinks(one: GpuFacts, other: GpuFacts) -> int | None:
    if other.index is None or not one.nvlink_peer_links or other.index not in one.nvlink_peers:
        return None
    return one.nvlink_peer_links[one.nvlink_peers.index(other.index)]


def pcie_path(one: GpuFacts, other: GpuFacts) -> PciePath:
    """How near two GPUs are on PCIe, in the words of nvmlDeviceGetTopologyCommonAncestor."""
    if one.device == other.device:
        return "X"
    if one.pcie_root is not None and one.pcie_root == other.pcie_root:
        # Without published switches, GPUs below a common switch look like GPUs below a common host bridge.
        if not one.pcie_switches or one.pcie_switches[:1] != other.pcie_switches[:1]:
            return "PHB"
        return "PIX" if one.pcie_switches == other.pcie_switches else "PXB"
    if one.numa_node is None or other.numa_node is None:
        return "-"
    return "NODE" if one.numa_node == other.numa_node else "SYS"


def matrix_table(node: str, matrix: Matrix) -> Table:
    """The matrix, with the near CPUs, NUMA node, PCIe root and NVLink island of each GPU."""
    table = Table(title=node, box=box.SIMPLE_HEAD, caption=_legend(matrix), caption_justify="left")
    table.add_column("")
    names = [label(gpu) for gpu in matrix.gpus]
    for name in (*names, "CPU affinity", "NUMA", "PCIe root", "NVLink island"):
        table.add_column(name, no_wrap=True)
    islands = sorted({gpu.nvlink_island for gpu in matrix.gpus if gpu.nvlink_island})
    for name, gpu, row in zip(names, matrix.gpus, matrix.cells, strict=True):
        table.add_row(
            name,
            *map(str, row),
            gpu.cpu_affinity or "-",
            "-" if gpu.numa_node is None else str(gpu.numa_node),
            gpu.pcie_root or "-",
            _island(gpu, islands, matrix.gpus),
        )
    return table


def _island(gpu: GpuFacts, islands: Sequence[str], gpus: Sequence[GpuFacts]) -> str:
    if gpu.nvlink_island is None:
        return "-"
    members = [one.index for one in gpus if one.nvlink_island == gpu.nvlink_island and one.index is not None]
    return f"{chr(ord('A') + islands.index(gpu.nvlink_island))} ({ranges(members)})"


def _legend(matrix: Matrix) -> str:
    return "\n".join(f"{path:<5}{meaning}" for path, meaning in used_legend(matrix).items())


def used_legend(matrix: Matrix) -> dict[Path, str]:
    """The meaning of the paths in the matrix."""
    used = {cell.path for row in matrix.cells for cell in row}
    return {path: meaning for path, meaning in LEGEND.items() if path in used}
