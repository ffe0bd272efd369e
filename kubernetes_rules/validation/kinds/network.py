"""Checks Services, NetworkPolicies, Endpoints and EndpointSlices.

Go: pkg/apis/core/validation, pkg/apis/networking/validation and pkg/apis/discovery/validation.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from kubernetes_rules.validation import names
from kubernetes_rules.validation.field import (
    FieldError,
    all_invalid,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from kubernetes_rules.validation.metadata import label_selector_errors, labels_errors, name_errors

Object = dict[str, Any]

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_TRAFFIC = ("Cluster", "Local")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_PORT_RANGE = "must be between 1 and 65535, inclusive"
_MOST_AFFINITY_SECONDS = 86_400
_POLICY_TYPES = ("Ingress", "Egress")
_MOST_ENDPOINTS, _MOST_ADDRESSES, _MOST_PORTS = 1000, 100, 20_000
_FIXED = "field is immutable"
_LEADING_ZERO = re.compile(r"(^|[./])0[0-9]", re.ASCII)


def service_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of the spec of a Service, which has its defaults."""
    spec = item.get("spec") or {}
    kind, ports = spec.get("type") or "", spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    errors = _address_change_errors(spec, (old or {}).get("spec") or {})
    if not ports and not headless and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if headless and kind in ("LoadBalancer", "NodePort"):
        errors.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        errors += _external_name_errors(spec)
    errors += _port_list_errors(ports)
    errors += labels_errors(spec.get("selector") or {}, "spec.selector") + _affinity_errors(spec)
    if kind not in _SERVICE_TYPES:
        errors.append(not_supported("spec.type", kind, _SERVICE_TYPES))
    return errors + _node_port_errors(ports, kind) + _traffic_errors(spec, kind)


def _external_name_errors(spec: Object) -> list[FieldError]:
    errors = [
        forbidden(f"spec.{name}", "may not be set for ExternalName services")
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(name)
    ]
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        return [*errors, required("spec.externalName")]
    return errors + all_invalid("spec.externalName", name, name_errors(name))


def _port_list_errors(ports: list[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name") or ""
        if len(ports) > 1 and not name:
            errors.append(required(f"{path}.name"))
        elif name:
            errors += all_invalid(f"{path}.name", name, names.dns_label(name, "characters"))
            errors += [duplicate(f"{path}.name", name)] if name in seen else []
            seen.add(name)
        errors += _number_errors(f"{path}.port", port.get("port") or 0)
        errors += _protocol_errors(port, path)
        target = port.get("targetPort", 0)
        if isinstance(target, int):
            errors += _number_errors(f"{path}.targetPort", target)
        else:
            errors += all_invalid(f"{path}.targetPort", target, names.port_name(target))
        application = port.get("appProtocol")
        if application is not None:
            errors += all_invalid(f"{path}.appProtocol", application, names.label_key(application))
    return errors


def _number_errors(path: str, number: int) -> list[FieldError]:
    return [] if 0 < number < 65536 else [invalid(path, number, _PORT_RANGE)]


def _protocol_errors(port: Object, path: str) -> list[FieldError]:
    protocol = port.get("protocol") or ""
    if not protocol:
        return [required(f"{path}.protocol")]
    return [] if protocol in _PROTOCOLS else [not_supported(f"{path}.protocol", protocol, _PROTOCOLS)]


def _node_port_errors(ports: list[Object], kind: str) -> list[FieldError]:
    errors: list[FieldError] = []
    used: set[Any] = set()
    text = "may not be used when `type` is 'ClusterIP'"
    errors += [
        forbidden(f"spec.ports[{index}].nodePort", text)
        for index, port in enumerate(ports)
        if kind == "ClusterIP" and port.get("nodePort")
    ]
    for key in ("nodePort", "port"):
        used.clear()
        for index, port in enumerate(ports):
            number, path = port.get(key), f"spec.ports[{index}]"
            if not number and key == "nodePort":
                continue
            found = (port.get("protocol"), number)
            if found in used and key == "nodePort":
                errors.append(duplicate(f"{path}.nodePort", number))
            elif found in used:
                shown = {"Name": "", "Protocol": found[0], "AppProtocol": None, "Port": number}
                errors.append(duplicate(path, {**shown, "TargetPort": 0, "NodePort": 0}))
            used.add(found)
    return errors


def _affinity_errors(spec: Object) -> list[FieldError]:
    affinity, config = spec.get("sessionAffinity") or "", spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    if affinity not in _AFFINITIES:
        return [not_supported("spec.sessionAffinity", affinity, _AFFINITIES)]
    if affinity == "None":
        text = "must not be set when session affinity is None"
        return [forbidden(path, text)] if config is not None else []
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is None:
        return [required(path, "when session affinity type is ClientIP")]
    if 0 < seconds <= _MOST_AFFINITY_SECONDS:
        return []
    text = f"must be greater than 0 and less than {_MOST_AFFINITY_SECONDS}"
    return [invalid(f"{path}.clientIP.timeoutSeconds", seconds, text)]


def _traffic_errors(spec: Object, kind: str) -> list[FieldError]:
    outside, inside = spec.get("externalTrafficPolicy") or "", spec.get("internalTrafficPolicy")
    errors: list[FieldError] = []
    only = "may only be used when `type` is 'LoadBalancer'"
    if kind != "LoadBalancer":
        if spec.get("loadBalancerSourceRanges"):
            errors.append(forbidden("spec.LoadBalancerSourceRanges", only))
        if spec.get("allocateLoadBalancerNodePorts") is not None:
            errors.append(forbidden("spec.allocateLoadBalancerNodePorts", only))
        if spec.get("loadBalancerClass") is not None:
            errors.append(forbidden("spec.loadBalancerClass", only))
    accessible = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if not accessible and outside:
        text = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", outside, text))
    elif accessible and outside not in _TRAFFIC:
        errors.append(not_supported("spec.externalTrafficPolicy", outside, _TRAFFIC))
    if inside is not None and inside not in _TRAFFIC:
        errors.append(not_supported("spec.internalTrafficPolicy", inside, _TRAFFIC))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        errors.append(not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))
    return errors


def _address_change_errors(spec: Object, old: Object) -> list[FieldError]:
    was, now = old.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if not was or "ExternalName" in (spec.get("type"), old.get("type")) or was[0] == "":
        return []
    if not now or now[0] == was[0]:
        return []
    text = "may not change once set"
    return [invalid("spec.clusterIPs[0]", now, text)]


def policy_errors(item: Object, _old: Object | None) -> list[FieldError]:
    """The errors of the spec of a NetworkPolicy."""
    spec = item.get("spec") or {}
    errors = label_selector_errors(spec.get("podSelector") or {}, "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or []):
            path = f"spec.{direction}[{index}]"
            for at, port in enumerate(rule.get("ports") or []):
                errors += _policy_port_errors(port, f"{path}.ports[{at}]")
            for at, peer in enumerate(rule.get(peers) or []):
                errors += _peer_errors(peer, f"{path}.{peers}[{at}]")
    types = spec.get("policyTypes") or []
    if len(types) > len(_POLICY_TYPES):
        return [*errors, invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    return errors + [
        not_supported(f"spec.policyTypes[{index}]", kind, _POLICY_TYPES)
        for index, kind in enumerate(types)
        if kind not in _POLICY_TYPES
    ]


def _policy_port_errors(port: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in _PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP")))
    if isinstance(number, int):
        errors += _number_errors(f"{path}.port", number)
        if end is not None and end < number:
            errors.append(invalid(f"{path}.endPort", end, "must be greater than or equal to `port`"))
        return errors + ([] if end is None else _number_errors(f"{path}.endPort", end))
    if end is not None:
        why = "is not specified" if number is None else "is non-numeric"
        errors.append(invalid(f"{path}.endPort", end, f"may not be specified when `port` {why}"))
    return errors + ([] if number is None else all_invalid(f"{path}.port", number, names.port_name(number)))


def _peer_errors(peer: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in ("podSelector", "namespaceSelector"):
        if peer.get(name) is not None:
            errors += label_selector_errors(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        errors += _block_errors(block, f"{path}.ipBlock")
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    if not given:
        errors.append(required(path, "must specify a peer"))
    elif block is not None and len(given) > 1:
        errors.append(forbidden(path, "may not specify both ipBlock and another peer"))
    return errors


def _block_errors(block: Object, path: str) -> list[FieldError]:
    text = block.get("cidr") or ""
    if not text:
        return [required(f"{path}.cidr")]
    whole, errors = _network(text, f"{path}.cidr")
    for index, one in enumerate(block.get("except") or []):
        part, wrong = _network(one, f"{path}.except[{index}]")
        errors += wrong
        if whole is not None and part is not None and not _is_within(part, whole):
            errors.append(invalid(f"{path}.except[{index}]", one, "must be a strict subset of `cidr`"))
    return errors


def _network(text: str, path: str) -> tuple[IPv4Network | IPv6Network | None, list[FieldError]]:
    rule = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    if _LEADING_ZERO.search(text) and ":" not in text:
        return None, [invalid(path, text, "must not have leading 0s in IP or prefix length")]
    if "/" not in text:
        return None, [invalid(path, text, rule)]
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        return None, [invalid(path, text, rule)]
    if str(found.network_address) != text.partition("/")[0]:
        return found, [invalid(path, text, "must not have bits set beyond the prefix length")]
    return found, []


def _is_within(part: IPv4Network | IPv6Network, whole: IPv4Network | IPv6Network) -> bool:
    return (
        part.version == whole.version and part.network_address in whole and part.prefixlen > whole.prefixlen
    )


def endpoints_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of the subsets of Endpoints."""
    errors: list[FieldError] = []
    subsets = item.get("subsets") or []
    if old is not None and subsets == (old.get("subsets") or []):
        return []
    for index, subset in enumerate(subsets):
        path, ports = f"subsets[{index}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(name) or []):
                here = f"{path}.{name}[{at}]"
                text = address.get("ip") or ""
                errors += _address_errors(text, f"{here}.ip", again=True)
                errors += _host_errors(address, here)
        for at, port in enumerate(ports):
            here, name = f"{path}.ports[{at}]", port.get("name") or ""
            if len(ports) > 1 and not name:
                errors.append(required(f"{here}.name"))
            elif name:
                errors += all_invalid(f"{here}.name", name, names.dns_label(name, "characters"))
            errors += _number_errors(f"{here}.port", port.get("port") or 0) + _protocol_errors(port, here)
    return errors


def _host_errors(address: Object, path: str) -> list[FieldError]:
    host, node = address.get("hostname"), address.get("nodeName")
    errors = all_invalid(f"{path}.hostname", host, names.dns_label(host, "characters")) if host else []
    return errors + (all_invalid(f"{path}.nodeName", node, name_errors(node)) if node else [])


def _address_errors(text: str, path: str, *, again: bool = False) -> list[FieldError]:
    """The errors of an address of an endpoint; some kinds say ``again`` that it is none."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        rule = "must be a valid IP address"
        wrong = [invalid(path, text, f"{rule}, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
        return [*wrong, *([invalid(path, text, rule)] if again else [])]
    if address.is_unspecified:
        return [invalid(path, text, f"may not be unspecified ({text})")]
    if address.is_loopback:
        return [invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")]
    if address.is_link_local:
        return [invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")]
    return []


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def endpoint_slice_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of an EndpointSlice, whose type of addresses never changes."""
    kind, ports, endpoints = (
        item.get("addressType") or "",
        item.get("ports") or [],
        item.get("endpoints") or [],
    )
    supported = ("FQDN", "IPv4", "IPv6")
    errors = [] if kind else [required("addressType")]
    if kind and kind not in supported:
        errors.append(not_supported("addressType", kind, supported))
    errors += _slice_port_errors(ports)
    if len(endpoints) > _MOST_ENDPOINTS:
        errors.append(too_many("endpoints", len(endpoints), _MOST_ENDPOINTS))
    elif old is None or endpoints != (old.get("endpoints") or []):
        for index, endpoint in enumerate(endpoints):
            errors += _endpoint_errors(endpoint, kind, f"endpoints[{index}]")
    if old is not None and kind != old.get("addressType"):
        errors.append(invalid("addressType", kind, _FIXED))
    return errors


def _slice_port_errors(ports: list[Object]) -> list[FieldError]:
    if len(ports) > _MOST_PORTS:
        return [too_many("ports", len(ports), _MOST_PORTS)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.get("name") or ""
        errors += all_invalid(f"{path}.name", name, names.dns_label(name, "characters")) if name else []
        errors += [duplicate(f"{path}.name", name)] if name in seen else []
        seen.add(name)
        errors += _protocol_errors(port, path)
    return errors


def _endpoint_errors(endpoint: Object, kind: str, path: str) -> list[FieldError]:
    addresses = endpoint.get("addresses") or []
    errors: list[FieldError] = []
    if not addresses:
        errors.append(required(f"{path}.addresses"))
    elif len(addresses) > _MOST_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), _MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        here = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            errors += all_invalid(here, address, name_errors(address))
            continue
        if _is_address(address) and (kind == "IPv4") != (ip_address(address).version == 4):
            shown = "an IPv4" if kind == "IPv4" else "an IPv6"
            errors.append(invalid(f"{path}.addresses", address, f"must be {shown} address"))
        errors += _address_errors(address, here)
    return errors + _host_errors(endpoint, path)
