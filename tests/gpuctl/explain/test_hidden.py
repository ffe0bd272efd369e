"""A container in which MPS would hide a device is found by what its pod's claims were allocated."""

from typing import Any

import pytest

from gpuctl.explain.pod.hidden import hidden_by_mps
from tests.clusters import Object

A, B = "gpu-0000-17-00-0", "gpu-0000-65-00-0"
SHARE, OTHER, SLICE = f"{A}-mps-4", f"{B}-mps-4-mem", f"{A}-mig-1g-6gb-0"
MPS = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": {"strategy": "MPS"}}}}]


def mixed_claim(first: str = SHARE, second: str = B, *, config: Any = (), **more: Any) -> Object:
    """A claim that has a device for each of its requests a and b."""
    one = {"driver": "gpu.nvidia.com", "pool": "p"}
    results = [{**one, "request": "a", "device": first}, {**one, "request": "b", "device": second, **more}]
    status = {"allocation": {"devices": {"results": results, "config": config}}}
    return {"metadata": {"name": "c", "namespace": "team", "uid": "u"}, "spec": {}, "status": status}


def mixed_pod(*requests: str) -> Object:
    """A pod whose container names the claim, or these requests of it."""
    named = [{"name": "gpu", "request": one} for one in requests] or [{"name": "gpu"}]
    entries = [{"name": "gpu", "resourceClaimName": "c"}]
    containers = [{"name": "main", "resources": {"claims": named}}]
    metadata = {"name": "p", "namespace": "team", "uid": "p"}
    return {"metadata": metadata, "spec": {"resourceClaims": entries, "containers": containers}}


@pytest.mark.parametrize(
    ("claim", "requests", "is_hidden"),
    [
        (mixed_claim(), (), True),
        (mixed_claim(), ("a",), False),
        (mixed_claim(second=OTHER), ("a", "b"), True),
        (mixed_claim(second=SHARE), (), False),
        (mixed_claim(second=f"{A}-ts-4"), (), True),
        (mixed_claim(second=f"{B}-vfio"), (), False),
        (mixed_claim(adminAccess=True), (), False),
        (mixed_claim(A, config=MPS), (), False),
        (mixed_claim(SLICE, config=MPS), (), True),
        ({**mixed_claim(), "status": {}}, (), False),
    ],
)
def test_what_the_daemon_of_another_device_does_not_serve_is_hidden(
    claim: Object, requests: tuple[str, ...], is_hidden: bool
) -> None:
    assert bool([*hidden_by_mps(mixed_pod(*requests), lambda *_: claim)]) is is_hidden
