"""Describes a claim: what it asks for, its devices and their state, its pods, and what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuctl.describe.gpu import size_of, taints_section
from gpuctl.describe.sections import Section, conditions_section, events_section, fields
from gpuctl.fleet.gpus import GpuState, Holding, Object
from gpuctl.fleet.holders import claim_key
from gpuctl.fleet.nodes import NodeView


def claim_sections(
    claim: Object, views: Sequence[NodeView], events: Sequence[Object] | None
) -> list[Section]:
    """The sections about a claim; ``views`` are the nodes on which it has devices."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    name = claim_key(claim)
    holdings = [
        (gpu, held) for view in views for gpu in view.gpus for held in gpu.holdings if held.claim == name
    ]
    gpus = {(gpu.node, gpu.device): gpu for gpu, _ in holdings}
    pods = [str(user["name"]) for user in status.get("reservedFor") or ()]
    owners = ", ".join(f"{one['kind']} {one['name']}" for one in metadata.get("ownerReferences") or ())
    about = {
        "State": _state(metadata, status, pods),
        "Created": metadata.get("creationTimestamp"),
        "Allocated": (status.get("allocation") or {}).get("allocationTimestamp"),
        "Owner": owners,
    }
    return [
        Section(f"ResourceClaim {name}", fields(about)),
        _requests(claim),
        Section("Devices", rows=list(_devices(holdings, status))),
        Section("Device status", rows=list(_data(status))),
        conditions_section(_conditions(status)),
        taints_section(gpus.values()),
        Section("Pods", rows=[{"pod": pod} for pod in pods]),
        events_section(events),
    ]


def _state(metadata: Object, status: Object, pods: Sequence[str]) -> str:
    if metadata.get("deletionTimestamp"):
        return "being deleted"
    if not status.get("allocation"):
        return "has no devices: `gpuctl explain claim` says why"
    return "in use" if pods else "has devices, but no pod uses it"


def _requests(claim: Object) -> Section:
    """What the claim asks for; each alternative of a request has a row."""
    devices = (claim.get("spec") or {}).get("devices") or {}
    rows = []
    for request in devices.get("requests") or ():
        name, exactly = str(request["name"]), request.get("exactly")
        alternatives = request.get("firstAvailable") or ()
        rows += [_request(name, exactly)] if exactly else []
        rows += [_request(f"{name}/{wanted.get('name')}", wanted) for wanted in alternatives]
    constraints = ", ".join(
        str(one.get("matchAttribute") or one.get("distinctAttribute") or "-")
        for one in devices.get("constraints") or ()
    )
    return Section("Requests", rows=rows, note=f"constraints on {constraints}" if constraints else None)


def _request(name: str, wanted: Object) -> dict[str, str]:
    amounts = (wanted.get("capacity") or {}).get("requests") or {}
    selectors = [(each.get("cel") or {}).get("expression", "") for each in wanted.get("selectors") or ()]
    return {
        "request": name,
        "class": str(wanted.get("deviceClassName") or "-"),
        "count": "all" if wanted.get("allocationMode") == "All" else str(wanted.get("count") or 1),
        "capacity": ", ".join(f"{key} {value}" for key, value in sorted(amounts.items())) or "-",
        "selectors": " && ".join(" ".join(str(one).split()) for one in selectors) or "-",
    }


def _devices(holdings: Sequence[tuple[GpuState, Holding]], status: Object) -> Iterator[dict[str, str]]:
    """The devices of the claim; those of other drivers as its allocation names them."""
    for gpu, held in holdings:
        yield {
            "request": held.request,
            "node": gpu.node,
            "gpu": gpu.label,
            "device": held.device,
            "what": held.tier,
            "share": held.taken or "-",
            "memory": size_of(held),
        }
    ours = {held.device for _, held in holdings}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    for result in results:
        if result["device"] not in ours:
            yield {
                "request": str(result.get("request")),
                "node": str(result.get("pool")),
                "gpu": "-",
                "device": str(result["device"]),
                "what": str(result["driver"]),
                "share": "-",
                "memory": "-",
            }


def _data(status: Object) -> Iterator[dict[str, str]]:
    """What drivers wrote about each device into the claim's status."""
    for entry in status.get("devices") or ():
        # Drivers choose the shape of this field themselves.
        data = entry.get("data") if isinstance(entry.get("data"), Mapping) else {}
        for key, value in sorted(data.items()):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield {"device": str(entry.get("device")), "what": key, "value": shown}


def _conditions(status: Object) -> Iterator[tuple[str, Object]]:
    for entry in status.get("devices") or ():
        for one in entry.get("conditions") or ():
            yield str(entry.get("device")), one
