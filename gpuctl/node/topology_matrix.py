"""How the GPUs of a node reach each other, as a matrix in the terms of ``nvidia-smi topo -m``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table

from gpuctl.node.picture import GpuFacts, ranges

Path = Literal["X", "NV", "PHB", "NODE", "SYS", "-"]

LEGEND: dict[Path, str] = {
    "X": "the GPU itself",
    "NV": "NVLinks, straight or through NVSwitches",
    "PHB": "PCIe within one host bridge",
    "NODE": "PCIe between the host bridges of one NUMA node",
    "SYS": "PCIe and the link between NUMA nodes",
    "-": "not published",
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """The GPUs of a node in their order, and the best path from each to each."""

    gpus: tuple[GpuFacts, ...]
    paths: tuple[tuple[Path, ...], ...]

    def as_data(self) -> dict[str, Any]:
        """The matrix for scripts."""
        return {
            "gpus": [
                {
                    "device": gpu.device,
                    "index": gpu.index,
                    "pciBusID": gpu.pci,
                    "pcieRoot": gpu.pcie_root,
                    "numaNode": gpu.numa_node,
                    "nvlinkDomain": gpu.nvlink_island,
                    "paths": dict(zip((other.device for other in self.gpus), row, strict=True)),
                }
                for gpu, row in zip(self.gpus, self.paths, strict=True)
            ]
        }


def matrix_of(gpus: Sequence[GpuFacts]) -> Matrix:
    """The matrix of published GPUs."""
    return Matrix(tuple(gpus), tuple(tuple(_path(one, other) for other in gpus) for one in gpus))


def _path(one: GpuFacts, other: GpuFacts) -> Path:
    if one.device == other.device:
        return "X"
    if other.index in one.nvlink_peers or one.index in other.nvlink_peers:
        return "NV"
    if one.pcie_root is not None and one.pcie_root == other.pcie_root:
        return "PHB"
    if one.numa_node is None or other.numa_node is None:
        return "-"
    return "NODE" if one.numa_node == other.numa_node else "SYS"


def matrix_table(node: str, matrix: Matrix) -> Table:
    """The matrix with what places each GPU: NUMA node, PCIe root, NVLink island."""
    table = Table(title=node, box=box.SIMPLE_HEAD, caption=_legend(matrix), caption_justify="left")
    table.add_column("")
    names = [f"GPU{gpu.label}" if gpu.index is not None else gpu.label for gpu in matrix.gpus]
    for name in (*names, "NUMA", "PCIe root", "NVLink island"):
        table.add_column(name, no_wrap=True)
    islands = sorted({gpu.nvlink_island for gpu in matrix.gpus if gpu.nvlink_island})
    for name, gpu, row in zip(names, matrix.gpus, matrix.paths, strict=True):
        table.add_row(
            name,
            *row,
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
    used = {path for row in matrix.paths for path in row}
    return "\n".join(f"{path:<5}{meaning}" for path, meaning in LEGEND.items() if path in used)
