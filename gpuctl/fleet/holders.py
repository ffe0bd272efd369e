"""Which claims have which devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from kubernetes_rules.allocator.held import consumed_capacity

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Allocated:
    """A device that a claim has, as the claim's status says.

    ``claim`` is the claim's namespace and name, ``pods`` are the pods that it is reserved for.
    ``device_class`` is the class of its request, None if that is unknown. ``consumed`` is what it has of a
    shared device, by the names of capacities. A claim with ``admin_access`` takes nothing from others.
    ``trouble`` is the reason and message of a Ready condition that is not True, None if there is none.
    """

    pool: str
    device: str
    claim: str
    request: str
    device_class: str | None
    share_id: str | None
    admin_access: bool
    pods: tuple[str, ...]
    consumed: tuple[tuple[str, str], ...]
    trouble: str | None

    @property
    def taken(self) -> str:
        """What the claim has of a shared device: ``shares 1, memory 5Gi``; empty if it is not shared."""
        return ", ".join(f"{name} {amount}" for name, amount in self.consumed if amount != "0")


def node_of_pool(pool: str) -> str:
    """The node that publishes a pool of this name."""
    # NVIDIA's own driver of the same name calls the pool like the node.
    return pool.removesuffix(f"/{DRIVER_NAME}")


def claim_key(claim: Object) -> str:
    """``namespace/name``."""
    metadata = claim["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"


def allocated(claim: Object) -> Iterator[Allocated]:
    """The devices of this driver that a claim has."""
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
                result.get("adminAccess") is True,  # it looks at devices that others may hold
                pods,
                tuple(sorted(consumed_capacity(result).items(), reverse=True)),
                _trouble(status, result),
            )


def request_classes(claim: Object) -> Iterator[tuple[str, str]]:
    """The requests of a claim with their classes; a subrequest is named ``request/subrequest``."""
    # A request names its class in "exactly", or in each of the alternatives of which the scheduler takes the
    # first that it can satisfy. The result of an alternative is for "request/subrequest".
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        if request.get("exactly"):
            yield str(request["name"]), str(request["exactly"].get("deviceClassName") or "")
        for one in request.get("firstAvailable") or ():
            yield f"{request['name']}/{one['name']}", str(one.get("deviceClassName") or "")


def _trouble(status: Object, result: Object) -> str | None:
    """Why the device is not ready, as the claim's status says; None if it is, or the status says nothing."""
    # These four are the key of an entry of status.devices; the last is set for shared devices alone.
    same = ("driver", "pool", "device", "shareID")
    for entry in status.get("devices") or ():
        if any(entry.get(key) != result.get(key) for key in same):
            continue
        for one in entry.get("conditions") or ():
            if one.get("type") == "Ready" and one.get("status") != "True":
                return ": ".join(filter(None, (one.get("reason"), one.get("message")))) or "not ready"
    return None
