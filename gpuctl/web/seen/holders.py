"""Which claims have which devices, kept by pool: one claim more or less is told of its pools alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Holding:
    """A device that a claim was given. ``looks_on``: by admin access, which takes nothing from others."""

    pool: str
    device: str
    claim: str
    request: str
    device_class: str
    share_id: str | None
    looks_on: bool
    users: tuple[str, ...]
    ready: str | None

    @property
    def namespace(self) -> str:
        """The namespace of the claim."""
        return self.claim.partition("/")[0]


def claim_key(claim: Object) -> str:
    """``namespace/name``."""
    metadata = claim["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"


def holdings(claim: Object) -> Iterator[Holding]:
    """What a claim was given of this driver's devices."""
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    users = tuple(str(user.get("name")) for user in status.get("reservedFor") or ())
    classes = dict(request_classes(claim))
    for result in results:
        if result.get("driver") == DRIVER_NAME:
            request = str(result.get("request") or "")
            share_id = result.get("shareID")
            yield Holding(
                str(result.get("pool")),
                str(result.get("device")),
                claim_key(claim),
                request,
                classes.get(request, ""),
                str(share_id) if share_id else None,
                result.get("adminAccess") is True,
                users,
                _not_ready(status, result),
            )


def request_classes(claim: Object) -> Iterator[tuple[str, str]]:
    """The requests of a claim with their classes; an alternative is named ``request/alternative``."""
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        if request.get("exactly"):
            yield str(request["name"]), str(request["exactly"].get("deviceClassName") or "")
        for one in request.get("firstAvailable") or ():
            yield f"{request['name']}/{one['name']}", str(one.get("deviceClassName") or "")


def _not_ready(status: Object, result: Object) -> str | None:
    """Why the claim's status says that the device is not ready, None where it does not say so."""
    for entry in status.get("devices") or ():
        same = all(entry.get(key) == result.get(key) for key in ("driver", "pool", "device"))
        for one in (entry.get("conditions") or ()) if same else ():
            if one.get("type") == "Ready" and one.get("status") == "False":
                return str(one.get("message") or one.get("reason") or "no reason is told")
    return None


class ClaimsByPool:
    """The claims with devices, by the pools that these are of. Not for several threads."""

    def __init__(self) -> None:
        self._pools: dict[str, dict[str, Object]] = {}
        self._held: dict[str, tuple[Holding, ...]] = {}

    def take(self, claim: Object | None, key: str) -> frozenset[str]:
        """A claim is otherwise than before, or gone (None); the pools of which something changed."""
        before = self._held.pop(key, ())
        after = tuple(holdings(claim)) if claim is not None else ()
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

    def holdings_of(self, key: str) -> tuple[Holding, ...]:
        """What one claim has."""
        return self._held.get(key, ())

    def all_holdings(self) -> Iterator[Holding]:
        """What all claims have."""
        for held in self._held.values():
            yield from held
