"""The scenario of tenants is valid, fits on one machine, and its quotas refuse what is beyond them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.defaults import defaulted_claim_spec
from tests.deviceclasses.published_nodes import ALL_TIERS, devices, plan, profile_of
from tests.deviceclasses.sample_claims import NODE_OBJECT
from tests.deviceclasses.shipped_classes import ALL, DEFAULT, ROOT, objects

Object = dict[str, Any]

FOLDER = ROOT / "deploy" / "scenarios" / "tenants"
FILES = tuple(sorted({*FOLDER.glob("*.yaml")} - {FOLDER / "scenario.yaml"}))
OBJECTS = [one for file in FILES for one in objects(file)]
TENANTS = [one["metadata"]["name"] for one in OBJECTS if one["kind"] == "Namespace"]
DEVICES = ".deviceclass.resource.k8s.io/devices"
TIERS = {
    *("large", "medium", "mig-small", "mig-medium", "mig-large"),
    *("shared-timesliced", "shared-mps"),
}


def of_kind(kind: str, namespace: str = "") -> list[Object]:
    found = [one for one in OBJECTS if one["kind"] == kind]
    return [one for one in found if not namespace or one["metadata"]["namespace"] == namespace]


def quota(namespace: str) -> dict[str, str]:
    """How many devices of each class a tenant may have."""
    (gpus,) = (one for one in of_kind("ResourceQuota", namespace) if one["metadata"]["name"] == "gpus")
    hard = gpus["spec"]["hard"]
    return {name.removesuffix(DEVICES): value for name, value in hard.items() if name.endswith(DEVICES)}


def claims_of(namespace: str) -> list[Object]:
    """The claims of all pods of a tenant's Deployments."""
    templates = {one["metadata"]["name"]: one for one in of_kind("ResourceClaimTemplate", namespace)}
    found = []
    for deployment in of_kind("Deployment", namespace):
        (source,) = deployment["spec"]["template"]["spec"]["resourceClaims"]
        spec = templates[source["resourceClaimTemplateName"]]["spec"]["spec"]
        for index in range(deployment["spec"]["replicas"]):
            name = f"{deployment['metadata']['name']}-{index}"
            metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
            found.append({"metadata": metadata, "spec": defaulted_claim_spec(spec)})
    return found


def test_serving_goes_before_training_and_training_before_experiments() -> None:
    found = {one["metadata"]["name"]: one for one in of_kind("PriorityClass")}
    order = sorted(found, key=lambda name: -found[name]["value"])

    assert order == ["gpu-serving", "gpu-training", "gpu-experiments"]
    assert all(0 < one["value"] <= 1_000_000_000 and not one.get("globalDefault") for one in found.values())
    assert [found[name].get("preemptionPolicy") for name in order] == [None, None, "Never"]


@pytest.mark.parametrize("namespace", TENANTS)
def test_every_class_has_a_quota_and_only_tiers_are_open(namespace: str) -> None:
    allowed = quota(namespace)

    assert set(allowed) == set(DEFAULT)
    assert {name for name, value in allowed.items() if value != "0"} <= TIERS


@pytest.mark.parametrize("namespace", TENANTS)
def test_a_tenants_deployments_are_within_its_quota_and_may_have_their_priorities(namespace: str) -> None:
    asked = Counter(
        request["exactly"]["deviceClassName"]
        for claim in claims_of(namespace)
        for request in claim["spec"]["devices"]["requests"]
    )
    refused = {
        value
        for one in of_kind("ResourceQuota", namespace)
        for expression in one["spec"].get("scopeSelector", {}).get("matchExpressions", ())
        for value in expression["values"]
    }
    used = {one["spec"]["template"]["spec"]["priorityClassName"] for one in of_kind("Deployment", namespace)}

    assert asked
    assert all(count <= int(quota(namespace)[name]) for name, count in asked.items())
    assert not used & refused
    assert used | refused == {one["metadata"]["name"] for one in of_kind("PriorityClass")}


def test_all_deployments_run_on_one_machine_with_all_tiers() -> None:
    planned = plan("hgx-h100", ALL_TIERS)
    forms = {device["name"]: profile_of(device) for device in devices(planned)}
    allocator = Allocator(planned.slices, ALL.values(), ())
    given: Counter[str] = Counter()
    for claim in [claim for namespace in TENANTS for claim in claims_of(namespace)]:
        allocations = allocator.allocate(NODE_OBJECT, [claim])
        assert allocations is not None, claim["metadata"]["name"]
        allocator.assume({**claim, "status": {"allocation": allocations[0]}})
        given.update(forms[result["device"]] for result in allocations[0]["devices"]["results"])

    assert given == Counter({"time-slicing share": 3, "mps share": 3, "whole": 1, "1g.10gb": 1})


def test_the_readme_names_every_file_and_the_numbers_of_its_quota() -> None:
    text = (FOLDER / "README.md").read_text()
    rows = {
        line.split("](")[0].removeprefix("| ["): line for line in text.splitlines() if line.startswith("| [")
    }

    assert set(rows) == {file.name for file in FILES}
    for namespace in TENANTS:
        for name, value in quota(namespace).items():
            assert (f"{value} `{name}`" in rows[f"{namespace}.yaml"]) is (value != "0")
