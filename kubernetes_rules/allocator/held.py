"""The devices that allocated claims hold: whole ones, shares, and the capacity of shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kubernetes_rules.allocator.amounts import read_amount
from kubernetes_rules.allocator.published import DeviceId, Json, PoolId
from kubernetes_rules.errors import AllocationFailed

_T = TypeVar("_T")

Share = Mapping[str, int]
"""The capacity that one share takes, by name, in billionths."""


class Held:
    """The devices in use. Claims come and go with ``add`` and ``remove``."""

    def __init__(self) -> None:
        self.exclusive: dict[DeviceId, list[str]] = {}
        """Devices held as a whole, with the claims (``namespace/name``) that hold them."""
        self.shares: dict[DeviceId, list[tuple[str, Share]]] = {}
        """Devices held in shares: each with its claim and the capacity it takes."""
        self._totals: dict[DeviceId, dict[str, int]] = {}

    def add(self, claim: Json) -> set[PoolId]:
        """Add an allocated claim; returns the pools of its devices. Raises AllocationFailed if malformed."""
        holder = claim_name(claim)
        pools = set()
        for device, share in _results(claim):
            pools.add(device.pool_id)
            if share is None:
                self.exclusive.setdefault(device, []).append(holder)
            else:
                self.shares.setdefault(device, []).append((holder, share))
                self._totals.pop(device, None)
        return pools

    def remove(self, claim: Json) -> set[PoolId]:
        """Remove an allocated claim that was added; returns the pools of its devices.

        Raises AllocationFailed if it is malformed or was not added.
        """
        holder = claim_name(claim)
        pools = set()
        for device, share in _results(claim):
            pools.add(device.pool_id)
            try:
                if share is None:
                    _take(self.exclusive, device, holder)
                else:
                    _take(self.shares, device, (holder, share))
                    self._totals.pop(device, None)
            except (KeyError, ValueError) as error:
                raise AllocationFailed(f"claim {holder} does not hold device {device}") from error
        return pools

    def is_held(self, device: DeviceId) -> bool:
        """Whether a claim holds the device or a share of it."""
        return device in self.exclusive or device in self.shares

    def capacity_taken(self, device: DeviceId) -> Mapping[str, int]:
        """The capacity that all shares of the device take, by ``bare_name``, in billionths."""
        shares = self.shares.get(device)
        if shares is None:
            return {}
        total = self._totals.get(device)
        if total is None:
            total = self._totals[device] = sum_of(share for _, share in shares)
        return total


def sum_of(shares: Any) -> dict[str, int]:
    """The sum of shares, by name."""
    total: dict[str, int] = {}
    for share in shares:
        for name, nanos in share.items():
            total[name] = total.get(name, 0) + nanos
    return total


def claim_name(claim: Json) -> str:
    """``namespace/name``, for messages."""
    metadata = claim.get("metadata") or {}
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def _results(claim: Json) -> list[tuple[DeviceId, Share | None]]:
    try:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        found: list[tuple[DeviceId, Share | None]] = []
        for result in (allocation.get("devices") or {}).get("results") or ():
            # A result with admin access does not hold the device: others can be allocated it (KEP-5018).
            if result.get("adminAccess") is True:
                continue
            share = None
            if result.get("shareID") is not None:
                share = {name: read_amount(value).nanos for name, value in consumed_capacity(result).items()}
            found.append((DeviceId(result["driver"], result["pool"], result["device"]), share))
        return found
    except (KeyError, TypeError, AttributeError) as error:
        raise AllocationFailed(
            f"the allocation of claim {claim_name(claim)} is malformed: {error!r}", "create the claim anew"
        ) from error


def consumed_capacity(result: Mapping[str, Any]) -> dict[str, str]:
    """What an allocation took of a shared device, by ``bare_name``.

    Field: DeviceRequestAllocationResult.consumedCapacity.
    """
    return {
        bare_name(result["driver"], name): str(amount)
        for name, amount in (result.get("consumedCapacity") or {}).items()
    }


def bare_name(driver: str, name: str) -> str:
    """The name of a capacity without its driver's domain.

    The name means the same with and without that domain (QualifiedName), and a device and a claim may use
    different ones.
    """
    return name.removeprefix(f"{driver}/")


def _take(held: dict[DeviceId, list[_T]], device: DeviceId, what: _T) -> None:
    held[device].remove(what)
    if not held[device]:
        del held[device]
