"""A kind that a CustomResourceDefinition adds is served from its first object to its last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from envtest.client.api import APPLY, MERGE, ApiClient, Object
from envtest.client.errors import ApiRefused
from envtest.client.waiting import wait_for, wait_gone
from gpuctl.demo.driver_node import DriverNode
from tests.eventually import eventually

GROUP = "flow.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/gears.{GROUP}"
GEARS = f"/apis/{GROUP}/v1/namespaces/default/gears"
OLD_GEARS = GEARS.replace("/v1/", "/v1beta1/")
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}

SPEC = {
    "type": "object",
    "required": ["teeth"],
    "properties": {
        "teeth": {"type": "integer", "minimum": 3},
        "metal": {"type": "string", "enum": ["brass", "steel"], "default": "steel"},
        "replicas": {"type": "integer"},
        "mates": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "ratio": {"type": "integer"}},
            },
        },
        "notes": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "self.teeth >= oldSelf.teeth", "message": "teeth do not break off"}
    ],
}
STATUS = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "turns": {"type": "integer"},
    },
}


def version(name: str, *, storage: bool) -> Object:
    """One version of the definition; both have the same schema."""
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "selectableFields": [{"jsonPath": ".spec.metal"}],
        "additionalPrinterColumns": [
            {"name": "Teeth", "type": "integer", "jsonPath": ".spec.teeth"},
            {"name": "Mate", "type": "string", "jsonPath": ".spec.mates[?(@.ratio==2)].name"},
        ],
    }


def definition() -> Object:
    """The definition of gears."""
    names = {"plural": "gears", "kind": "Gear", "shortNames": ["gr"], "categories": ["machines"]}
    versions = [version("v1beta1", storage=False), version("v1", storage=True)]
    spec = {"group": GROUP, "names": names, "scope": "Namespaced", "versions": versions}
    metadata = {"name": f"gears.{GROUP}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def gear(name: str, api_version: str = f"{GROUP}/v1", **spec: Any) -> Object:
    """A gear with this spec."""
    return {"apiVersion": api_version, "kind": "Gear", "metadata": {"name": name}, "spec": spec}


def is_established(item: Object) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.fixture(scope="module")
def api(installed_driver: DriverNode) -> Iterator[ApiClient]:
    """The client of a cluster that serves gears."""
    client = installed_driver.cluster.api
    client.request("POST", DEFINITIONS, definition())
    wait_for(client, DEFINITION, is_established)
    yield client
    client.delete(DEFINITION)
    wait_gone(client, DEFINITION, 60)


def refused(
    api: ApiClient, method: str, path: str, body: Object, content_type: str = "application/json"
) -> ApiRefused:
    """How a request is refused."""
    with pytest.raises(ApiRefused) as caught:
        api.request(method, path, body, content_type=content_type)
    return caught.value


def test_an_object_gets_defaults_and_loses_what_the_schema_does_not_know(api: ApiClient) -> None:
    sent = gear("plain", teeth=12, color="red", notes={"any": [{"thing": None}]})
    made = api.request("POST", GEARS, {**sent, "status": {"turns": 5}})
    assert made["spec"] == {"teeth": 12, "metal": "steel", "notes": {"any": [{"thing": None}]}}
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    strict = refused(api, "POST", f"{GEARS}?fieldValidation=Strict", gear("strict", teeth=3, color="red"))
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.color"' in str(strict)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec.teeth: Required value"),
        (
            {"teeth": "12"},
            'spec.teeth: Invalid value: "string": spec.teeth in body must be of type integer: "string"',
        ),
        (
            {"teeth": 2},
            "spec.teeth: Invalid value: 2: spec.teeth in body should be greater than or equal to 3",
        ),
        (
            {"teeth": 3, "metal": "tin"},
            'spec.metal: Unsupported value: "tin": supported values: "brass", "steel"',
        ),
        ({"teeth": 3, "mates": [{"name": "a"}] * 2}, 'spec.mates[1]: Duplicate value: {"name":"a"}'),
        ({"teeth": 3, "replicas": -1}, ".spec.replicas: Invalid value: -1: should be a non-negative integer"),
    ],
)
def test_an_object_that_does_not_fit_is_refused(api: ApiClient, spec: Object, words: str) -> None:
    error = refused(api, "POST", GEARS, gear("wrong", **spec))
    assert (error.status, error.reason) == (422, "Invalid")
    assert f'Gear.{GROUP} "wrong" is invalid: ' in str(error)
    assert words in str(error)


def test_rules_compare_with_the_object_before(api: ApiClient) -> None:
    api.request("POST", GEARS, gear("ruled", teeth=10))
    assert api.patch(f"{GEARS}/ruled", {"spec": {"teeth": 11}})["metadata"]["generation"] == 2
    error = refused(api, "PATCH", f"{GEARS}/ruled", {"spec": {"teeth": 9}}, MERGE)
    assert (error.status, error.reason) == (422, "Invalid")
    assert "spec: Invalid value: teeth do not break off" in str(error)


def test_spec_and_status_are_written_apart(api: ApiClient) -> None:
    api.request("POST", GEARS, gear("parted", teeth=10))
    path = f"{GEARS}/parted"
    assert "status" not in api.patch(path, {"status": {"turns": 1}})
    turned = api.patch(f"{path}/status", {"status": {"turns": 1}, "spec": {"teeth": 20}})
    assert (turned["status"], turned["spec"]["teeth"]) == ({"turns": 1}, 10)
    assert turned["metadata"]["generation"] == 1
    error = refused(api, "PATCH", f"{path}/status", {"status": {"turns": "many"}}, MERGE)
    assert 'status.turns: Invalid value: "string"' in str(error)
    assert api.patch(path, {"spec": {"teeth": 11}})["status"] == {"turns": 1}
    # An update has to say which version it replaces.
    error = refused(api, "PUT", path, gear("parted", teeth=12))
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in str(error)


def test_the_scale_is_read_and_written_by_its_paths(api: ApiClient) -> None:
    api.request("POST", GEARS, gear("scaled", teeth=10, replicas=2))
    api.patch(f"{GEARS}/scaled/status", {"status": {"replicas": 1, "selector": "part=gear"}})
    scale = api.get(f"{GEARS}/scaled/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "part=gear"})
    assert api.patch(f"{GEARS}/scaled/scale", {"spec": {"replicas": 5}})["spec"] == {"replicas": 5}
    assert api.get(f"{GEARS}/scaled")["spec"]["replicas"] == 5


def test_every_served_version_shows_the_same_objects(api: ApiClient) -> None:
    made = api.request("POST", OLD_GEARS, gear("two-faced", f"{GROUP}/v1beta1", teeth=8))
    assert made["apiVersion"] == f"{GROUP}/v1beta1"
    assert api.get(f"{GEARS}/two-faced")["apiVersion"] == f"{GROUP}/v1"
    assert api.patch(f"{OLD_GEARS}/two-faced", {"spec": {"teeth": 9}})["spec"]["teeth"] == 9
    assert api.get(f"{GEARS}/two-faced")["spec"]["teeth"] == 9
    error = refused(api, "POST", GEARS, gear("other", f"{GROUP}/v1beta1", teeth=8))
    assert f"does not match the expected API version ({GROUP}/v1)" in str(error)
    assert api.get(DEFINITION)["status"]["storedVersions"] == ["v1"]


def test_appliers_share_lists_and_open_maps_and_conflict_over_values(api: ApiClient) -> None:
    def apply(manager: str, force: str = "false", **spec: Any) -> Object:
        query = {"fieldManager": manager, "force": force}
        path = f"{GEARS}/applied"
        return api.request("PATCH", path, gear("applied", **spec), content_type=APPLY, query=query)

    apply("one", teeth=10, mates=[{"name": "a", "ratio": 2}], notes={"one": {"x": 1}})
    both = apply("two", mates=[{"name": "b"}], notes={"one": {"y": [2]}})
    assert both["spec"]["mates"] == [{"name": "a", "ratio": 2}, {"name": "b"}]
    assert both["spec"]["notes"] == {"one": {"x": 1, "y": [2]}}
    with pytest.raises(ApiRefused, match=r'Apply failed with 1 conflict: conflict with "one": \.spec\.teeth'):
        apply("two", teeth=11)
    assert apply("two", "true", teeth=11)["spec"]["mates"] == [{"name": "a", "ratio": 2}]
    with pytest.raises(ApiRefused, match=r"\.spec\.color: field not declared in schema") as caught:
        apply("three", color="red")
    assert caught.value.status == 500
    managers = {one["manager"] for one in api.get(f"{GEARS}/applied")["metadata"]["managedFields"]}
    assert managers == {"one", "two"}


def test_selectors_and_columns_are_those_of_the_definition(api: ApiClient) -> None:
    api.request("POST", GEARS, gear("golden", teeth=10, metal="brass", mates=[{"name": "m", "ratio": 2}]))
    names = [one["metadata"]["name"] for one in api.list_objects(GEARS, fieldSelector="spec.metal=brass")]
    assert names == ["golden"]
    error = refused(api, "GET", f"{GEARS}?fieldSelector=spec.teeth%3D10", {})
    assert (error.status, error.reason) == (400, "BadRequest")
    assert "field label not supported: spec.teeth" in str(error)
    table = api.request("GET", f"{GEARS}/golden", headers=TABLE)
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Teeth", "Mate"]
    assert table["rows"][0]["cells"] == ["golden", 10, "m"]


def test_numbers_and_repeated_fields_are_read_as_go_reads_them(api: ApiClient) -> None:
    head = f'{{"apiVersion":"{GROUP}/v1","kind":"Gear","metadata":{{"name":"counted"}},'
    body = head + '"spec":{"teeth":12.0,"teeth":13.0,"notes":{"a":1e3,"b":1.50}}}'
    with api.stream("POST", GEARS, body.encode()) as answer:
        text = answer.read().decode()
        assert answer.headers["Warning"] == '299 - "duplicate field \\"spec.teeth\\""'
    assert re.search(r'"teeth": ?13[,}]', text)
    assert json.loads(text)["spec"]["notes"] == {"a": 1000, "b": 1.5}


def test_discovery_and_openapi_describe_the_kind(api: ApiClient) -> None:
    group = eventually("the group is known", lambda: api.find(f"/apis/{GROUP}"))
    assert group is not None
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]
    listed = api.get(f"/apis/{GROUP}/v1")["resources"]
    gears = next(one for one in listed if one["name"] == "gears")
    assert (gears["singularName"], gears["shortNames"], gears["categories"]) == ("gear", ["gr"], ["machines"])
    assert gears["storageVersionHash"] == "CfKJH4zQv2Q="
    assert {one["name"] for one in listed} >= {"gears", "gears/scale", "gears/status"}
    path = f"apis/{GROUP}/v1"
    index = eventually("it is described", lambda: api.get("/openapi/v3")["paths"].get(path))
    kind = api.get(index["serverRelativeURL"])["components"]["schemas"]["com.example.flow.v1.Gear"]
    assert kind["x-kubernetes-group-version-kind"] == [{"group": GROUP, "version": "v1", "kind": "Gear"}]
    assert kind["properties"]["spec"]["required"] == ["teeth"]
    assert "metadata" in kind["properties"]


def test_strategic_merge_patches_are_not_taken(api: ApiClient) -> None:
    api.request("POST", GEARS, gear("merged", teeth=10))
    kind = "application/strategic-merge-patch+json"
    error = refused(api, "PATCH", f"{GEARS}/merged", {"spec": {"teeth": 11}}, kind)
    assert error.status == 415
    assert "application/merge-patch+json, application/apply-patch+yaml" in str(error)


def test_a_broken_definition_is_refused(api: ApiClient) -> None:
    wrong = definition()
    wrong["metadata"]["name"] = f"cogs.{GROUP}"
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {"properties": {}}
    error = refused(api, "POST", DEFINITIONS, wrong)
    assert (error.status, error.reason) == (422, "Invalid")
    assert f'metadata.name: Invalid value: "cogs.{GROUP}"' in str(error)
    where = "spec.versions[0].schema.openAPIV3Schema.properties[spec].type"
    assert f"{where}: Required value: must not be empty for specified object fields" in str(error)


def test_a_definition_goes_with_its_objects_once_their_finalizers_are_gone(api: ApiClient) -> None:
    one = definition()
    one["spec"]["names"] = {"plural": "axles", "kind": "Axle"}
    one["metadata"]["name"] = f"axles.{GROUP}"
    path, axles = f"{DEFINITIONS}/axles.{GROUP}", GEARS.replace("gears", "axles")
    made = api.request("POST", DEFINITIONS, one)
    assert made["spec"]["names"] == {
        "plural": "axles",
        "kind": "Axle",
        "singular": "axle",
        "listKind": "AxleList",
    }
    wait_for(api, path, is_established)
    axle = {**gear("held", teeth=3), "kind": "Axle"}
    axle["metadata"]["finalizers"] = ["example.com/held"]
    api.request("POST", axles, axle)
    held = wait_for(api, f"{axles}/held", lambda _: True)
    with api.stream("GET", f"{axles}?watch=1&resourceVersion={held['metadata']['resourceVersion']}") as watch:
        api.delete(path)
        ending = wait_for(api, f"{axles}/held", lambda item: "deletionTimestamp" in item["metadata"])
        assert ending["metadata"]["generation"] == 2
        error = refused(api, "POST", axles, {**gear("late", teeth=3), "kind": "Axle"})
        assert error.status == 403
        words = "create not allowed while custom resource definition is terminating"
        assert f'axles.{GROUP} "late" is forbidden: {words}' in str(error)
        api.patch(f"{axles}/held", {"metadata": {"finalizers": None}})
        wait_gone(api, path, 60)
        # The watch has seen the object go, and ends.
        assert [json.loads(line)["type"] for line in watch] == ["MODIFIED", "DELETED"]
    assert api.find(f"{axles}/held") is None
