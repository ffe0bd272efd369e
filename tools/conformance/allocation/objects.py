"""Builders of API objects for allocation cases; each has defaults for what a case does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.conformance.area import Case

Json = dict[str, Any]

DRIVER = "gpu.example.com"
NODE = "node-1"


def node(name: str = NODE, **labels: str) -> Json:
    """A node with labels; ``_`` in a label's key becomes ``-``."""
    return {
        "metadata": {"name": name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}}
    }


def attributes(**values: Any) -> Json:
    """Attributes by name; a string that begins with ``v`` and a digit is a version."""
    return {name: attribute(value) for name, value in values.items()}


def attribute(value: Any) -> Json:
    """One attribute."""
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if value[:1] == "v" and value[1:2].isdigit():
        return {"version": value[1:]}
    return {"string": value}


def device(name: str, **fields: Any) -> Json:
    """A device with fields of the API."""
    return {"name": name, **fields}


def devices(count: int, **fields: Any) -> list[Json]:
    """``count`` devices that differ only in their names."""
    return [device(f"gpu-{index}", **fields) for index in range(count)]


def published(listed: Sequence[Json] | None = None, **fields: Any) -> Json:
    """A ResourceSlice of the node, with ``name``, ``driver``, ``pool``, ``generation``, ``count`` and other
    fields of its spec. Another selection of nodes replaces the node's name.
    """
    name = fields.pop("name", "slice-1")
    pool = {
        "name": fields.pop("pool", "pool-1"),
        "generation": fields.pop("generation", 1),
        "resourceSliceCount": fields.pop("count", 1),
    }
    spec: Json = {"driver": fields.pop("driver", DRIVER), "pool": pool}
    if not {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"} & set(fields):
        spec["nodeName"] = NODE
    if listed is not None:
        spec["devices"] = list(listed)
    return {"metadata": {"name": name}, "spec": {**spec, **fields}}


def counters(**values: str) -> Json:
    """Counters by name."""
    return {name: {"value": value} for name, value in values.items()}


def consumes(counter_set: str, **values: str) -> Json:
    """An entry of consumesCounters."""
    return {"counterSet": counter_set, "counters": counters(**values)}


def device_class(name: str = "gpu", selectors: Sequence[str] = (), config: Sequence[Json] = ()) -> Json:
    """A DeviceClass."""
    spec: Json = {"selectors": [{"cel": {"expression": one}} for one in selectors]}
    if config:
        spec["config"] = list(config)
    return {"metadata": {"name": name}, "spec": spec}


def wanted(*selectors: str, **fields: Any) -> Json:
    """An ExactDeviceRequest or DeviceSubRequest: one device of class gpu, unless the fields say otherwise."""
    found: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **fields}
    if found["allocationMode"] == "All":
        del found["count"]
    if selectors:
        found["selectors"] = [{"cel": {"expression": one}} for one in selectors]
    return found


def exactly(name: str = "r0", *selectors: str, **fields: Any) -> Json:
    """A request with ``exactly``."""
    return {"name": name, "exactly": wanted(*selectors, **fields)}


def first_available(name: str, *alternatives: Mapping[str, Any]) -> Json:
    """A request with ``firstAvailable``; its subrequests are named ``s0``, ``s1`` and so on."""
    return {"name": name, "firstAvailable": [{"name": f"s{n}", **one} for n, one in enumerate(alternatives)]}


def claim(*requests: Json, name: str = "claim-1", **fields: Any) -> Json:
    """A ResourceClaim with fields of spec.devices."""
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": list(requests), **fields}},
    }


def held(*names: str, pool: str = "pool-1", name: str = "holder", **fields: Any) -> Json:
    """An allocated claim that has these devices; the fields go into each result."""
    results = [
        {"request": "r0", "driver": fields.get("driver", DRIVER), "pool": pool, "device": one, **fields}
        for one in names
    ]
    stored = claim(exactly(), name=name)
    stored["status"] = {"allocation": {"devices": {"results": results}}}
    return stored


def case(name: str, **inputs: Any) -> Case:
    """A request to the oracle; by default with one node, one class, and no allocated claims."""
    return {
        "op": "allocate",
        "name": name,
        "node": inputs.get("node", node(zone="a", rank="5")),
        "slices": inputs.get("slices", [published(devices(2))]),
        "classes": inputs.get("classes", [device_class()]),
        "allocated": inputs.get("allocated", []),
        "claims": inputs.get("claims", [claim(exactly())]),
    }
