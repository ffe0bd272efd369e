"""The allocator refuses one device too many without trying all ways, for any class on any machine."""

from collections.abc import Sequence

import pytest

from tests.clusters import Allocator, Object
from tests.deviceclasses.published_nodes import ALL_TIERS, MIG_MACHINES, NODE, OTHER_MACHINES, plan
from tests.deviceclasses.shipped_classes import ALL
from tools.conformance.allocation.objects import claim, exactly

MOST = 32
"""The devices that a claim can have."""


class Node:
    """A node that publishes these slices; ``fits`` fails the test if the allocator gives up."""

    def __init__(self, slices: Sequence[Object]) -> None:
        self._allocator = Allocator(slices, list(ALL.values()), [])

    def fits(self, *wanted: tuple[str, int]) -> bool:
        """Whether a claim can have so many devices of these classes."""
        requests = [
            exactly(f"r{n}", deviceClassName=name, count=count) for n, (name, count) in enumerate(wanted)
        ]
        return self._allocator.allocate({"metadata": {"name": NODE}}, [claim(*requests)]) is not None

    def most(self, name: str, *beside: tuple[str, int]) -> int:
        """The most devices of a class that a claim can have beside others, after one more was refused."""
        low, high = 0, MOST - sum(count for _, count in beside)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits(*beside, (name, middle)) else (low, middle - 1)
        return low


KNOWN = {
    "a30-quad": {"mig-small": 16, "mig-medium": 8, "mig-large": 0, "shared-mps": 0, "large": 0},
    "hgx-h100": {"mig-small": 32, "mig-medium": 24, "mig-large": 16, "shared-mps": 8, "large": 8},
    "dgx1-v100": {"mig-small": 0, "shared-mps": 8, "medium": 8},
}
"""How many devices of a class a claim can have: 32 at most, and one share of each GPU."""


@pytest.mark.parametrize("machine", [*MIG_MACHINES, *OTHER_MACHINES])
def test_one_device_too_many_of_any_class_is_refused(machine: str) -> None:
    has_mig = machine in MIG_MACHINES
    node = Node(plan(machine, ALL_TIERS, mode_on=has_mig).slices)
    most = {name: node.most(name) for name in ALL}
    known = KNOWN.get(machine, {})
    assert {name: most[name] for name in known} == known
