"""Custom objects own and are owned, count for quotas, and go with their namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.garbage_collector import EmbeddedGarbageCollector
from envtest.embedded.control.namespace_controller import EmbeddedNamespaceController
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.custom.gadgets import DEFINITIONS, GADGETS, GROUP, definition, gadget, version
from tests.eventually import eventually

Object = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """A server of gadgets in two versions with the controllers that end objects."""
    with EmbeddedApiServer() as running:
        running.create(DEFINITIONS, definition(version("v2beta1", storage=False), version()))
        controllers = (EmbeddedGarbageCollector(running), EmbeddedNamespaceController(running))
        for controller in controllers:
            controller.start()
        yield running
        for controller in controllers:
            controller.stop()


def owned_by(owner: Object, item: Object) -> Object:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    item["metadata"]["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    return item


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def names(server: EmbeddedApiServer, resource: str, group: str = "") -> list[str]:
    return [one["metadata"]["name"] for one in server.objects(resource, group)]


def test_what_a_custom_object_owns_goes_with_it_and_it_goes_with_its_owner(server: EmbeddedApiServer) -> None:
    owner = server.create(MAPS, config_map("owner"))
    middle = server.create(GADGETS, owned_by(owner, gadget("middle")))
    server.create(MAPS, owned_by({**middle, "apiVersion": f"{GROUP}/v2beta1"}, config_map("last")))
    server.delete(f"{MAPS}/owner")
    eventually("all are gone", lambda: not names(server, "configmaps") + names(server, "gadgets", GROUP))


def test_an_orphaned_custom_object_forgets_its_owner(server: EmbeddedApiServer) -> None:
    owner = server.create(MAPS, config_map("owner"))
    server.create(GADGETS, owned_by(owner, gadget("kept")))
    server.delete(f"{MAPS}/owner?propagationPolicy=Orphan")
    eventually("it has no owner", lambda: "ownerReferences" not in str(server.objects("gadgets", GROUP)))
    assert names(server, "gadgets", GROUP) == ["kept"]


def test_a_quota_counts_custom_objects(server: EmbeddedApiServer) -> None:
    hard = {f"count/gadgets.{GROUP}": "1"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    server.create("/api/v1/namespaces/default/resourcequotas", quota)
    server.create(GADGETS, gadget("first"))
    with pytest.raises(Refused, match=f"exceeded quota: few, requested: count/gadgets.{GROUP}=1") as caught:
        server.create(GADGETS, gadget("second"))
    assert caught.value.code == 403


def test_a_namespace_waits_for_its_custom_objects(server: EmbeddedApiServer) -> None:
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    server.create("/api/v1/namespaces", team)
    place = GADGETS.replace("default", "team")
    held = gadget("held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    server.create(place, held)
    server.create(place, gadget("free"))
    server.delete("/api/v1/namespaces/team")
    eventually("the free one is gone", lambda: names(server, "gadgets", GROUP) == ["held"])
    eventually("it says why", lambda: "SomeFinalizersRemain" in str(server.objects("namespaces")))
    stored = server.objects("gadgets", GROUP)[0]
    metadata = {key: value for key, value in stored["metadata"].items() if key != "finalizers"}
    server.replace(f"{place}/held", {**stored, "metadata": metadata})
    eventually("it is gone", lambda: "team" not in names(server, "namespaces"))
