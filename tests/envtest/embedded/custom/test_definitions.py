"""What CustomResourceDefinitions define is served at once, and until they are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from envtest.client.api import ApiClient
from envtest.client.errors import ApiRefused
from envtest.embedded.api.statuses import Refused
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.custom.gadgets import DEFINITIONS, GADGETS, GROUP, definition, gadget, version

Object = dict[str, Any]
DISCOVERY = f"/apis/{GROUP}"


@pytest.fixture
def server() -> EmbeddedApiServer:
    """A server that does not listen."""
    return EmbeddedApiServer()


@pytest.fixture
def api() -> Iterator[ApiClient]:
    with EmbeddedApiServer() as running:
        yield ApiClient(running.url, None, running.gate.admin_bearer)


def conditions(server: EmbeddedApiServer, name: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of the conditions of a definition."""
    found = server.store.get(("apiextensions.k8s.io", "customresourcedefinitions"), ("", f"{name}.{GROUP}"))
    assert found is not None
    listed = found["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in listed}


def test_a_definition_is_established_before_the_next_request(server: EmbeddedApiServer) -> None:
    made = server.create(DEFINITIONS, definition(shortNames=["gg"]))
    # Kubernetes answers with this status, too: it looks at the names later.
    assert made["status"] == {
        "acceptedNames": {"plural": "", "kind": ""},
        "conditions": None,
        "storedVersions": ["v1"],
    }
    assert conditions(server, "gadgets") == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }
    assert server.create(GADGETS, gadget("one"))["metadata"]["generation"] == 1


def test_names_that_another_definition_has_are_not_accepted_until_it_goes(server: EmbeddedApiServer) -> None:
    server.create(DEFINITIONS, definition(shortNames=["gg"]))
    server.create(DEFINITIONS, definition(plural="gizmos", kind="Gadget", shortNames=["gg", "gz"]))
    found = conditions(server, "gizmos")
    assert found["NamesAccepted"] == ("False", "ListKindConflict", '"GadgetList" is already in use')
    assert found["Established"] == ("False", "NotAccepted", "not all names are accepted")
    assert server.catalogue.find(GROUP, "v1", "gizmos") is None
    server.delete(f"{DEFINITIONS}/gadgets.{GROUP}")
    assert conditions(server, "gizmos")["Established"][0] == "True"
    assert server.catalogue.find(GROUP, "v1", "gizmos") is not None


def test_a_freed_name_goes_to_one_of_those_that_wait_for_it(server: EmbeddedApiServer) -> None:
    for plural in ("gadgets", "gizmos", "gimmicks"):
        server.create(DEFINITIONS, definition(plural=plural, kind="Gadget"))
    server.delete(f"{DEFINITIONS}/gadgets.{GROUP}")
    assert conditions(server, "gimmicks")["Established"][0] == "True"
    assert conditions(server, "gizmos")["NamesAccepted"][1] == "ListKindConflict"
    assert [one.plural for one in server.catalogue.of_version(GROUP, "v1")] == ["gimmicks"]


def test_groups_prefer_the_newest_stable_version(api: ApiClient) -> None:
    names = ("v1alpha1", "other", "v10", "v2beta1", "v1", "v2")
    versions = [version(name, storage=name == "v1") for name in names]
    api.request("POST", DEFINITIONS, definition(*versions))
    group = api.get(DISCOVERY)
    assert group["preferredVersion"]["version"] == "v10"
    ordered = [one["version"] for one in group["versions"]]
    assert ordered == ["v10", "v2", "v1", "v2beta1", "v1alpha1", "other"]
    listed = api.get(f"{DISCOVERY}/v2")["resources"]
    assert [one["name"] for one in listed] == ["gadgets"]
    # As kube-apiserver 1.37.1 computes it of group, storage version and kind.
    assert listed[0]["storageVersionHash"] == "ggWp2HxsL0Q="


def test_objects_stay_when_their_version_is_served_no_more(server: EmbeddedApiServer) -> None:
    both = [version("v1beta1", storage=False), version("v1")]
    made = server.create(DEFINITIONS, definition(*both))
    server.create(GADGETS.replace("v1", "v1beta1"), gadget("old", f"{GROUP}/v1beta1"))
    made = server.objects("customresourcedefinitions", "apiextensions.k8s.io")[0]
    both[0] = {**both[0], "served": False}
    server.replace(f"{DEFINITIONS}/gadgets.{GROUP}", {**made, "spec": {**made["spec"], "versions": both}})
    assert server.catalogue.versions(GROUP) == ["v1"]
    assert server.objects("gadgets", GROUP)[0]["apiVersion"] == f"{GROUP}/v1"


def test_a_custom_kind_may_have_the_name_of_a_built_in_one(api: ApiClient) -> None:
    api.request("POST", DEFINITIONS, definition(plural="pods", kind="Pod"))
    pods = f"/apis/{GROUP}/v1/namespaces/default/pods"
    made = api.request("POST", pods, {**gadget("pod", size=1), "kind": "Pod"})
    assert (made["spec"], "status" in made) == ({"size": 1}, False)
    api.delete(f"{pods}/pod")
    assert api.list_objects(pods) == []


def test_the_last_objects_of_a_definition_are_seen_to_go_and_watches_end(api: ApiClient) -> None:
    api.request("POST", DEFINITIONS, definition())
    held = gadget("held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    made = api.request("POST", GADGETS, held)
    since = made["metadata"]["resourceVersion"]
    with api.stream("GET", f"{GADGETS}?watch=1&resourceVersion={since}") as changes:
        ending = api.request("DELETE", f"{DEFINITIONS}/gadgets.{GROUP}")
        assert ending["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        words = "create not allowed while custom resource definition is terminating"
        with pytest.raises(ApiRefused, match=words):
            api.request("POST", GADGETS, gadget("late"))
        verbs = api.get(f"{DISCOVERY}/v1")["resources"][0]["verbs"]
        assert sorted(verbs) == ["delete", "deletecollection", "get", "list", "watch"]
        api.patch(f"{GADGETS}/held", {"metadata": {"finalizers": None}})
        assert api.find(f"{DEFINITIONS}/gadgets.{GROUP}") is None
        assert [json.loads(line)["type"] for line in changes] == ["MODIFIED", "DELETED"]


def test_a_change_of_the_schema_holds_for_objects_from_before(server: EmbeddedApiServer) -> None:
    def with_default(value: int) -> Object:
        fields = {"size": {"type": "integer", "default": value}}
        return version(schema={"type": "object", "default": {}, "properties": fields})

    server.create(DEFINITIONS, definition())
    server.create(GADGETS, {**gadget("bare", color="red")})
    made = server.objects("customresourcedefinitions", "apiextensions.k8s.io")[0]
    changed = {**made, "spec": {**made["spec"], "versions": [with_default(3)]}}
    server.replace(f"{DEFINITIONS}/gadgets.{GROUP}", changed)
    with server:
        client = ApiClient(server.url, None, server.gate.admin_bearer)
        # What the schema does not know is not shown any more, though it is still stored.
        assert client.get(f"{GADGETS}/bare")["spec"] == {"size": 3}
    assert server.objects("gadgets", GROUP)[0]["spec"] == {"color": "red"}


def test_a_deprecated_version_warns_every_client(api: ApiClient) -> None:
    old = version("v1beta1", storage=False, deprecated=True)
    api.request("POST", DEFINITIONS, definition(old, version()))
    with api.stream("GET", GADGETS.replace("v1", "v1beta1")) as answer:
        text = f"{GROUP}/v1beta1 Gadget is deprecated; use {GROUP}/v1 Gadget"
        assert answer.headers["Warning"] == f'299 - "{text}"'


def test_a_rule_that_cannot_be_compiled_is_refused(server: EmbeddedApiServer) -> None:
    rule = {"type": "object", "x-kubernetes-validations": [{"rule": "self.nothing > 1"}]}
    with pytest.raises(Refused) as caught:
        server.create(DEFINITIONS, definition(version(schema=rule)))
    where = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert caught.value.code == 422
    assert f"{where}: Invalid value" in str(caught.value)
    assert "undefined field 'nothing'" in str(caught.value)


def test_openapi_describes_a_custom_kind_and_its_hash_changes_with_it(api: ApiClient) -> None:
    path = f"apis/{GROUP}/v1"

    def address() -> str:
        return str(api.get("/openapi/v3")["paths"][path]["serverRelativeURL"])

    size = {"type": "integer", "description": "How big."}
    fields = {"size": size, "any": {"x-kubernetes-int-or-string": True}}
    api.request("POST", DEFINITIONS, definition(version(schema={"type": "object", "properties": fields})))
    before = address()
    kind = api.get(before)["components"]["schemas"]["com.example.v1.Gadget"]
    assert kind["properties"]["spec"]["properties"]["size"]["description"] == "How big."
    assert kind["x-kubernetes-group-version-kind"] == [{"group": GROUP, "version": "v1", "kind": "Gadget"}]
    older = api.get("/openapi/v2")["definitions"]["com.example.v1.Gadget"]
    assert older["properties"]["spec"]["properties"]["any"] == {"x-kubernetes-int-or-string": True}
    api.patch(f"{DEFINITIONS}/gadgets.{GROUP}", {"spec": {"versions": [version()]}})
    assert address() != before
