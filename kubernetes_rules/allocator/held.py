"""What allocated claims hold of devices, and what a request takes of their capacity (KEP-5075)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

from kubernetes_rules.allocator.published import (
    Amount,
    Capacity,
    Device,
    DeviceId,
    Json,
    PoolId,
    RequestPolicy,
    amount_of,
    left_text,
    read_amount,
)
from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.quantity import Quantity

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


_LARGEST = 2**63 - 1

Requested = Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A capacity of which a device cannot give as much as a request needs; its text is a sentence.

    ``needed`` and ``capacity`` are None if the device does not have this capacity. ``forbidden``: the policy
    does not allow the amount, however much is left. ``used`` is what others have, in billionths.
    """

    name: str
    needed: Amount | None = None
    capacity: Capacity | None = None
    forbidden: bool = False
    used: int = 0

    def __str__(self) -> str:
        if self.needed is None or self.capacity is None:
            return f"it has no capacity {self.name}"
        needed, whole = f"{self.needed.quantity} of {self.name} is needed", self.capacity.value
        if self.forbidden and self.capacity.policy is not None:
            return f"{needed}, its policy allows {_allowed(self.capacity.policy)}"
        if not self.used:
            return f"{needed}, it has {whole.quantity}"
        return f"{needed}, {left_text(whole, self.used)} of {whole.quantity} is left"


def _allowed(policy: RequestPolicy) -> str:
    if not policy.ranged:
        return " or ".join(str(value.quantity) for value in policy.values or ())
    bounds = ((" from", policy.low), (" to", policy.high), (" in steps of", policy.step))
    return "".join(f"{word} {bound.quantity}" for word, bound in bounds if bound is not None).strip()


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request takes of devices with certain capacities; ``possible`` if nobody else uses them.

    ``amounts`` has, for each capacity, its name with and without the driver's domain, what is taken and what
    there is, both in billionths.
    """

    taken: Mapping[str, Amount]
    possible: bool
    amounts: tuple[tuple[str, str, int, int], ...]

    def fits_beside(self, held: Mapping[str, int], taking: Mapping[str, int]) -> bool:
        """Whether as much is left; the arguments are those of ``shortage``."""
        return self.possible and all(
            held.get(bare, 0) + taking.get(name, 0) + nanos <= there
            for name, bare, nanos, there in self.amounts
        )


def demand(device: Device, requested: Requested) -> Demand:
    """What a request takes of a device. Raises AllocationFailed as ``shortage`` does."""
    if shortage(device, requested, {}, {}) is not None:
        return Demand({}, possible=False, amounts=())
    taken = consumption(device, requested)
    amounts = (
        (name, bare_name(device.id.driver, name), amount.nanos, device.capacities[name].value.nanos)
        for name, amount in taken.items()
    )
    return Demand(taken, possible=True, amounts=tuple(amounts))


def shortage(
    device: Device, requested: Requested, held: Mapping[str, int], taking: Mapping[str, int]
) -> Shortage | None:
    """Why the device cannot give what is requested, None if it can.

    ``held`` (by ``bare_name``) is what earlier allocations take, ``taking`` what this attempt takes already,
    both in billionths. A device that is not shared must have the requested capacity too. Raises
    AllocationFailed for a negative request and for numbers that the policy cannot be applied to; then no
    other device is tried.
    """
    # A device without the capacity is passed over; it is not an error.
    unknown = [name for name in requested if name not in device.capacities]
    if unknown:
        return Shortage(unknown[0])
    taken = consumption(device, requested)
    for name, amount in taken.items():
        if amount.nanos < 0:
            raise AllocationFailed(
                f"capacity {name} of device {device.id} would be taken by a negative amount",
                "ask for a positive one",
            )
    for name, amount in taken.items():
        capacity = device.capacities[name]
        if _violates(amount, capacity.policy):
            return Shortage(name, amount, capacity, forbidden=True)
        used = held.get(bare_name(device.id.driver, name), 0) + taking.get(name, 0)
        if used + amount.nanos > capacity.value.nanos:
            return Shortage(name, amount, capacity, used=used)
    return None


def consumption(device: Device, requested: Requested) -> dict[str, Amount]:
    """How much of each capacity of the device the request takes.

    A requested amount is rounded up by the policy. A capacity that is not requested gives its policy's
    default, or all of it without one. Raises AllocationFailed for a request that the steps cannot represent.
    """
    return {name: _taken(name, capacity, requested.get(name)) for name, capacity in device.capacities.items()}


def _taken(name: str, capacity: Capacity, requested: Amount | None) -> Amount:
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.low is not None:
        return _round_up(name, requested, policy, policy.low)
    if policy.values is not None:
        for value in policy.values:
            if requested.nanos <= value.nanos:
                return value
            requested = _compared(requested, value)
    return requested


def _compared(amount: Amount, other: Amount) -> Amount:
    """The amount after a comparison: apimachinery's Cmp makes it wide for good if the other one is."""
    if other.quantity.wide and not amount.quantity.wide:
        return Amount(replace(amount.quantity, wide=True), amount.nanos)
    return amount


def _round_up(name: str, requested: Amount, policy: RequestPolicy, low: Amount) -> Amount:
    """The next multiple of the step above the minimum, computed with int64, in the format of the step."""
    if requested.nanos < low.nanos:
        return low
    requested = _compared(requested, low)
    if policy.step is None:
        return requested
    # The scheduler computes steps with int64 and reports an error for what does not fit.
    if requested.nanos > _LARGEST * 10**9:
        raise AllocationFailed(
            f"{requested.quantity} of capacity {name} is too much to be rounded", "ask for less"
        )
    step, lowest = _step(name, policy.step), low.quantity.scaled(0)
    above = _int64(requested.quantity.scaled(0) - lowest)
    steps, rest = _divide(above, step)
    steps += rest != 0
    # As in the scheduler, the check for overflow is made only from a minimum of 0 on.
    if lowest >= 0 and steps > _divide(_LARGEST - lowest, step)[0]:
        raise AllocationFailed(
            f"{requested.quantity} of capacity {name} rounds up to too much", "ask for less"
        )
    rounded = _int64(lowest + step * steps)
    return amount_of(Quantity(Decimal(rounded), policy.step.quantity.format))


def _step(name: str, step: Amount) -> int:
    units = step.quantity.scaled(0)
    if units == 0:
        raise AllocationFailed(f"the policy of capacity {name} has a step of 0", "correct the ResourceSlice")
    return units


def _violates(amount: Amount, policy: RequestPolicy | None) -> bool:
    # The policy's default is allowed even if it is not on a step.
    if policy is None or (policy.default is not None and _is_same(amount, policy.default)):
        return False
    if not policy.ranged:
        return bool(policy.values) and all(amount.nanos != value.nanos for value in policy.values or ())
    if policy.high is not None and amount.nanos > policy.high.nanos:
        return True
    if policy.step is None:
        return False
    if policy.low is None:
        raise AllocationFailed("a valid range has a step and no minimum", "correct the ResourceSlice")
    above = _int64(amount.quantity.scaled(0) - policy.low.quantity.scaled(0))
    return _divide(above, _step("", policy.step))[1] != 0


def _is_same(amount: Amount, default: Amount) -> bool:
    """Whether the scheduler takes the amount for the default: the same number, written in the same way.

    It compares Go structs. Numbers of arbitrary precision are held by pointer, so they are never the same.
    """
    one, other = amount.quantity, default.quantity
    if one.wide or other.wide:
        return False
    return (
        one.value.as_tuple() == other.value.as_tuple()
        and one.format is other.format
        and one.text == other.text
    )


def _divide(number: int, divisor: int) -> tuple[int, int]:
    """Quotient and remainder as in Go, which rounds towards zero."""
    quotient = abs(number) // abs(divisor)
    quotient = quotient if (number < 0) is (divisor < 0) else -quotient
    return quotient, number - quotient * divisor


def _int64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
