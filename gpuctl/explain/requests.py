"""Says what claims ask for, and finds requests that no node can serve: missing classes, too many devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from gpuctl.cli.cluster import Object
from gpuctl.explain.findings import Finding
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.allocator.held import claim_name
from kubernetes_rules.allocator.requests import MOST_DEVICES, Request, RequestedClaim


def wants(request: Request) -> str:
    """A request in words: ``2 devices of class gpu with 10Gi memory``."""
    number = (
        "all devices"
        if request.takes_all
        else f"{request.count} device" + ("s" if request.count != 1 else "")
    )
    extras = [f"{amount.quantity} {name}" for name, amount in sorted(request.capacity.items())]
    extras += ["admin access"] if request.admin_access else []
    more = f" with {', '.join(extras)}" if extras else ""
    return f"{number} of class {request.class_name}{more}"


def needed(request: Request) -> int:
    """The least number of devices that a request needs."""
    return 1 if request.takes_all else request.count


def missing_classes(snapshot: Snapshot, claims: Sequence[Object]) -> tuple[Finding, ...]:
    """The classes that claims name and that do not exist, each with one of a like name."""
    existing = [str(one["metadata"]["name"]) for one in snapshot.classes]
    found = []
    for name in dict.fromkeys(str(one["deviceClassName"]) for _, _, one in _requests(claims)):
        if name not in existing:
            meant = "".join(f"; did you mean {one}?" for one in get_close_matches(name, existing, 1))
            message = f"the DeviceClass {name} does not exist{meant}"
            found.append(Finding("class-missing", message, "create it, or name another one"))
    return tuple(found)


def owners(expression: str, claims: Iterable[Object], snapshot: Snapshot) -> tuple[str, ...]:
    """Where a selector is written: in DeviceClasses that these claims name, or in their own requests."""
    found = {}
    for claim, name, request in _requests(claims):
        device_class = snapshot.device_class(str(request["deviceClassName"]))
        if device_class is not None and expression in _expressions(device_class["spec"]):
            found[f"DeviceClass {request['deviceClassName']}"] = True
        if expression in _expressions(request):
            found[f"request {name} of claim {claim_name(claim)}"] = True
    return tuple(found)


def _expressions(spec: Object) -> list[object]:
    return [(one.get("cel") or {}).get("expression") for one in spec.get("selectors") or ()]


def _requests(claims: Iterable[Object]) -> Iterator[tuple[Object, str, Object]]:
    """Each request of these claims with its claim and name; an alternative counts as a request."""
    for claim in claims:
        for one in claim["spec"].get("devices", {}).get("requests") or ():
            if one.get("exactly"):
                yield claim, str(one.get("name")), one["exactly"]
            for other in one.get("firstAvailable") or ():
                yield claim, f"{one.get('name')}/{other.get('name')}", other


def too_many(claims: Sequence[RequestedClaim]) -> tuple[Finding, ...]:
    """The claims that ask for more devices than a claim can have."""
    return tuple(
        Finding(
            "too-many",
            f"the claim {claim.name} asks for {least} devices; a claim can have at most {MOST_DEVICES}",
            "ask for fewer, or use several claims",
        )
        for claim in claims
        if (least := _least(claim)) > MOST_DEVICES
    )


def looking_on(claims: Iterable[RequestedClaim], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Why claims with admin access wait where the node only lacks room."""
    if not any(one.kind in ("counters", "capacity", "together", "all") for one in findings):
        return ()
    return tuple(
        Finding(
            "admin-access",
            f"request {one.full_name} has admin access: it may get devices that others hold, but "
            "the scheduler requires free counters and a free share for it as for any other claim",
            "ask for devices of one form, and start it before other pods; once allocated, it stays",
        )
        for claim in claims
        for alternatives in claim.requests
        for one in alternatives
        if one.admin_access
    )


def _least(claim: RequestedClaim) -> int:
    return sum(
        min(0 if one.takes_all else one.count for one in alternatives) for alternatives in claim.requests
    )
