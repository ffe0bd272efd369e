"""The topology of a node is drawn in the terms of nvidia-smi, from what the node publishes."""

import pytest

from fakegpu.machine.spec import Slot, TopologyLevel, topology_level
from gpuctl.plan.topology import NodeTopology, topology_of
from tests.clusters import Object, plan_node, views_of
from tests.gpuctl.plan.test_node_gpus import bare
from tests.gpus import known_machines, load_machine

FIRST_ROWS = {
    "dgx-a100": "X" + " NV12" * 7,
    "dgx2": "X" + " NV6" * 15,
    "hgx-b200": "X" + " NV18" * 7,
    "a30-quad": "X NV4 SYS SYS",
    "gb200-tray": "X NV18 NV18 NV18",
    "l4-quad": "X NODE SYS SYS",
    "t4": "X",
}
"""What `nvidia-smi topo -m` prints for the first GPU of such machines."""

DISTANCES: dict[TopologyLevel, str] = {
    "internal": "X", "single": "PIX", "multiple": "PXB", "hostbridge": "PHB", "node": "NODE", "system": "SYS",
}  # fmt: skip


def topology(machine: str) -> NodeTopology:
    [view] = views_of(plan_node(machine, "node", None).slices, ())
    return topology_of("node", view.gpus)


def matrix(found: NodeTopology) -> list[str]:
    return [" ".join(gpu.path_to(other.device) for other in found.gpus) for gpu in found.gpus]


@pytest.mark.parametrize("machine", FIRST_ROWS)
def test_a_machine_is_drawn_as_nvidia_smi_draws_it(machine: str) -> None:
    assert matrix(topology(machine))[0] == FIRST_ROWS[machine]


@pytest.mark.parametrize("machine", known_machines())
def test_distances_on_pcie_are_those_that_nvml_tells_and_the_matrix_is_symmetric(machine: str) -> None:
    """But where the firmware tells no NUMA node: NVML answers then as if there were two."""
    found = topology(machine)
    by_pci = {str(slot.pci): slot for slot in load_machine(machine).slots}
    slots = [by_pci[str(gpu.pciBusID)] for gpu in found.gpus]

    def told(one: Slot, other: Slot) -> str:
        level = topology_level(one, other)
        return "-" if level == "system" and one.numa_node is None else DISTANCES[level]

    expected = [[told(one, other) for other in slots] for one in slots]
    assert [[*gpu.pcie_paths.values()] for gpu in found.gpus] == expected
    rows = [row.split() for row in matrix(found)]
    assert rows == [list(column) for column in zip(*rows, strict=True)]


NOT_COUNTED = [
    {"index": index, "nvlinkPeers": str(1 - index), "nvlinkPeerLinks": links}
    for index, links in enumerate(("4,4", ""))
]
TWO_BRIDGES = [
    {"resource.kubernetes.io/pcieRoot": root, "numaNode": node}
    for root, node in (("a", 0), ("b", 0), ("b", 0), ("c", 1))
]


@pytest.mark.parametrize(
    ("devices", "rows"),
    [
        ([{}, {}], ["X -", "- X"]),
        (NOT_COUNTED, ["X NV", "NV X"]),
        (TWO_BRIDGES, ["X NODE NODE SYS", "NODE X PHB SYS", "NODE PHB X SYS", "SYS SYS SYS X"]),
    ],
    ids=["nothing published", "links not counted", "two host bridges of a NUMA node"],
)
def test_what_is_not_published_is_not_guessed(devices: list[Object], rows: list[str]) -> None:
    told = [
        {name: {"int" if isinstance(value, int) else "string": value} for name, value in one.items()}
        for one in devices
    ]
    listed = [{"name": f"gpu-{number}", "attributes": one} for number, one in enumerate(told)]
    [view] = views_of([bare(*listed)], ())

    assert matrix(topology_of("node", view.gpus)) == rows
