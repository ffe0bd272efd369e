"""Reads ResourceSlices (resource.k8s.io/v1) into slices and devices as allocation needs them.

Quantities are integers of billionths, which are quick to add and compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.quantity import Quantity

_MOST_DIGITS = 30_000
_NANO_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity, and the same number in billionths, the finest that a quantity can have."""

    quantity: Quantity
    nanos: int


def amount_of(quantity: Quantity) -> Amount:
    """The amount of a quantity. Raises AllocationFailed for a number of more than 30,000 digits."""
    negative, digits, exponent = quantity.value.as_tuple()
    if not isinstance(exponent, int) or exponent > _MOST_DIGITS:
        raise AllocationFailed(f"a quantity has more than {_MOST_DIGITS} digits", "correct the object")
    unscaled = int("".join(map(str, digits)))
    shift = exponent + _NANO_DIGITS
    nanos = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    return Amount(quantity, -nanos if negative else nanos)


def read_amount(value: Any) -> Amount:
    """The amount of a JSON value: ``"80Gi"``, or a number; None is zero.

    Raises AllocationFailed if it is not a quantity.
    """
    if value is None:
        return _parse("0")
    # In JSON a quantity may also be a number. A bool is not one, although Python's is an int.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise AllocationFailed(f"{value!r} is not a quantity", "write one such as 80Gi")
    return _parse(str(value).strip())


def left_text(whole: Amount, used: int) -> str:
    """What is left of an amount, in its format; 0 if more is used than it has. ``used`` is in billionths."""
    left = max(0, whole.nanos - used)
    return str(Quantity(Decimal(left).scaleb(-_NANO_DIGITS), whole.quantity.format))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Amount:
    try:
        return amount_of(Quantity.parse(text))
    except ValueError as error:
        raise AllocationFailed(str(error), "correct the object") from error


Json = Mapping[str, Any]
Counters = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Counter sets by name, each with counters by name, in billionths."""
Amounts = Mapping[tuple[str, str], int]
"""Billionths by counter set and counter."""


class PoolId(NamedTuple):
    """A pool is identified by its driver and its name."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """The three names by which an allocation result identifies a device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def pool_id(self) -> PoolId:
        """The pool it belongs to."""
        return PoolId(self.driver, self.pool)


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The amounts of a capacity that may be requested: ``values``, a range (maybe in steps), or any."""

    default: Amount | None = None
    values: tuple[Amount, ...] | None = None
    ranged: bool = False
    low: Amount | None = None
    high: Amount | None = None
    step: Amount | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device."""

    value: Amount
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The nodes that can reach a slice or a device; ``terms`` is a NodeSelector of core/v1."""

    node_name: str | None
    all_nodes: bool
    terms: Json | None

    @property
    def known(self) -> bool:
        """Whether it has one of the fields that the allocator knows."""
        return bool(self.node_name) or self.all_nodes or self.terms is not None


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A published device. Devices of nodes that are alike have everything but their names in common.

    ``takes`` is what it consumes, added up by counter.
    """

    id: DeviceId
    spec: Json
    attributes: Json
    capacities: Mapping[str, Capacity]
    allow_multiple: bool
    consumes: Counters
    takes: Amounts
    taints: tuple[Json, ...]
    selection: Selection | None
    slice_selection: Selection
    per_device: bool

    @property
    def effective_selection(self) -> Selection:
        """Its own if the slice has perDeviceNodeSelection, else the slice's."""
        return self.selection if self.per_device and self.selection is not None else self.slice_selection

    def attribute(self, name: str) -> Json | None:
        """The attribute of a fully qualified name, None if the device lacks it.

        An attribute without a domain belongs to the driver's domain (QualifiedName of resource.k8s.io/v1).
        """
        found: Json | None = self.attributes.get(name)
        if found is None:
            domain, slash, bare = name.partition("/")
            if slash and domain == self.id.driver:
                found = self.attributes.get(bare)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A ResourceSlice.

    ``shared`` are its counter sets. ``hidden``: it uses a feature whose gate is off. ``invalid`` says what
    makes its pool invalid, such as an amount that would fill memory; then it has no devices.
    """

    name: str
    pool_id: PoolId
    generation: int
    slice_count: int
    selection: Selection
    per_device: bool
    devices: tuple[Device, ...]
    shared: Counters
    hidden: bool = False
    invalid: str | None = None


def read_slices(stored: Iterable[Json]) -> list[Slice]:
    """The slices of API objects; raises AllocationFailed if one is malformed.

    What devices have in common is kept once: objects that are in several slices, equal capacities, equal
    counters.
    """
    reader = _Reader()
    return [reader.slice(one) for one in stored]


class _Reader:
    """Reads slices, and remembers what was read of devices, capacities and counters."""

    def __init__(self) -> None:
        # The keys are addresses of objects, which the devices keep alive.
        self._devices: dict[tuple[int, str, bool], Device] = {}
        self._capacities: dict[tuple[str, str], Mapping[str, Capacity]] = {}
        self._counters: dict[str, tuple[Counters, Amounts]] = {}

    def slice(self, stored: Json) -> Slice:
        """The slice of an API object; raises AllocationFailed if it is malformed."""
        try:
            return self._slice(stored)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise AllocationFailed(
                f"a ResourceSlice is malformed: {error!r}", "correct the driver that publishes it"
            ) from error

    def _slice(self, stored: Json) -> Slice:
        spec = stored["spec"]
        pool = spec["pool"]
        pool_id = PoolId(spec["driver"], pool["name"])
        selection = _selection(spec)
        per_device = spec.get("perDeviceNodeSelection") is True
        listed = spec.get("devices") or ()
        devices: tuple[Device, ...] = ()
        shared: Counters = ()
        invalid = None
        try:
            devices = tuple(self._device(pool_id, device, selection, per_device) for device in listed)
            shared = _counters(spec.get("sharedCounters"), "name")
        # Kubernetes computes with amounts of any length.
        except AllocationFailed as error:
            devices, invalid = (), error.what
        return Slice(
            name=(stored.get("metadata") or {}).get("name") or "",
            pool_id=pool_id,
            generation=pool.get("generation") or 0,
            slice_count=pool.get("resourceSliceCount") or 0,
            selection=selection,
            per_device=per_device,
            devices=devices,
            shared=shared,
            hidden=any(_has_groups(device) for device in listed),
            invalid=invalid,
        )

    def _device(self, pool_id: PoolId, spec: Json, selection: Selection, per_device: bool) -> Device:
        key = (id(spec), pool_id.driver, per_device)
        known = self._devices.get(key)
        if known is None:
            known = self._devices[key] = self._read(pool_id, spec, selection, per_device)
            return known
        return Device(
            DeviceId(*pool_id, known.id.device),
            known.spec,
            known.attributes,
            known.capacities,
            known.allow_multiple,
            known.consumes,
            known.takes,
            known.taints,
            known.selection,
            selection,
            per_device,
        )

    def _read(self, pool_id: PoolId, spec: Json, selection: Selection, per_device: bool) -> Device:
        capacities, consumes = spec.get("capacity") or {}, spec.get("consumesCounters") or ()
        text = pool_id.driver, repr(capacities)
        if text not in self._capacities:
            self._capacities[text] = {name: _capacity(capacity) for name, capacity in capacities.items()}
        counted = repr(consumes)
        if counted not in self._counters:
            sets = _counters(consumes, "counterSet")
            self._counters[counted] = sets, _added_up(sets)
        return Device(
            id=DeviceId(*pool_id, spec["name"]),
            spec=spec,
            attributes=spec.get("attributes") or {},
            capacities=self._capacities[text],
            # Only with this field do requests consume capacity (KEP-5075). Other devices have one holder and
            # must have at least what is requested.
            allow_multiple=spec.get("allowMultipleAllocations") is True,
            consumes=self._counters[counted][0],
            takes=self._counters[counted][1],
            taints=tuple(spec.get("taints") or ()),
            selection=_selection(spec) if per_device else None,
            slice_selection=selection,
            per_device=per_device,
        )


def _selection(spec: Json) -> Selection:
    return Selection(spec.get("nodeName"), spec.get("allNodes") is True, spec.get("nodeSelector"))


def _counters(sets: Any, name: str) -> Counters:
    return tuple(
        (
            one[name],
            tuple(
                (counter, read_amount(counted.get("value")).nanos)
                for counter, counted in (one.get("counters") or {}).items()
            ),
        )
        for one in sets or ()
    )


def _added_up(sets: Counters) -> Amounts:
    found: dict[tuple[str, str], int] = {}
    for name, counters in sets:
        for counter, nanos in counters:
            found[name, counter] = found.get((name, counter), 0) + nanos
    return found


def _has_groups(device: Json) -> bool:
    # With the gate DRADeviceCompatibilityGroups off the scheduler ignores such slices (KEP-5963).
    return any(one.get("compatibilityGroups") for one in device.get("consumesCounters") or ())


def _capacity(stored: Json) -> Capacity:
    value = read_amount(stored.get("value"))
    policy = stored.get("requestPolicy")
    if policy is None:
        return Capacity(value)
    ranged = policy.get("validRange")
    values = policy.get("validValues")
    return Capacity(
        value,
        RequestPolicy(
            default=_optional(policy, "default"),
            values=None if values is None else tuple(map(read_amount, values)),
            ranged=ranged is not None,
            low=_optional(ranged, "min"),
            high=_optional(ranged, "max"),
            step=_optional(ranged, "step"),
        ),
    )


def _optional(stored: Json | None, name: str) -> Amount | None:
    if stored is None or stored.get(name) is None:
        return None
    return read_amount(stored[name])
