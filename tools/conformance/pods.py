"""Compares pods with claims as the API server stores them: defaults, and what is wrong with claims."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from kubernetes_rules.defaults import created_pod
from kubernetes_rules.validation.pods import pod_errors
from tools.conformance.area import Answer, Area, Case
from tools.conformance.validation.cases import changed
from tools.conformance.validation.changes import REMOVED, Change

Object = dict[str, Any]

_OF_MAIN = "spec.containers.0.resources.claims"
_CLAIMS = "spec.resourceClaims"
_MIRROR = "kubernetes.io/config.mirror"
_TEXTS = ("", "a", "gpu", "shared", "half", "Upper", "a_b", "a.b", "a/b", "-a", "é", "a" * 64, "a" * 254)
_MOST_CHANGES = 3


def _pod() -> Object:
    """A valid pod with two claims, which an init container and a container use."""
    limits = {"cpu": "2", "memory": "1.5Gi", "nvidia.com/gpu": "2"}
    claims = [{"name": "gpu"}, {"name": "shared", "request": "half"}]
    main = {"name": "main", "image": "train", "resources": {"limits": limits, "claims": claims}}
    init = {"name": "setup", "image": "setup:v1", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "default", "annotations": {"example.com/note": "x"}},
        "spec": {
            "containers": [main],
            "initContainers": [init],
            "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
                {"name": "shared", "resourceClaimName": "shared.claim"},
            ],
        },
    }


_CHANGES: tuple[tuple[Change, ...], ...] = (
    ((_OF_MAIN, [{"name": "other"}]),),
    ((_OF_MAIN, [{}]),),
    ((_OF_MAIN, [{"name": "gpu"}, {"name": "gpu"}]),),
    ((_OF_MAIN, [{"name": "gpu", "request": "a"}, {"name": "gpu"}]),),
    ((_OF_MAIN, [{"name": "gpu"}, {"name": "gpu", "request": "a"}]),),
    ((_OF_MAIN, [{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "a"}]),),
    ((_OF_MAIN, [{"name": "gpu", "request": "A/b"}]),),
    ((_CLAIMS, []),),
    ((f"{_CLAIMS}.0", {"name": "gpu"}),),
    ((f"{_CLAIMS}.0", {"resourceClaimName": "a"}),),
    ((f"{_CLAIMS}.0.name", "Bad_Name"),),
    ((f"{_CLAIMS}.1.name", "gpu"),),
    ((f"{_CLAIMS}.0.resourceClaimName", "a"),),
    ((f"{_CLAIMS}.1.resourceClaimName", "Bad_Name"),),
    ((f"{_CLAIMS}.0.resourceClaimTemplateName", ""),),
    ((f"{_CLAIMS}.0.resourceClaimTemplateName", REMOVED),),
    (("metadata.annotations", {_MIRROR: "x"}), ("spec.nodeName", "node-1")),
)
"""Each breaks a rule of claims."""


def _written() -> Iterator[Case]:
    yield {"op": "pod", "object": _pod()}
    for change in _CHANGES:
        yield {"op": "pod", "object": changed(_pod(), *change)}


def _random(rng: Random) -> Case:
    """The pod after some changes of its claims."""
    pod = copy.deepcopy(_pod())
    spec = pod["spec"]
    lists = [spec["resourceClaims"], *(one["resources"]["claims"] for one in spec["containers"])]
    for _ in range(rng.randint(1, _MOST_CHANGES)):
        entries: list[Object] = rng.choice([*lists, spec["initContainers"][0]["resources"]["claims"]])
        entry = rng.choice(entries)
        if rng.random() < 0.2:
            entries.append(copy.deepcopy(entry))
        elif rng.random() < 0.2 and entry:
            del entry[rng.choice(list(entry))]
        else:
            names = ("name", "resourceClaimName", "resourceClaimTemplateName")
            key = rng.choice(names if entries is spec["resourceClaims"] else ("name", "request"))
            entry[key] = rng.choice(_TEXTS)
    return {"op": "pod", "object": pod}


def _difference(case: Case, answer: Answer) -> str | None:
    if "error" in answer:
        return f"the oracle answered {answer['error']!r}"
    pod = created_pod(case["object"])
    ours = {text for text in map(str, pod_errors(pod)) if "laims" in text}
    theirs = {text for text in answer.get("errors") or () if "laims" in text}
    if ours != theirs:
        return f"only ours: {sorted(ours - theirs)}; only Kubernetes': {sorted(theirs - ours)}"
    if "spec" not in answer or _plain(pod["spec"]) == _plain(answer["spec"]):
        return None
    return f"stored here: {_plain(pod['spec'])}; by Kubernetes: {_plain(answer['spec'])}"


def _plain(value: Any) -> Any:
    """A value without empty fields."""
    if isinstance(value, dict):
        kept = {key: _plain(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one}
    return [_plain(one) for one in value] if isinstance(value, list) else value


AREA = Area("pods", lambda: list(_written()), _random, _difference)
