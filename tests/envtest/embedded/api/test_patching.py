"""Patches do what they do in Kubernetes: strategic lists, JSON patch, server-side apply with its owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.api.patching import APPLY, JSON_PATCH, MERGE, STRATEGIC
from envtest.embedded.api.strategic_merge import strategic_merged
from envtest.embedded.schema.types import FieldType, type_of
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, CLASSES, PODS, ask, claim, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


KINDS = {
    "configmaps": {"apiVersion": "v1", "kind": "ConfigMap"},
    "deployments": {"apiVersion": "apps/v1", "kind": "Deployment"},
    "resourceclaims": {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"},
}


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


def pod_type() -> FieldType:
    found = type_of("v1", "Pod")
    assert found is not None
    return found


def merged(spec: dict[str, Any], patch: dict[str, Any]) -> Any:
    return strategic_merged({"spec": spec}, {"spec": patch}, pod_type())["spec"]


def applied(server: EmbeddedApiServer, path: str, body: Any, manager: str, *, force: bool = False) -> Any:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    plural, name = path.removesuffix("/status").split("/")[-2:]
    config = {**KINDS[plural], "metadata": {"name": name}, **body}
    return ask(server, "PATCH", path + query, config, content_type=APPLY)


def owners(item: Any) -> list[tuple[str, str]]:
    return [(one["manager"], one["operation"]) for one in item["metadata"].get("managedFields", [])]


def test_containers_are_merged_by_name() -> None:
    spec = {"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "2"}]}

    assert merged(spec, {"containers": [{"name": "b", "image": "3"}, {"name": "c"}]})["containers"] == [
        {"name": "a", "image": "1", "args": ["x"]},
        {"name": "b", "image": "3"},
        {"name": "c"},
    ]


def test_directives_delete_replace_and_order() -> None:
    spec = {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {"x": "1"}}

    assert merged(spec, {"containers": [{"name": "b", "$patch": "delete"}]})["containers"] == [
        {"name": "a"},
        {"name": "c"},
    ]
    assert merged(spec, {"containers": [{"$patch": "replace"}, {"name": "z"}]})["containers"] == [
        {"name": "z"}
    ]
    assert merged(spec, {"nodeSelector": {"y": "2", "$patch": "replace"}})["nodeSelector"] == {"y": "2"}
    ordered = merged(
        spec, {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "a"}]}
    )
    assert [one["name"] for one in ordered["containers"]] == ["b", "c", "a"]


def test_primitive_lists_are_merged_and_values_deleted(server: EmbeddedApiServer) -> None:
    item = pod("p")
    item["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    server.create(PODS, item)
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}

    answer = ask(server, "PATCH", f"{PODS}/p", patch, content_type=STRATEGIC)

    assert answer.body["metadata"]["finalizers"] == ["example.com/b"]


def test_a_patch_without_its_merge_key_is_refused(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p"))

    answer = ask(server, "PATCH", f"{PODS}/p", {"spec": {"containers": [{}]}}, content_type=STRATEGIC)

    assert answer.code == 500
    assert answer.body["message"] == "map: map[] does not contain declared merge key: name"


def test_a_json_patch_moves_and_copies(server: EmbeddedApiServer) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    operations = [
        {"op": "copy", "from": "/data/a", "path": "/data/b"},
        {"op": "move", "from": "/data/a", "path": "/data/c"},
    ]

    answer = ask(server, "PATCH", f"{CONFIG_MAPS}/m", operations, content_type=JSON_PATCH)

    assert answer.body["data"] == {"b": "1", "c": "1"}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({}, 400),
        ([1], 400),
        ([{"op": "add"}], 422),
        ([{"op": "remove", "path": "/data/none"}], 422),
        ([{"op": "add", "path": "/metadata/finalizers/9", "value": "x"}], 422),
        ([{"op": "other", "path": "/data/a"}], 422),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(
    server: EmbeddedApiServer, operations: object, code: int
) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})

    assert ask(server, "PATCH", f"{CONFIG_MAPS}/m", operations, content_type=JSON_PATCH).code == code


def test_an_apply_creates_and_then_changes_only_what_it_names(server: EmbeddedApiServer) -> None:
    path = f"{CONFIG_MAPS}/m"
    first = applied(server, path, {"data": {"a": "1", "b": "2"}}, "one")
    ask(server, "PATCH", f"{path}?fieldManager=hand", {"data": {"c": "3"}}, content_type=MERGE)
    second = applied(server, path, {"data": {"a": "4"}}, "one")

    assert (first.code, second.code) == (201, 200)
    assert second.body["data"] == {"a": "4", "c": "3"}
    assert owners(second.body) == [("one", "Apply"), ("hand", "Update")]


def test_the_same_apply_again_writes_nothing(server: EmbeddedApiServer) -> None:
    first = applied(server, f"{CONFIG_MAPS}/m", {"data": {"a": "1"}}, "one")
    again = applied(server, f"{CONFIG_MAPS}/m", {"data": {"a": "1"}}, "one")

    assert first.body == again.body


def test_who_applies_what_another_owns_is_told_the_owner_and_the_field(server: EmbeddedApiServer) -> None:
    path = f"{CONFIG_MAPS}/m"
    applied(server, path, {"data": {"a": "1"}}, "one")

    conflict = applied(server, path, {"data": {"a": "2"}}, "two")
    forced = applied(server, path, {"data": {"a": "2"}}, "two", force=True)

    assert conflict.code == 409
    assert conflict.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert conflict.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    assert (forced.body["data"], owners(forced.body)) == ({"a": "2"}, [("two", "Apply")])


def test_an_apply_with_the_uid_of_another_object_is_invalid(server: EmbeddedApiServer) -> None:
    path = f"{CONFIG_MAPS}/m"
    applied(server, path, {"data": {"a": "1"}}, "one")

    refused = applied(server, path, {"metadata": {"name": "m", "uid": "another"}, "data": {"a": "2"}}, "one")

    assert refused.code == 422
    assert refused.body["message"] == (
        'ConfigMap "m" is invalid: metadata.uid: Invalid value: "another": field is immutable'
    )


def test_an_equal_value_is_owned_together_until_the_last_owner_lets_go(server: EmbeddedApiServer) -> None:
    path = f"{CONFIG_MAPS}/m"
    applied(server, path, {"data": {"a": "1"}}, "one")
    applied(server, path, {"data": {"a": "1"}}, "two")

    kept = applied(server, path, {"data": {"b": "1"}}, "one").body["data"]
    gone = applied(server, path, {"data": {"c": "1"}}, "two").body["data"]

    assert (kept, gone) == ({"a": "1", "b": "1"}, {"b": "1", "c": "1"})


def test_an_object_from_before_belongs_to_nobody_in_particular(server: EmbeddedApiServer) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})

    conflict = applied(server, f"{CONFIG_MAPS}/m", {"data": {"a": "2"}}, "one")

    assert 'conflict with "before-first-apply" using v1: .data.a' in conflict.body["message"]


def test_an_apply_without_a_manager_is_invalid(server: EmbeddedApiServer) -> None:
    assert ask(server, "PATCH", f"{CLASSES}/c", {}, content_type=APPLY).code == 422


def test_drivers_share_the_status_of_a_claim_by_device(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    result = {"request": "gpu", "driver": "a.example.com", "pool": "p"}
    results = [{**result, "device": "x"}, {**result, "device": "y"}]
    server.replace(
        f"{CLAIMS}/c/status", {**stored, "status": {"allocation": {"devices": {"results": results}}}}
    )

    def status_of(device: str) -> dict[str, Any]:
        mine = {"driver": "a.example.com", "pool": "p", "device": device, "data": {"from": device}}
        return {"status": {"devices": [mine]}}

    one = applied(server, f"{CLAIMS}/c/status", status_of("x"), "driver-x")
    two = applied(server, f"{CLAIMS}/c/status", status_of("y"), "driver-y")
    gone = applied(server, f"{CLAIMS}/c/status", {"status": {}}, "driver-x")

    assert one.code == 200, one.body
    assert [one["device"] for one in two.body["status"]["devices"]] == ["x", "y"]
    assert [one["device"] for one in gone.body["status"]["devices"]] == ["y"]
    assert gone.body["status"]["allocation"] == {"devices": {"results": results}}


def test_a_port_that_names_no_protocol_is_that_of_tcp(server: EmbeddedApiServer) -> None:
    """The protocol tells ports apart as well, and the schema has a default for it, which is stored."""
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    https, metrics = {"name": "https", "containerPort": 8443}, {"name": "metrics", "containerPort": 9400}

    def deployment(*ports: Any) -> Any:
        labels = {"a": "b"}
        spec = {"containers": [{"name": "c", "image": "i", "ports": [*ports]}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        return {"spec": {"selector": {"matchLabels": labels}, "template": template}}

    applied(server, path, deployment(https), "one")

    stored = applied(server, path, deployment(https, metrics), "one")

    assert stored.code == 200, stored.body
    (container,) = stored.body["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in container["ports"]] == ["https", "metrics"]
