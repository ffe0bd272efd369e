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
    held = list(_held(name, views))
    gpus = {(gpu.node, gpu.device): gpu for gpu, _ in held}
    owners = ", ".join(f"{one['kind']} {one['name']}" for one in metadata.get("ownerReferences") or ())
    return [
        Section(
            f"ResourceClaim {name}",
            fields(
                ("State", _state(metadata, status)),
                ("Created", metadata.get("creationTimestamp")),
                ("Allocated", (status.get("allocation") or {}).get("allocationTimestamp")),
                ("Owner", owners),
            ),
        ),
        _requests(claim),
        _devices(held, status),
        _data(status),
        conditions_section(_conditions(status)),
        taints_section(gpus.values()),
        Section("Pods", heads=("pod",), rows=tuple((str(one["name"]),) for one in _users(status))),
        events_section(events),
    ]


def _state(metadata: Object, status: Object) -> str:
    if metadata.get("deletionTimestamp"):
        return "being deleted"
    if not status.get("allocation"):
        return "has no devices: `gpuctl explain claim` says why"
    return "in use" if _users(status) else "has devices, but no pod uses it"


def _users(status: Object) -> list[Object]:
    return list(status.get("reservedFor") or ())


def _held(name: str, views: Sequence[NodeView]) -> Iterator[tuple[GpuState, Holding]]:
    for gpu in (gpu for view in views for gpu in view.gpus):
        for one in gpu.holdings:
            if one.claim == name:
                yield gpu, one


def _requests(claim: Object) -> Section:
    """What the claim asks for; each alternative of a request has a row."""
    devices = (claim.get("spec") or {}).get("devices") or {}
    rows = []
    for one in devices.get("requests") or ():
        exactly = one.get("exactly")
        alternatives = (
            [("", exactly)]
            if exactly
            else [(f"/{other.get('name')}", other) for other in one.get("firstAvailable") or ()]
        )
        for suffix, wanted in alternatives:
            count = "all" if wanted.get("allocationMode") == "All" else str(wanted.get("count") or 1)
            selectors = [
                " ".join(str((each.get("cel") or {}).get("expression", "")).split())
                for each in wanted.get("selectors") or ()
            ]
            amounts = (wanted.get("capacity") or {}).get("requests") or {}
            rows.append(
                (
                    *(f"{one['name']}{suffix}", str(wanted.get("deviceClassName") or "-"), count),
                    ", ".join(f"{key} {value}" for key, value in sorted(amounts.items())) or "-",
                    " && ".join(selectors) or "-",
                )
            )
    constraints = ", ".join(
        str(one.get("matchAttribute") or one.get("distinctAttribute") or "-")
        for one in devices.get("constraints") or ()
    )
    return Section(
        "Requests",
        heads=("request", "class", "count", "capacity", "selectors"),
        rows=tuple(rows),
        note=f"constraints on {constraints}" if constraints else None,
    )


def _devices(held: Sequence[tuple[GpuState, Holding]], status: Object) -> Section:
    """The devices of the claim; those of other drivers as its allocation names them."""
    ours = {one.device for _, one in held}
    rows = [
        (
            *(one.request, gpu.node, gpu.label, one.device, one.tier),
            *(one.taken or "-", size_of(one)),
        )
        for gpu, one in held
    ]
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    rows += [
        (str(one.get("request")), str(one.get("pool")), "-", str(one["device"]), str(one["driver"]), "-", "-")
        for one in results
        if one["device"] not in ours
    ]
    heads = ("request", "node", "gpu", "device", "what", "share", "memory")
    return Section("Devices", heads=heads, rows=tuple(rows))


def _data(status: Object) -> Section:
    """What drivers wrote about each device into the claim's status."""
    rows = []
    for entry in status.get("devices") or ():
        # Drivers choose the shape of this field themselves.
        data = entry.get("data") if isinstance(entry.get("data"), Mapping) else {}
        rows += [(str(entry.get("device")), key, _value(value)) for key, value in sorted(data.items())]
    return Section("Device status", heads=("device", "what", "value"), rows=tuple(rows))


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _conditions(status: Object) -> Iterator[tuple[str, Object]]:
    for entry in status.get("devices") or ():
        for one in entry.get("conditions") or ():
            yield str(entry.get("device")), one
