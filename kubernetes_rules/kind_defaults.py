"""Default values of kinds other than pods, workloads and claims, as the API server fills them in.

Go: defaults.go in pkg/apis/core/v1, rbac/v1, networking/v1 and discovery/v1, and the allocators of
pkg/registry/core/service/storage.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]
Json = Mapping[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_AFFINITY_SECONDS = 10_800
_SERVICE_NETWORK = "10.96"
"""Where addresses of Services are allocated: a network of 16 bits."""

_NODE_PORTS = range(30_000, 32_768)
_WITH_PORTS = ("NodePort", "LoadBalancer")
_KEPT = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def fill_in_defaults(item: Object, old: Json | None) -> None:
    """Fill in the defaults of an object, new or an update of ``old``; nothing for a kind without any here."""
    fill = _FILL.get(item["kind"])
    if fill is not None:
        fill(item, old)


def _service(item: Object, old: Json | None) -> None:
    spec = item["spec"]
    if old is not None:
        _drop_what_other_types_have(spec, old.get("spec") or {})
    spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
        seconds = _AFFINITY_SECONDS if seconds is None else seconds
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": seconds}}
    kind = spec["type"] = spec.get("type") or "ClusterIP"
    for port in spec.get("ports") or []:
        port["protocol"] = port.get("protocol") or "TCP"
        port["targetPort"] = port.get("targetPort") or port.get("port") or 0
    if kind == "ExternalName":
        return
    if kind in _WITH_PORTS or spec.get("externalIPs"):
        spec["externalTrafficPolicy"] = spec.get("externalTrafficPolicy") or "Cluster"
    spec["internalTrafficPolicy"] = spec.get("internalTrafficPolicy") or "Cluster"
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is None:
        spec["allocateLoadBalancerNodePorts"] = True
    _allocate(spec, (old or {}).get("spec") or {})


def _drop_what_other_types_have(spec: Object, old: Json) -> None:
    """Drop fields that a Service of the new type does not have, unless the update changes them too."""
    kind, was = spec.get("type") or "ClusterIP", old.get("type") or "ClusterIP"
    if spec.get("clusterIP") != old.get("clusterIP") and spec.get("clusterIPs") == old.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []
    gone: list[str] = []
    if kind == "ExternalName" != was:
        gone += [*_KEPT, "internalTrafficPolicy"]
    if kind != "LoadBalancer" == was:
        gone += ["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]
    if kind not in _WITH_PORTS and was in _WITH_PORTS:
        gone.append("externalTrafficPolicy")
        ports = {port.get("nodePort") for port in old.get("ports") or []}
        for port in spec.get("ports") or []:
            if port.get("nodePort") in ports:
                port.pop("nodePort", None)
    for name in gone:
        if spec.get(name) == old.get(name):
            spec.pop(name, None)


def _allocate(spec: Object, old: Json) -> None:
    """Give a Service an address and ports of nodes, or those that it has already."""
    if old.get("clusterIP") and spec.get("clusterIP") in (None, "", old["clusterIP"]):
        spec.update({name: old[name] for name in _KEPT if name in old and not spec.get(name)})
    if not spec.get("clusterIP"):
        low = secrets.randbelow(2**16 - 2) + 1
        spec["clusterIP"] = f"{_SERVICE_NETWORK}.{low >> 8}.{low & 255}"
    spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
    dual = spec["clusterIP"] == "None" and not spec.get("selector")
    spec["ipFamilyPolicy"] = spec.get("ipFamilyPolicy") or ("RequireDualStack" if dual else "SingleStack")
    families = ["IPv4", "IPv6"] if spec["ipFamilyPolicy"] == "RequireDualStack" else ["IPv4"]
    spec["ipFamilies"] = spec.get("ipFamilies") or families
    if spec["type"] not in _WITH_PORTS or spec.get("allocateLoadBalancerNodePorts") is False:
        return
    known = {
        (port.get("protocol"), port.get("port")): port.get("nodePort") for port in old.get("ports") or []
    }
    for port in spec.get("ports") or []:
        before = known.get((port["protocol"], port.get("port")))
        port["nodePort"] = port.get("nodePort") or before or secrets.choice(_NODE_PORTS)


def _network_policy(item: Object, _old: Json | None) -> None:
    spec = item["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or []:
            for port in rule.get("ports") or []:
                port["protocol"] = port.get("protocol") or "TCP"


def _binding(item: Object, _old: Json | None) -> None:
    role = item["roleRef"]
    role["apiGroup"] = role.get("apiGroup") or _RBAC
    for subject in item.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = subject.get("apiGroup") or _RBAC


def _limit_range(item: Object, _old: Json | None) -> None:
    for limit in item["spec"].get("limits") or []:
        if limit.get("type") != "Container":
            continue
        limits = {**(limit.get("max") or {}), **(limit.get("default") or {})}
        requests = {**(limit.get("min") or {}), **limits, **(limit.get("defaultRequest") or {})}
        # An empty map of amounts is not written.
        limit.update({name: one for name, one in (("default", limits), ("defaultRequest", requests)) if one})


def _priority_class(item: Object, _old: Json | None) -> None:
    if item.get("preemptionPolicy") is None:
        item["preemptionPolicy"] = "PreemptLowerPriority"


def _ports(item: Object, _old: Json | None) -> None:
    for port in item.get("ports") or []:
        port["name"] = port.get("name") or ""
        port["protocol"] = port.get("protocol") or "TCP"
    for subset in item.get("subsets") or []:
        for port in subset.get("ports") or []:
            port["protocol"] = port.get("protocol") or "TCP"


def _node(item: Object, _old: Json | None) -> None:
    status = item.get("status") or {}
    if status.get("capacity") and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])


def _volume_claim(item: Object, _old: Json | None) -> None:
    spec = item["spec"] = item.get("spec") or {}
    spec["volumeMode"] = spec.get("volumeMode") or "Filesystem"


def _lease(item: Object, _old: Json | None) -> None:
    # Fields of the gate CoordinatedLeaderElection, which is off.
    for name in ("strategy", "preferredHolder"):
        item["spec"].pop(name, None)


def _role(item: Object, _old: Json | None) -> None:
    # The one list without omitempty in Go: an empty one is null.
    item["rules"] = item.get("rules") or None


_FILL: dict[str, Callable[[Object, Json | None], None]] = {
    "Service": _service,
    "NetworkPolicy": _network_policy,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "LimitRange": _limit_range,
    "PriorityClass": _priority_class,
    "Endpoints": _ports,
    "EndpointSlice": _ports,
    "Node": _node,
    "PersistentVolumeClaim": _volume_claim,
    "Lease": _lease,
    "Role": _role,
    "ClusterRole": _role,
}
