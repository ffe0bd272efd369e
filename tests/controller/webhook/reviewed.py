"""AdmissionReviews for tests, as an API server sends them, and the objects in them."""

from typing import Any

from controller.webhook.review import Findings, review
from tests.clusters import Object

TIME_SLICING: Object = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}
MPS: Object = {"strategy": "MPS"}


def parameters(kind: str = "GpuConfig", **fields: Any) -> Object:
    """An opaque document of that kind."""
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **fields}


def config(document: Any, *requests: str, driver: str = "gpu.nvidia.com") -> Object:
    """An entry of a claim's or a class's ``config``."""
    named = {"requests": list(requests)} if requests else {}
    return {"opaque": {"driver": driver, "parameters": document}, **named}


def request(name: str, class_name: str = "gpu.nvidia.com", version: str = "v1", **fields: Any) -> Object:
    """A request for one class, laid out as the version of the API has it."""
    asked = {"deviceClassName": class_name, **fields}
    return {"name": name, **asked} if version == "v1beta1" else {"name": name, "exactly": asked}


def claim(*configs: Object, requests: list[Object] | None = None, version: str = "v1") -> Object:
    """A ResourceClaim; it has one request ``gpu`` for a whole GPU unless others are given."""
    asked = [request("gpu", version=version)] if requests is None else requests
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": asked, "config": list(configs)}},
    }


def template(*configs: Object, version: str = "v1") -> Object:
    """A ResourceClaimTemplate with one request ``gpu``."""
    inner = {"spec": claim(*configs, version=version)["spec"]}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": inner,
    }


def device_class(*configs: Object, name: str = "tier", version: str = "v1", selects: str = "") -> Object:
    """A DeviceClass with these configurations."""
    selectors = [{"cel": {"expression": selects}}] if selects else []
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, "config": list(configs)},
    }


def asked(stored: Object, operation: str = "CREATE", old: Object | None = None) -> Object:
    """The AdmissionReview that an API server posts about an object."""
    group, _, version = stored["apiVersion"].rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "7d0a",
            "kind": {"group": group, "version": version, "kind": stored["kind"]},
            "operation": operation,
            "object": stored,
            "oldObject": old,
        },
    }


def findings(stored: Object, *classes: str) -> Findings:
    """What the webhook says of a new object; these classes were installed with the driver."""
    return review(asked(stored), frozenset(classes)).findings


def errors(stored: Object, *classes: str) -> tuple[str, ...]:
    """What the webhook denies a new object for."""
    return findings(stored, *classes).errors


def warnings(stored: Object) -> tuple[str, ...]:
    """What the webhook warns of in a new object, which it must let pass."""
    answer = review(asked(stored))
    assert answer.document["response"]["allowed"] is True
    return tuple(answer.document["response"].get("warnings", ()))
