"""Reads a cluster over the API server; what may not be read is kept as ``Unread``, with the reason."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError
from driver.event_reasons import EventReason
from driver.kube.client import KubeClient
from driver.policy.config import parse_file
from driver.policy.rules import NodeConfig
from gpuctl.cli.cluster import DRA, ClusterView, Object
from gpuctl.cli.output import own_version
from gpuctl.cli.unread import Listed, Unread, items_of
from gpuctl.doctor.inside.seen import IOMMUFD, PASSTHROUGH, TO_MACHINES, VGPU
from gpuctl.doctor.outside import probes
from gpuctl.doctor.outside.probes import perhaps
from gpuctl.doctor.outside.programs import Program, account_of, programs_of
from gpuctl.doctor.outside.rights import NEEDED, TO_LOOK, WHERE_IT_RUNS
from gpuctl.doctor.outside.seen import ClusterSeen, Right, name_of, namespace_of
from gpuctl.fleet.devices import attribute

DEFAULT_NAMESPACE = "gpu-dra"
COMPONENTS = ("gpu-dra-controller", "gpu-dra-kubeletplugin")
"""The names under which the driver's processes report events."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "nodes": "/api/v1/nodes",
    "slices": f"{DRA}/resourceslices",
    "classes": f"{DRA}/deviceclasses",
    "claims": f"{DRA}/resourceclaims",
    "pods": "/api/v1/pods",
    "daemon_sets": "/apis/apps/v1/daemonsets",
    "deployments": "/apis/apps/v1/deployments",
    "webhooks": f"{_ADMISSION}/validatingwebhookconfigurations",
    "policies": f"{_ADMISSION}/validatingadmissionpolicies",
    "bindings": f"{_ADMISSION}/validatingadmissionpolicybindings",
}

CONFIG_MAP = "gpu-dra-node-config"
_TYPES = {"vfio": PASSTHROUGH, "vgpu": VGPU}
"""The attribute ``type`` of devices for virtual machines -> the word for what the node offers."""


def look_at_cluster(client: KubeClient, node: str | None) -> ClusterSeen:
    """Read everything; raises Unreachable, Unauthorized, and ConfigError for a node that does not exist."""
    # Every user may read this path: an error here means that there is no way to the API server at all.
    served = client.get("/version")
    view = ClusterView(client)
    listed = {name: _listed(view, path) for name, path in _PATHS.items()}
    _check_node(node, listed["nodes"])
    resources = perhaps("read the resources of resource.k8s.io/v1", partial(client.get, DRA))
    webhooks = _ours(listed["webhooks"])
    accounts = driver_accounts(listed["daemon_sets"], listed["pods"])
    namespaces = tuple(sorted({namespace for namespace, _ in accounts.values()}))
    return ClusterSeen(
        gpuctl_version=own_version(),
        server_version=served,
        dra_resources=resources
        if isinstance(resources, Unread)
        else tuple(str(one["name"]) for one in resources.get("resources") or ()),
        features=perhaps("read the metrics of the API server", partial(probes.features, client)),
        dropped_fields=perhaps("create slices, even in a dry run", partial(probes.dropped_fields, client)),
        own_rights=perhaps("ask for its own rights", partial(probes.granted, client, TO_LOOK)),
        account_rights=_account_rights(client, accounts),
        **{name: items for name, items in listed.items() if name != "webhooks"},
        webhooks=webhooks,
        services=_together(_listed(view, f"/api/v1/namespaces/{one}/services") for one in namespaces),
        endpoint_slices=_together(
            _listed(view, f"/apis/discovery.k8s.io/v1/namespaces/{one}/endpointslices") for one in namespaces
        ),
        # The API server filters by these fields itself: a cluster may have very many events.
        events=_together(
            _listed(view, "/api/v1/events", fieldSelector=one)
            for one in (
                *(f"reportingComponent={one},type=Warning" for one in COMPONENTS),
                f"reason={EventReason.GPU_WELL.word}",
            )
        ),
        webhook_answer=_webhook_answer(client, webhooks),
        now=time.time(),
        node=node,
        namespaces=namespaces,
    )


def driver_accounts(daemon_sets: Listed, pods: Listed) -> dict[Program, tuple[str, str]]:
    """The service accounts of the driver's processes, as namespace and name.

    A process that is in no pod may run outside of pods, or this user may not see its pod: it counts with the
    usual account.
    """
    found: dict[Program, tuple[str, str]] = {}
    specs = [(one, (one["spec"].get("template") or {}).get("spec") or {}) for one in items_of(daemon_sets)]
    for item, spec in (*specs, *((pod, pod["spec"]) for pod in items_of(pods))):
        for program in programs_of(spec):
            found.setdefault(program, (namespace_of(item), account_of(spec)))
    return {
        program: found.get(program, (DEFAULT_NAMESPACE, f"gpu-dra-{program}"))
        for program in NEEDED
        if program in found or program not in WHERE_IT_RUNS
    }


def _account_rights(
    client: KubeClient, accounts: Mapping[Program, tuple[str, str]]
) -> dict[str, Mapping[Right, bool] | Unread]:
    return {
        "/".join(account): perhaps(
            "ask for the rights of others", partial(probes.granted, client, NEEDED[program], account)
        )
        for program, account in accounts.items()
    }


def _check_node(node: str | None, nodes: Listed) -> None:
    if node is None or isinstance(nodes, Unread) or any(name_of(one) == node for one in nodes):
        return
    raise ConfigError(f"there is no node {node}", "give a name that `kubectl get nodes` lists")


def _listed(view: ClusterView, path: str, **params: str) -> Listed:
    # The last part of a collection's path is the plural name of its kind.
    kind = path.rpartition("/")[2]
    return perhaps(f"list {kind}", lambda: tuple(view.listed(path, **params)))


def _together(lists: Iterable[Listed]) -> Listed:
    """The objects of all lists; if one of them could not be read, none."""
    found: list[Object] = []
    for items in lists:
        if isinstance(items, Unread):
            return items
        found += items
    return tuple(found)


def _ours(webhooks: Listed) -> Listed:
    """The configurations of the driver's webhook; its hooks have names below gpu.nvidia.com."""
    if isinstance(webhooks, Unread):
        return webhooks
    return tuple(
        item
        for item in webhooks
        if any(str(one.get("name", "")).endswith(".gpu.nvidia.com") for one in item.get("webhooks") or ())
    )


def _webhook_answer(client: KubeClient, webhooks: Listed) -> str | Unread:
    if isinstance(webhooks, Unread):
        return webhooks
    if not webhooks:
        return Unread("no webhook is configured")
    # Claims are namespaced, and default is the one namespace that every cluster has for users.
    ask = partial(probes.asked_webhook, client, webhooks)
    return perhaps("create claims in the namespace default, even in a dry run", ask)


def read_configurations(client: KubeClient, namespaces: Iterable[str]) -> tuple[str, ...]:
    """The driver's node configurations that this user may read."""
    found = []
    for namespace in namespaces:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{CONFIG_MAP}"
        stored = perhaps(f"read the ConfigMap {CONFIG_MAP}", partial(client.get, path))
        if not isinstance(stored, Unread):
            found += [str(text) for text in (stored.get("data") or {}).values()]
    return tuple(found)


def offered_to_machines(seen: ClusterSeen, node: str, configurations: Iterable[str]) -> tuple[str, ...]:
    """What a node offers to virtual machines, in the order of TO_MACHINES.

    The rules of its pool count, whichever GPU they are for, and so do its published devices. Classes and
    claims ask for IOMMUFD.
    """
    labels = _labels(seen.nodes, node)
    found = {word for text in configurations for word in _configured(text, labels)}
    found |= set(_published(seen.slices, node))
    if PASSTHROUGH in found and any(map(_asks_for_iommufd, _parameters(seen))):
        found.add(IOMMUFD)
    return tuple(word for word in TO_MACHINES if word in found)


def _configured(text: str, labels: Mapping[str, str]) -> Iterator[str]:
    """What the rules of a node's pool offer; nothing if they are invalid, which the controller reports."""
    # A node belongs to a pool of the configuration by its labels.
    try:
        rules: NodeConfig = parse_file(text, CONFIG_MAP).pool_of(labels).rules
    except ConfigError:
        return
    for rule in rules.rules:
        for word in (PASSTHROUGH, VGPU):
            if rule.policy.form == word or rule.policy.more.get(word):
                yield word


def _published(slices: Listed, node: str) -> Iterator[str]:
    for stored in items_of(slices):
        spec = stored["spec"]
        if (spec.get("driver"), spec.get("nodeName")) == (DRIVER_NAME, node):
            kinds = (attribute(device, "type") for device in spec.get("devices") or ())
            yield from (_TYPES[kind] for kind in kinds if kind in _TYPES)


def _labels(nodes: Listed, node: str) -> Mapping[str, str]:
    stored: Object = next((one for one in items_of(nodes) if name_of(one) == node), {"metadata": {}})
    return stored["metadata"].get("labels") or {}


def _parameters(seen: ClusterSeen) -> Iterator[Any]:
    """The opaque configurations of classes and claims for this driver."""
    for listed in (seen.classes, seen.claims):
        for stored in items_of(listed):
            # A class has its configuration in its spec, a claim one level deeper, in devices.
            spec = stored["spec"]
            for one in (spec.get("devices") or spec).get("config") or ():
                opaque = one.get("opaque") or {}
                if opaque.get("driver") == DRIVER_NAME:
                    yield opaque.get("parameters")


def _asks_for_iommufd(parameters: Any) -> bool:
    """Whether a VfioDeviceConfig prefers IOMMUFD; users write it, so it may have any shape."""
    iommu = parameters.get("iommu") if isinstance(parameters, dict) else None
    return isinstance(iommu, dict) and iommu.get("backendPolicy") == "PreferIommuFD"
