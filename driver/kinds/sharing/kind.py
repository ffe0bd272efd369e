"""Shared devices: a layer over the kinds, by which several claims can be given one device at once.

A shared device lies on a device of a kind, whose name its own begins with; so what prepare does is done for
the kind beneath, and sharing on top of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.kinds.sharing.field import SharedField
from driver.kinds.sharing.forms import with_shared

if TYPE_CHECKING:
    from driver.hardware.gpu import Inventory
    from driver.kinds.forms import Forms
    from driver.kinds.kind import Policies, PolicyField


class SharedLayer:
    """What kinds offer, shared."""

    form = "shared"
    attribute_type = "shared"
    policy_field: PolicyField | None = SharedField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The GPUs beside or instead of their whole form, or their partitions, shared."""
        return so_far.changed(inventory, policies, with_shared)


SHARED = SharedLayer()
