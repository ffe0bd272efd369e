"""Picks from what was seen of a cluster what belongs into a report, and masks it: pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.doctor.outside.classes import own_classes
from gpuctl.doctor.outside.policies import POLICIES
from gpuctl.doctor.outside.programs import ours, workload_programs
from gpuctl.doctor.outside.publishing import has_gpu_label, own_slices, publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, Listed, Object, Unread, name_of
from gpuctl.gather.archive import Member
from gpuctl.gather.masking import masked_object

_NODE_STATUS = ("capacity", "allocatable", "conditions", "nodeInfo")


def as_json(content: Any) -> bytes:
    """A document for people and programs."""
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def cluster_members(seen: ClusterSeen) -> Iterator[Member]:
    """The objects of the report; of kinds that could not be read, why."""
    picked: dict[str, Listed] = {
        "nodes": _picked(seen.nodes, lambda one: _is_of_interest(seen, one)),
        "resourceslices": _picked(seen.slices, lambda one: one["spec"].get("driver") == DRIVER_NAME),
        "resourceclaims": own_claims(seen),
        "deviceclasses": _picked(seen.classes, lambda one: bool(own_classes((one,)))),
        "pods": _picked(seen.pods, lambda one: bool(ours((one,)))),
        "daemonsets": _picked(seen.daemon_sets, lambda one: bool(workload_programs(one))),
        "deployments": _picked(seen.deployments, lambda one: bool(workload_programs(one))),
        "validatingwebhookconfigurations": seen.webhooks,
        "validatingadmissionpolicies": _picked(seen.policies, lambda one: name_of(one) in POLICIES),
        "validatingadmissionpolicybindings": _picked(
            seen.bindings, lambda one: one["spec"].get("policyName") in POLICIES
        ),
        "events": seen.events,
    }
    for name, items in picked.items():
        content: Any = {"unread": items.why} if isinstance(items, Unread) else _masked(name, items)
        yield Member(f"objects/{name}.json", as_json(content))
    yield Member("versions.json", as_json(_versions(seen)))


def own_claims(seen: ClusterSeen) -> Listed:
    """The claims that have a device of this driver, or ask for one of its classes."""
    if isinstance(seen.claims, Unread):
        return seen.claims
    names = {name_of(one) for one in own_classes(() if isinstance(seen.classes, Unread) else seen.classes)}
    return tuple(one for one in seen.claims if _has_device(one) or names & set(_classes_asked(one)))


def _has_device(claim: Object) -> bool:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return any(one.get("driver") == DRIVER_NAME for one in results)


def _classes_asked(claim: Object) -> Iterator[str]:
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one and one.get("deviceClassName"):
                yield str(one["deviceClassName"])


def _picked(items: Listed, wanted: Callable[[Object], bool]) -> Listed:
    return items if isinstance(items, Unread) else tuple(one for one in items if wanted(one))


def _masked(kind: str, items: Iterable[Object]) -> list[Object]:
    return [masked_object(_node(one) if kind == "nodes" else one) for one in items]


def _node(node: Object) -> Object:
    """A node without what says where it is, and who runs on it."""
    status = node.get("status") or {}
    spec = node.get("spec") or {}
    return {
        "metadata": node["metadata"],
        "spec": {name: spec[name] for name in ("taints", "unschedulable") if name in spec},
        "status": {name: status[name] for name in _NODE_STATUS if name in status},
    }


def _is_of_interest(seen: ClusterSeen, node: Object) -> bool:
    return name_of(node) in publishing_nodes(seen) or has_gpu_label(node) or name_of(node) == seen.node


def _versions(seen: ClusterSeen) -> Object:
    served = seen.server_version
    return {
        "gpuctl": seen.gpuctl_version,
        "kubernetes": {"unread": served.why} if isinstance(served, Unread) else dict(served),
        "slices": sum(1 for _ in own_slices(seen)),
        "features": {} if isinstance(seen.features, Unread) else _dra_features(seen.features),
    }


def _dra_features(features: Any) -> dict[str, bool]:
    return {name: on for name, on in features.items() if "DRA" in name or name.startswith("Resource")}
