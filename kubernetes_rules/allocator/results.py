"""Writes what a search found as ``status.allocation`` of each claim (AllocationResult)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from kubernetes_rules.allocator.attempt import Choice
from kubernetes_rules.allocator.failure import AllocationFailed
from kubernetes_rules.allocator.node_view import NodeView
from kubernetes_rules.allocator.published import Json
from kubernetes_rules.allocator.requests import Request, RequestedClaim

_TOLERATION_TEXTS = ("key", "operator", "value", "effect")


def allocation_result(
    view: NodeView, claim: RequestedClaim, choices: Sequence[Choice], selected: Sequence[Request]
) -> dict[str, Any]:
    """The allocation of one claim; ``selected`` is the chosen alternative of each of its requests.

    Raises AllocationFailed for a node selector with several terms, which cannot be merged.
    """
    devices: dict[str, Any] = {}
    if choices:
        devices["results"] = [_result(choice) for choice in choices]
    config = _config(claim, selected)
    if config:
        devices["config"] = config
    allocation: dict[str, Any] = {"devices": devices}
    node_selector = _node_selector(choices, view.node.name)
    if node_selector:
        allocation["nodeSelector"] = node_selector
    return allocation


def _result(choice: Choice) -> dict[str, Any]:
    request, device = choice.request, choice.device
    result: dict[str, Any] = {"request": request.full_name, **device.id._asdict()}
    if request.admin_access:
        result["adminAccess"] = True
    if request.tolerations:
        result["tolerations"] = [_toleration(one) for one in request.tolerations]
    for name in ("bindingConditions", "bindingFailureConditions"):
        if device.spec.get(name):
            result[name] = list(device.spec[name])
    if choice.share_id is not None:
        result["shareID"] = choice.share_id
    if choice.consumed:
        result["consumedCapacity"] = {
            name: str(amount.quantity) for name, amount in sorted(choice.consumed.items())
        }
    return result


def _toleration(stored: Json) -> dict[str, Any]:
    toleration = {name: stored[name] for name in _TOLERATION_TEXTS if stored.get(name)}
    if stored.get("tolerationSeconds") is not None:
        toleration["tolerationSeconds"] = stored["tolerationSeconds"]
    return toleration


def _config(claim: RequestedClaim, selected: Sequence[Request]) -> list[dict[str, Any]]:
    """First the classes' configurations, each class once, then the claim's; no requests mean all of them."""
    entries: list[dict[str, Any]] = []
    of_class: dict[str, list[dict[str, Any]]] = {}
    for request in selected:
        known = of_class.get(request.class_name)
        if known is None:
            known = of_class[request.class_name] = [
                _entry("FromClass", [], config) for config in request.class_config
            ]
            entries += known
        for entry in known:
            entry["requests"].append(request.full_name)
    for config in claim.spec.get("config") or ():
        requests = config.get("requests") or []
        if not requests or any(_means(requests, request) for request in selected):
            entries.append(_entry("FromClaim", list(requests), config))
    for entry in entries:
        if all(_means(entry["requests"], request) for request in selected) or not entry["requests"]:
            del entry["requests"]
    return entries


def _means(requests: Sequence[str], request: Request) -> bool:
    return any(name in requests for name in request.names)


def _entry(source: str, requests: list[str], config: Json) -> dict[str, Any]:
    entry: dict[str, Any] = {"source": source, "requests": requests}
    if config.get("opaque") is not None:
        entry["opaque"] = copy.deepcopy(config["opaque"])
    return entry


def _node_selector(choices: Sequence[Choice], node: str) -> dict[str, Any] | None:
    """The node itself if a device is bound to it, else what all devices' selectors demand, else nothing."""
    demands: dict[str, list[dict[str, Any]]] = {"matchExpressions": [], "matchFields": []}
    for choice in choices:
        device = choice.device
        selection = device.effective_selection
        if selection.node_name is not None or device.spec.get("bindsToNode") is True:
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        terms = (selection.terms or {}).get("nodeSelectorTerms") or ()
        if len(terms) > 1:
            raise AllocationFailed(
                f"device {device.id} has a node selector with {len(terms)} terms", "publish it with one term"
            )
        for term in terms:
            for kind, demanded in demands.items():
                _add_new(demanded, term.get(kind) or ())
    term = {kind: demanded for kind, demanded in demands.items() if demanded}
    return {"nodeSelectorTerms": [term]} if term else None


def _add_new(demanded: list[dict[str, Any]], requirements: Sequence[Json]) -> None:
    for requirement in requirements:
        values = list(requirement.get("values") or ())
        key, operator = requirement.get("key") or "", requirement.get("operator") or ""
        if any(
            one["key"] == key and one["operator"] == operator and set(one.get("values", ())) == set(values)
            for one in demanded
        ):
            continue
        demanded.append({"key": key, "operator": operator} | ({"values": values} if values else {}))
