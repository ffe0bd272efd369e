"""Finds the claims that have devices of this driver, and who uses them: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME

Object = dict[str, Any]

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A claim that is allocated devices of this driver, with the names of the pods that it is reserved for.

    ``pools`` are those of the devices; a pool's name begins with that of its node.
    """

    namespace: str
    claim: str
    pods: tuple[str, ...]
    pools: tuple[str, ...]

    def __str__(self) -> str:
        nodes = ", ".join(pool.split("/")[0] for pool in self.pools)
        if not self.pods:
            return f"claim {self.namespace}/{self.claim} on {nodes}, of no pod"
        return f"pod {', '.join(f'{self.namespace}/{pod}' for pod in self.pods)} on {nodes}"


def holders(claims: Iterable[Object], driver: str = DRIVER_NAME) -> tuple[Holder, ...]:
    """The claims with an allocation that names a device of the driver, sorted.

    The kubelet unprepares a claim before its allocation is taken away, so every prepared claim that still
    exists is among them.
    """
    return tuple(sorted(found for claim in claims if (found := _holder(claim, driver)) is not None))


def _holder(claim: Object, driver: str) -> Holder | None:
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    pools = {str(result.get("pool", "")) for result in results if result.get("driver") == driver}
    if not pools:
        return None
    pods = [str(user["name"]) for user in status.get("reservedFor") or [] if user.get("resource") == "pods"]
    metadata = claim["metadata"]
    return Holder(metadata["namespace"], metadata["name"], tuple(sorted(pods)), tuple(sorted(pools)))


def named(found: Iterable[object]) -> str:
    """All of them in one line, no more than a person reads."""
    words = [str(one) for one in found]
    more = len(words) - _MOST_NAMED
    return "; ".join(words[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
