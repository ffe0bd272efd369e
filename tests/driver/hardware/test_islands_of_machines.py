"""Which islands and meshes the GPUs of each machine form, as docs/topology.md says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from driver.hardware.gpu import Gpu
from driver.hardware.topology import nvlink_islands, nvlink_meshes
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.spec import known_machines
from tools.conformance.nodes.mig_nodes import inventory

PAGE = Path(__file__).resolve().parents[3] / "docs" / "topology.md"
LOOK_ON = frozenset(
    {
        "a100-vgpu-guest",
        "a100-vgpu-guest-quad",
        "a30-passthrough-guest",
        "a30-vgpu-guest",
        "l40s-vgpu-unlicensed",
        "passthrough-quad",
        "vgpu-and-passthrough",
        "vgpu-host-a100-mdev",
        "vgpu-host-l40s",
    }
)
"""Guests and hosts of virtual machines: no links reach into those, and none are shown of these."""

Sizes = tuple[list[int], list[int]]


def documented() -> dict[str, Sizes]:
    """The sizes of islands and meshes by machine, as the page's table has them."""
    found: dict[str, Sizes] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and set(cells[0].split(", ")) & set(known_machines()):
            islands, meshes = (sorted(map(int, cell.split(" + "))) if cell else [] for cell in cells[2:])
            found |= dict.fromkeys(cells[0].split(", "), (islands, meshes))
    return found


def sizes(groups: Callable[[Iterable[Gpu]], Mapping[PciAddress, str]], gpus: Iterable[Gpu]) -> list[int]:
    return sorted(Counter(groups(gpus).values()).values())


def test_the_page_has_each_machine_with_gpus_of_its_own() -> None:
    assert documented().keys() == set(known_machines()) - LOOK_ON


@pytest.mark.parametrize("machine", sorted(known_machines()))
def test_islands_and_meshes_are_as_the_page_says(machine: str) -> None:
    gpus = inventory(machine, "delivered").gpus

    assert (sizes(nvlink_islands, gpus), sizes(nvlink_meshes, gpus)) == documented().get(machine, ([], []))
