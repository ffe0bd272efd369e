"""What a report has of a cluster: masked objects, the node configuration, and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from driver.devices.names import DRIVER_NAME
from driver.errors import ApiError
from driver.kube.client import KubeClient
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Listed, Unread, items_of
from gpuctl.doctor.outside.admission import POLICIES
from gpuctl.doctor.outside.classes import own_classes
from gpuctl.doctor.outside.probes import perhaps
from gpuctl.doctor.outside.programs import ours, programs_of, workload_programs
from gpuctl.doctor.outside.publishing import has_gpu_label, own_slices, publishing_nodes
from gpuctl.doctor.outside.reading import CONFIG_MAP
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of
from gpuctl.fleet.holders import allocated, request_classes
from gpuctl.gather.archive import Member, as_json, safe_part, text_member
from gpuctl.gather.masking import masked_object

_NODE_STATUS = ("capacity", "allocatable", "conditions", "nodeInfo")

LINES = 2000
_MOST_LOG_BYTES = 1 << 20
MOST_PODS = 24


def cluster_members(seen: ClusterSeen) -> Iterator[Member]:
    """The objects of the report, or why they could not be read."""
    picked: dict[str, Listed] = {
        "nodes": _picked(seen.nodes, partial(_is_of_interest, seen)),
        "resourceslices": _picked(seen.slices, lambda one: one["spec"].get("driver") == DRIVER_NAME),
        "resourceclaims": _picked(seen.claims, partial(_is_own_claim, seen)),
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


def _is_own_claim(seen: ClusterSeen, claim: Object) -> bool:
    """Whether a claim has a device of this driver, or asks for one of its classes."""
    names = {name_of(one) for one in own_classes(items_of(seen.classes))}
    return any(allocated(claim)) or any(name in names for _, name in request_classes(claim))


def _picked(items: Listed, wanted: Callable[[Object], bool]) -> Listed:
    return items if isinstance(items, Unread) else tuple(one for one in items if wanted(one))


def _masked(kind: str, items: Iterable[Object]) -> list[Object]:
    return [masked_object(_node(one) if kind == "nodes" else one) for one in items]


def _node(node: Object) -> Object:
    """A Node without its addresses and the list of its images, which names other people's programs."""
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
    served, features = seen.server_version, {} if isinstance(seen.features, Unread) else seen.features
    return {
        "gpuctl": seen.gpuctl_version,
        "kubernetes": {"unread": served.why} if isinstance(served, Unread) else dict(served),
        "slices": sum(1 for _ in own_slices(seen)),
        "features": {
            name: on for name, on in features.items() if "DRA" in name or name.startswith("Resource")
        },
    }


def configuration_members(client: KubeClient, namespaces: tuple[str, ...]) -> Iterator[Member]:
    """The node configuration in each of the driver's namespaces, or why it could not be read."""
    for namespace in namespaces:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{CONFIG_MAP}"
        found = perhaps(f"read the ConfigMap {CONFIG_MAP}", partial(client.get, path))
        content = {"unread": found.why} if isinstance(found, Unread) else masked_object(found)
        yield Member(f"objects/node-configuration-{safe_part(namespace)}.json", as_json(content))


def log_members(client: KubeClient, seen: ClusterSeen) -> Iterator[Member]:
    """The logs of the driver's pods; if a node was named, those of its pods and of the webhook alone.

    Pods that are not ready or have restarted come first, since the number of pods is limited.
    """
    if isinstance(seen.pods, Unread):
        return
    pods = [pod for pod in ours(seen.pods) if _is_asked_for(pod, seen.node)]
    pods.sort(key=lambda pod: (-_trouble(pod), name_of(pod)))
    for pod in pods[:MOST_PODS]:
        for container in programs_of(pod["spec"]).values():
            yield from _logs(client, pod, str(container["name"]))
    if len(pods) > MOST_PODS:
        names = "".join(f"{namespace_of(pod)}/{name_of(pod)}\n" for pod in pods[MOST_PODS:])
        yield Member("logs/not-read.txt", f"name a node to get the logs of its pods:\n{names}".encode())


def _is_asked_for(pod: Object, node: str | None) -> bool:
    return node is None or pod["spec"].get("nodeName") == node or "webhook" in programs_of(pod["spec"])


def _trouble(pod: Object) -> int:
    """The pod's restarts, and one more for each container that is not ready."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(one.get("restartCount") or 0) + (not one.get("ready")) for one in statuses)


def _logs(client: KubeClient, pod: Object, container: str) -> Iterator[Member]:
    space, name = quote(namespace_of(pod), safe=""), quote(name_of(pod), safe="")
    path = f"/api/v1/namespaces/{space}/pods/{name}/log"
    folder = f"logs/{safe_part(name_of(pod))}/{safe_part(container)}"
    params = {"container": container, "tailLines": str(LINES), "limitBytes": str(_MOST_LOG_BYTES)}
    # The log of the run before, which the kubelet keeps for one run: only there a crash says why.
    asked = [(f"{folder}.log", params)]
    if _restarted(pod, container):
        asked.append((f"{folder}.previous.log", {**params, "previous": "true"}))
    for file, query in asked:
        try:
            text = client.text(path, query)
        except ApiError as error:
            text = f"not read: {error.what}\n"
        yield text_member(file, text)


def _restarted(pod: Object, container: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(one.get("restartCount") for one in statuses if one.get("name") == container)
