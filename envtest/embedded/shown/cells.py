"""The cells of a row of ``kubectl get`` for each kind. Go: kubernetes/pkg/printers/internalversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envtest.embedded.shown import workload_cells
from envtest.embedded.shown.ages import age_of
from envtest.embedded.shown.pod_cells import pod_cells
from envtest.embedded.shown.workload_cells import label_text
from kubernetes_rules.selectors import label_selector_text

Object = dict[str, Any]
Cells = list[Any]

_MOST_SHOWN = 3
"""How many endpoints or ports a cell shows."""


def _node(item: Object) -> Cells:
    status, labels = item.get("status") or {}, item["metadata"].get("labels") or {}
    conditions = {one["type"]: one.get("status") for one in status.get("conditions") or []}
    words = [
        "Unknown" if "Ready" not in conditions else "Ready" if conditions["Ready"] == "True" else "NotReady"
    ]
    if (item.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or []}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        _name(item),
        ",".join(words),
        ",".join(roles) or "<none>",
        _age(item),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(item: Object) -> Cells:
    about, source = item.get("involvedObject") or {}, item.get("source") or {}
    first = age_of(item.get("firstTimestamp") or item.get("eventTime"))
    last = age_of(item["lastTimestamp"]) if item.get("lastTimestamp") else first
    # Events of the newer API count in a series.
    count, series = item.get("count") or 1, item.get("series")
    if series:
        last, count = age_of(series.get("lastObservedTime")), series.get("count")
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    component = source.get("component") or item.get("reportingComponent") or ""
    host = source.get("host") or item.get("reportingInstance") or ""
    return [
        last,
        item.get("type", ""),
        item.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        (item.get("message") or "").strip(),
        first,
        count,
        _name(item),
    ]


def _claim(item: Object) -> Cells:
    status, deleted = item.get("status") or {}, "deletionTimestamp" in item["metadata"]
    states = ["deleted"] if deleted else []
    if status.get("allocation"):
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    elif not deleted:
        states.append("pending")
    return [_name(item), ",".join(states), _age(item)]


def _resource_slice(item: Object) -> Cells:
    spec = item.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [_name(item), spec.get("nodeName") or "", spec.get("driver", ""), pool, _age(item)]


def _taint_rule(item: Object) -> Cells:
    taint = (item.get("spec") or {}).get("taint") or {}
    words = [taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")]
    return [_name(item), *words, age_of(taint.get("timeAdded")), _age(item)]


def _quota(item: Object) -> Cells:
    status = item.get("status") or {}
    used, hard = status.get("used") or {}, status.get("hard") or {}
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    requests = ", ".join(text for name, text in texts.items() if not name.startswith("limits."))
    limits = ", ".join(text for name, text in texts.items() if name.startswith("limits."))
    return [_name(item), requests, limits, _age(item)]


def _config_map(item: Object) -> Cells:
    return [_name(item), len(item.get("data") or {}) + len(item.get("binaryData") or {}), _age(item)]


def _namespace(item: Object) -> Cells:
    return [_name(item), (item.get("status") or {}).get("phase", ""), _age(item)]


def _budget(item: Object) -> Cells:
    spec, allowed = item.get("spec") or {}, (item.get("status") or {}).get("disruptionsAllowed", 0)
    limits = [spec.get(name) for name in ("minAvailable", "maxUnavailable")]
    return [_name(item), *("N/A" if one is None else str(one) for one in limits), allowed, _age(item)]


def _priority_class(item: Object) -> Cells:
    policy = item.get("preemptionPolicy") or "PreemptLowerPriority"
    return [_name(item), item.get("value", 0), bool(item.get("globalDefault")), _age(item), policy]


def _lease(item: Object) -> Cells:
    return [_name(item), (item.get("spec") or {}).get("holderIdentity") or "", _age(item)]


def _service(item: Object) -> Cells:
    spec = item.get("spec") or {}
    ports = [
        f"{port['port']}:{port['nodePort']}/{port.get('protocol', 'TCP')}"
        if port.get("nodePort")
        else f"{port['port']}/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or []
    ]
    address = (spec.get("clusterIPs") or ["<none>"])[0]
    cells = [_name(item), spec.get("type", ""), address, _external(item), ",".join(ports) or "<none>"]
    return [*cells, _age(item), label_text(spec.get("selector"))]


def _external(service: Object) -> str:
    spec, given = service.get("spec") or {}, list((service.get("spec") or {}).get("externalIPs") or [])
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or "<none>"
        case "LoadBalancer":
            points = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
            found = sorted({one.get("ip") or one.get("hostname") or "" for one in points} - {""})
            return ",".join([*found, *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return "<unknown>"


def _endpoints(item: Object) -> Cells:
    found = [
        f"[{ip}]:{port['port']}" if port is not None and ":" in ip else f"{ip}:{port['port']}" if port else ip
        for subset in item.get("subsets") or []
        for port in subset.get("ports") or [None]
        for ip in (one["ip"] for one in subset.get("addresses") or [])
    ]
    shown = _first(found) if item.get("subsets") else "<none>"
    return [_name(item), shown, _age(item)]


def _endpoint_slice(item: Object) -> Cells:
    ports = [str(one.get("port") or one.get("name") or "*") for one in item.get("ports") or []]
    addresses = [address for one in item.get("endpoints") or [] for address in one.get("addresses") or []]
    shown = [_first(found) or "<unset>" for found in (ports, addresses)]
    return [_name(item), item.get("addressType", ""), *shown, _age(item)]


def _first(found: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(found) - _MOST_SHOWN
    return ",".join(found[:_MOST_SHOWN]) + (f" + {more} more..." if more > 0 else "")


def _secret(item: Object) -> Cells:
    return [_name(item), item.get("type", ""), len(item.get("data") or {}), _age(item)]


def _network_policy(item: Object) -> Cells:
    selector = (item.get("spec") or {}).get("podSelector")
    return [_name(item), label_selector_text(selector) or "<none>", _age(item)]


def _binding(item: Object) -> Cells:
    role, subjects = item["roleRef"], item.get("subjects") or []
    users, groups = (
        ", ".join(one["name"] for one in subjects if one["kind"] == kind) for kind in ("User", "Group")
    )
    accounts = ", ".join(
        f"{one.get('namespace', '')}/{one['name']}" for one in subjects if one["kind"] == "ServiceAccount"
    )
    return [_name(item), f"{role['kind']}/{role['name']}", _age(item), users, groups, accounts]


def _webhooks(item: Object) -> Cells:
    return [_name(item), len(item.get("webhooks") or []), _age(item)]


def _policy(item: Object) -> Cells:
    spec = item.get("spec") or {}
    kind = spec.get("paramKind")
    shown = f"{kind['apiVersion']}/{kind['kind']}" if kind else "<unset>"
    return [_name(item), len(spec.get("validations") or []), shown, _age(item)]


def _policy_binding(item: Object) -> Cells:
    spec = item.get("spec") or {}
    parameters = spec.get("paramRef") or {}
    shown = "<unset>"
    if parameters.get("name"):
        shown = f"{parameters.get('namespace') or '*'}/{parameters['name']}"
    elif parameters.get("selector") is not None:
        shown = label_selector_text(parameters["selector"])
    return [_name(item), spec.get("policyName", ""), shown, _age(item)]


def _revision(item: Object) -> Cells:
    owner = next(
        (one for one in item["metadata"].get("ownerReferences") or [] if one.get("controller")), None
    )
    shown = "<none>"
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        kind = owner["kind"].lower()
        shown = f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return [_name(item), shown, item.get("revision", 0), _age(item)]


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _age(item: Object) -> str:
    return age_of(item["metadata"].get("creationTimestamp"))


def _aged(item: Object) -> Cells:
    return [_name(item), _age(item)]


def plain_cells(item: Object) -> Cells:
    """Name and time of creation, which is all that is shown of kinds without columns of their own."""
    return [_name(item), item["metadata"].get("creationTimestamp") or "<unknown>"]


CELLS: Mapping[str, Callable[[Object], Cells]] = {
    "configmaps": _config_map,
    "controllerrevisions": _revision,
    "clusterrolebindings": _binding,
    "daemonsets": workload_cells.daemon_set_cells,
    "deployments": workload_cells.deployment_cells,
    "deviceclasses": _aged,
    "devicetaintrules": _taint_rule,
    "endpoints": _endpoints,
    "endpointslices": _endpoint_slice,
    "events": _event,
    "jobs": workload_cells.job_cells,
    "leases": _lease,
    "mutatingwebhookconfigurations": _webhooks,
    "namespaces": _namespace,
    "networkpolicies": _network_policy,
    "nodes": _node,
    "poddisruptionbudgets": _budget,
    "pods": pod_cells,
    "priorityclasses": _priority_class,
    "replicasets": workload_cells.replica_set_cells,
    "resourceclaims": _claim,
    "resourceclaimtemplates": _aged,
    "resourcequotas": _quota,
    "resourceslices": _resource_slice,
    "rolebindings": _binding,
    "scales": workload_cells.scale_cells,
    "secrets": _secret,
    "serviceaccounts": _aged,
    "services": _service,
    "statefulsets": workload_cells.stateful_set_cells,
    "validatingadmissionpolicies": _policy,
    "validatingadmissionpolicybindings": _policy_binding,
    "validatingwebhookconfigurations": _webhooks,
}
"""For the names of the kinds that have columns of their own."""
