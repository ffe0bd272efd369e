"""Which claims have which devices, kept by pool: a claim that changes concerns its pools alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from kubernetes_rules.allocator.held import consumed_capacity

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Allocated:
    """A device that a claim has, by the claim alone.

    ``claim`` is its namespace and name, ``pods`` are those that it is reserved for. ``device_class`` is that
    of its request, None where that is unknown. ``consumed`` is what it has of a shared device, by the names
    of capacities. ``looks_on`` is set for admin access, which takes nothing from others. ``trouble`` is the
    reason and message of a Ready condition that is not True, None where nothing is said.
    """

    pool: str
    device: str
    claim: str
    request: str
    device_class: str | None
    share_id: str | None
    looks_on: bool
    pods: tuple[str, ...]
    consumed: tuple[tuple[str, str], ...]
    trouble: str | None

    @property
    def taken(self) -> str:
        """What it has of a shared device: ``shares 1, memory 5Gi``; empty for one that is not shared."""
        return ", ".join(f"{name} {amount}" for name, amount in self.consumed if amount != "0")


def claim_key(claim: Object) -> str:
    """``namespace/name``."""
    metadata = claim["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"


def allocated(claim: Object) -> Iterator[Allocated]:
    """What a claim has of this driver's devices."""
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    pods = tuple(str(user.get("name")) for user in status.get("reservedFor") or ())
    classes = dict(request_classes(claim))
    for result in results:
        if result.get("driver") == DRIVER_NAME:
            request, share_id = str(result.get("request") or ""), result.get("shareID")
            yield Allocated(
                str(result.get("pool")),
                str(result.get("device")),
                claim_key(claim),
                request,
                classes.get(request),
                str(share_id) if share_id else None,
                result.get("adminAccess") is True,
                pods,
                tuple(sorted(consumed_capacity(result).items(), reverse=True)),
                _trouble(status, result),
            )


def request_classes(claim: Object) -> Iterator[tuple[str, str]]:
    """The requests of a claim with their classes; an alternative is named ``request/alternative``."""
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        if request.get("exactly"):
            yield str(request["name"]), str(request["exactly"].get("deviceClassName") or "")
        for one in request.get("firstAvailable") or ():
            yield f"{request['name']}/{one['name']}", str(one.get("deviceClassName") or "")


def _trouble(status: Object, result: Object) -> str | None:
    """Why the device is not ready, as the claim's status says; None where it is, or nothing is said."""
    same = ("driver", "pool", "device", "shareID")
    for entry in status.get("devices") or ():
        if any(entry.get(key) != result.get(key) for key in same):
            continue
        for one in entry.get("conditions") or ():
            if one.get("type") == "Ready" and one.get("status") != "True":
                return ": ".join(filter(None, (one.get("reason"), one.get("message")))) or "not ready"
    return None


class ClaimsByPool:
    """The claims with devices, by the pools of these. Not for several threads."""

    def __init__(self) -> None:
        self._pools: dict[str, dict[str, Object]] = {}
        self._held: dict[str, tuple[Allocated, ...]] = {}

    def take(self, claim: Object | None, key: str) -> frozenset[str]:
        """A claim changed, or is gone (None); the pools on which it has other devices now."""
        before = self._held.pop(key, ())
        after = tuple(allocated(claim)) if claim is not None else ()
        for one in before:
            self._pools.get(one.pool, {}).pop(key, None)
        if claim is not None and after:
            self._held[key] = after
            for one in after:
                self._pools.setdefault(one.pool, {})[key] = claim
        return frozenset(one.pool for one in (*before, *after)) if before != after else frozenset()

    def of(self, pools: Iterable[str]) -> list[Object]:
        """The claims that have a device of one of these pools."""
        found = {key: claim for pool in pools for key, claim in self._pools.get(pool, {}).items()}
        return [found[key] for key in sorted(found)]

    def held_by(self, key: str) -> tuple[Allocated, ...]:
        """What one claim has."""
        return self._held.get(key, ())

    def all_held(self) -> Iterator[Allocated]:
        """What all claims have."""
        for held in self._held.values():
            yield from held
