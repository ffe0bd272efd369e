"""Whether claims would fit on a node in better times: with nobody on its devices, and with none tainted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from gpuctl.explain.devices import fitting
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.allocator.requests import Request, RequestedClaim
from kubernetes_rules.errors import RuleError

Object = dict[str, Any]

Prospect = Literal["when free", "when well", "never", "unknown"]
"""``when free``: once enough of the claims there have ended. ``when well``: once taints are gone as well.
``never``: the node does not have as much. ``unknown``: a pool there is incomplete, or something is wrong."""


class Prospects:
    """The cluster as it would be if nobody used it but the claims that are asked about."""

    def __init__(self, slices: Sequence[Object], classes: Sequence[Object], own: Sequence[Object]) -> None:
        """``own`` are those of the claims that have their devices already, which they keep."""
        self._slices = slices
        self._classes = classes
        self._own = own

    @cached_property
    def _free(self) -> Allocator:
        """Nobody else has any device."""
        return Allocator(self._slices, self._classes, self._own)

    @cached_property
    def _well(self) -> Allocator:
        """The same, and no device is tainted."""
        return Allocator([_untainted(one) for one in self._slices], self._classes, self._own)

    def of(self, node: Object, wanted: Sequence[Object]) -> Prospect:
        """When claims without devices can fit on a node."""
        try:
            if not all(pool.usable for pool in self._free.view(node).pools):
                return "unknown"
            if self._free.allocate(node, wanted) is not None:
                return "when free"
            return "never" if self._well.allocate(node, wanted) is None else "when well"
        except RuleError:
            return "unknown"

    def most(self, node: Object, request: Request, claim: RequestedClaim) -> int:
        """How many devices of a node a request could ever have, each by itself."""
        try:
            return fitting(self._well, self._well.view(node), request, claim.constraints)
        except AllocationFailed:
            return 0

    def fits_without_constraints(self, node: Object, wanted: Sequence[Object]) -> bool:
        """Whether claims could ever fit on a node if it were not for their constraints."""
        return fits_without_constraints(self._well, node, wanted)


def fits_without_constraints(allocator: Allocator, node: Object, wanted: Sequence[Object]) -> bool:
    """Whether claims would fit on a node if it were not for the constraints between their devices."""
    try:
        return allocator.allocate(node, [_without_constraints(one) for one in wanted]) is not None
    except RuleError:  # too many combinations, for example
        return False


def _without_constraints(claim: Object) -> Object:
    return {**claim, "spec": {**claim["spec"], "devices": {**claim["spec"]["devices"], "constraints": []}}}


def _untainted(one: Object) -> Object:
    devices = one["spec"].get("devices")
    if not devices:
        return one
    bare = [{key: value for key, value in device.items() if key != "taints"} for device in devices]
    return {**one, "spec": {**one["spec"], "devices": bare}}
