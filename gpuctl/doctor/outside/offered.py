"""Finds out what a node is to offer to virtual machines: from its configuration, its slices, and classes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError
from driver.policy.config import parse_file
from gpuctl.doctor.inside.machines.seen import IOMMUFD, PASSTHROUGH, TO_MACHINES, VGPU
from gpuctl.doctor.outside.probes import perhaps
from gpuctl.doctor.outside.seen import ClusterSeen, Listed, Object, Unread, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from driver.kube.client import KubeClient
    from driver.policy.rules import NodeConfig

CONFIG_MAP = "gpu-dra-node-config"
_TYPES = {"vfio": PASSTHROUGH, "vgpu": VGPU}
"""The attribute ``type`` of devices for virtual machines -> what it is to offer them."""


def read_configurations(client: KubeClient, namespaces: Iterable[str]) -> tuple[str, ...]:
    """The node configurations of the driver; none where there are none, or this user may not read them."""
    found = []
    for namespace in namespaces:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{CONFIG_MAP}"
        stored = perhaps(f"read the ConfigMap {CONFIG_MAP}", partial(client.get, path))
        if not isinstance(stored, Unread):
            found += [str(text) for text in (stored.get("data") or {}).values()]
    return tuple(found)


def offered_to_machines(seen: ClusterSeen, node: str, configurations: Iterable[str]) -> tuple[str, ...]:
    """What the node is to offer to virtual machines, sorted as TO_MACHINES.

    The rules of its pool count, whichever GPU they are for; so does what it publishes. IOMMUFD is asked for
    by classes and claims.
    """
    labels = _labels(seen.nodes, node)
    found = {word for text in configurations for word in _configured(text, labels)}
    found |= set(_published(seen.slices, node))
    if found & {PASSTHROUGH} and any(map(_asks_for_iommufd, _parameters(seen))):
        found.add(IOMMUFD)
    return tuple(word for word in TO_MACHINES if word in found)


def _configured(text: str, labels: Mapping[str, str]) -> Iterator[str]:
    """What the rules say; nothing where they cannot be used, which the controller tells of itself."""
    try:
        rules: NodeConfig = parse_file(text, CONFIG_MAP).pool_of(labels).rules
    except ConfigError:
        return
    for rule in rules.rules:
        for word in (PASSTHROUGH, VGPU):
            if rule.policy.form == word or rule.policy.more.get(word):
                yield word


def _published(slices: Listed, node: str) -> Iterator[str]:
    for stored in () if isinstance(slices, Unread) else slices:
        spec = stored["spec"]
        if (spec.get("driver"), spec.get("nodeName")) != (DRIVER_NAME, node):
            continue
        for device in spec.get("devices") or ():
            told = (device.get("attributes") or {}).get("type") or {}
            if told.get("string") in _TYPES:
                yield _TYPES[told["string"]]


def _labels(nodes: Listed, node: str) -> Mapping[str, str]:
    found = () if isinstance(nodes, Unread) else nodes
    stored: Object = next((one for one in found if name_of(one) == node), {"metadata": {}})
    return stored["metadata"].get("labels") or {}


def _parameters(seen: ClusterSeen) -> Iterator[Any]:
    """The opaque configurations of classes and claims for this driver."""
    for listed in (seen.classes, seen.claims):
        for stored in () if isinstance(listed, Unread) else listed:
            spec = stored["spec"]
            for one in (spec.get("devices") or spec).get("config") or ():
                opaque = one.get("opaque") or {}
                if opaque.get("driver") == DRIVER_NAME:
                    yield opaque.get("parameters")


def _asks_for_iommufd(parameters: Any) -> bool:
    """Whether a VfioDeviceConfig prefers IOMMUFD; it is a user's, so it may be anything."""
    iommu = parameters.get("iommu") if isinstance(parameters, dict) else None
    return isinstance(iommu, dict) and iommu.get("backendPolicy") == "PreferIommuFD"
