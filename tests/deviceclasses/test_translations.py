"""Old examples are refused, and what stands beside each today is taken and gets what it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer, Refused
from kubernetes_rules.allocator.allocate import Allocator
from tests.controller.webhook.reviewed import errors, warnings
from tests.deviceclasses.published_nodes import ALL_TIERS, devices, plan, profile_of
from tests.deviceclasses.sample_claims import NODE_OBJECT, claim_of
from tests.deviceclasses.shipped_classes import ALL, ROOT, objects
from tests.envtest.embedded.api.api_calls import ask

Object = dict[str, Any]

FOLDER = ROOT / "deploy" / "examples" / "translate"
TODAY = tuple(sorted(file for file in FOLDER.glob("*.yaml") if file.name != "scenario.yaml"))
PLACES = {
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
}
GIVEN = {
    "large-gpu": ["whole"],
    "one-partition": ["1g.10gb"],
    "turns": ["whole"],
    "two-training-gpus": ["whole", "whole"],
}


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


@pytest.mark.parametrize("file", TODAY, ids=lambda file: file.stem)
def test_what_stands_there_today_is_taken_by_the_webhook(file: Path) -> None:
    for one in objects(file):
        if one["kind"].startswith("ResourceClaim"):
            assert (errors(one), warnings(one)) == ((), ())


@pytest.mark.parametrize("file", TODAY, ids=lambda file: file.stem)
def test_what_stands_there_today_gets_what_it_asks_for(file: Path) -> None:
    planned = plan("hgx-h100", ALL_TIERS)
    forms = {device["name"]: profile_of(device) for device in devices(planned)}
    classes = [*ALL.values(), *(one for one in objects(file) if one["kind"] == "DeviceClass")]

    allocations = Allocator(planned.slices, classes, ()).allocate(NODE_OBJECT, [claim_of(file)])

    assert allocations is not None
    assert [forms[one["device"]] for one in allocations[0]["devices"]["results"]] == GIVEN[file.stem]


def test_v1_with_the_fields_of_v1beta1_is_refused_field_by_field(server: EmbeddedApiServer) -> None:
    device_class, claim = objects(FOLDER / "old" / "mixed-up.yaml")

    with pytest.raises(Refused, match=r"spec.selectors\[0\].cel.expression: .*device.attributes\['memory'\]"):
        server.create(PLACES["DeviceClass"], device_class)
    strict = ask(server, "POST", f"{PLACES['ResourceClaim']}?fieldValidation=Strict", claim)

    assert strict.code == 400
    assert 'unknown field "spec.devices.requests[0].count"' in strict.body["message"]
    assert 'unknown field "spec.devices.requests[0].deviceClassName"' in strict.body["message"]


def test_the_older_group_of_configurations_is_refused_by_the_one_of_today() -> None:
    (old,) = objects(FOLDER / "old" / "v1beta1.yaml")

    (refusal,) = errors({**old, "apiVersion": "resource.k8s.io/v1"})

    assert "parameters.apiVersion: must be one of resource.nvidia.com/v1beta1" in refusal
