"""The offered half of a kind of device that the driver does not have: a toy, which is nothing but a variable.

It lies on no GPU. A rule of the node configuration says how many the node has: ``toys: 2``.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from driver.devices.device import Device
from driver.devices.region import Region
from driver.hardware.gpu import Inventory
from driver.kinds.forms import Forms
from driver.kinds.kind import Kinds, OfferedKind, Policies, PolicyField
from driver.kinds.registry import KINDS
from driver.kinds.sharing.kind import SHARED

MOST_TOYS = 8

_SCHEMA: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": MOST_TOYS}
_NAME = re.compile(r"toy-[0-7]", re.ASCII)


class ToysField(PolicyField):
    """How many toys there are on a node with such a GPU."""

    name = "toys"
    schema = _SCHEMA

    def read(self, value: Any, path: str, errors: list[str]) -> int:
        """A number."""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOYS:
            return value
        errors.append(f"{path}: must be a number from 0 to {MOST_TOYS}")
        return 0


class ToyKind(OfferedKind):
    """Toys."""

    word = "toy"
    form = ""
    attribute_type = "toy"
    opaque = ""
    described = "a toy"
    by_admin = False
    has_modes = False
    leaves_driver = False
    policy_field: PolicyField | None = ToysField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """As many as the most generous rule of a GPU says."""
        count = max((policy.more.get("toys", 0) for policy in policies.values()), default=0)
        toys = (Device(f"toy-{index}", None, {"type": self.attribute_type}) for index in range(count))
        return replace(so_far, others=(*so_far.others, *toys))

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """Nothing of any GPU."""
        return () if _NAME.fullmatch(unshared) else None

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """Its name."""
        return unshared


TOY = ToyKind()


def kinds() -> Kinds:
    """The driver's kinds and toys."""
    return Kinds((*KINDS, TOY), layers=(SHARED,))
