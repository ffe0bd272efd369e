"""What a configuration says of memory is judged before a pod waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.webhook.reviewed import (
    Object,
    claim,
    config,
    device_class,
    errors,
    request,
    template,
    warnings,
)

SLICED = {"strategy": "TimeSlicing"}
ALONE = "is allowed only in a DeviceClass: use a class that sets it, or leave it out"


def own(memory: Any, sharing: Any = None) -> Object:
    """Parameters of the driver's own kind."""
    head = {"apiVersion": "resource.gpu-dra.dev/v1alpha1", "kind": "SharedGpuConfig", "memory": memory}
    return head if sharing is None else {**head, "sharing": sharing}


def test_all_that_is_wrong_is_denied_with_its_path() -> None:
    memory = {"parts": {"main": "1Ki"}, "each": "much", "more": 1}
    path = "spec.devices.config[0].opaque.parameters.memory"

    assert errors(claim(config(own(memory)))) == (
        f"{path}.parts.main: must be at least 512Mi",
        f"{path}.each: 'much' is not a quantity such as 80Gi, 1500m or 1e3",
        f"{path}.more: unknown field",
    )


@pytest.mark.parametrize(
    ("make", "path"), [(claim, "spec.devices"), (template, "spec.spec.devices")], ids=["claim", "template"]
)
def test_a_burst_is_denied_to_a_claim(make: Any, path: str) -> None:
    wrong = f"{path}.config[0].opaque.parameters.memory.burst: {ALONE}"

    assert errors(make(config(own({"burst": {"factor": 2}})))) == (wrong,)


def test_a_class_may_allow_a_burst() -> None:
    for burst in ({"factor": 1.5}, {"toFree": True}):
        one = device_class(config(own({"burst": burst}, SLICED)))
        assert errors(one) == ()
        assert warnings(one) == ()


def test_what_divides_a_shared_gpu_passes_without_a_word() -> None:
    memory = {"parts": {"main": "6Gi"}, "each": "1Gi"}

    assert warnings(claim(config(own(memory)), requests=[request("gpu", "shared-timesliced")])) == ()
    assert warnings(claim(config(own({}, SLICED)), requests=[request("gpu", "gpu.nvidia.com")])) == ()


def test_a_division_that_is_for_no_request_is_refused() -> None:
    either = [{"name": word, "deviceClassName": "mig-small"} for word in ("p", "q")]
    asked = [{"name": "a", "firstAvailable": either}]
    head = "spec.devices.config[0]: SharedGpuConfig is for a GPU, and no request asks for one:"

    divided = claim(config(own({"each": "1Gi"})), requests=asked)
    assert errors(divided, "mig-small") == (f"{head} prepare refuses it",)
    assert errors(claim(config(own(None)), requests=asked), "mig-small") == ()


def test_the_kind_is_named_as_it_is_written() -> None:
    (error,) = errors(claim(config(own({}, SLICED), "p"), requests=[request("p", "mig-small")]), "mig-small")

    assert error.startswith("spec.devices.config[0]: SharedGpuConfig is for a GPU, but class mig-small")
