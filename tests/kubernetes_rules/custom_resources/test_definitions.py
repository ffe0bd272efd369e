"""What the cases that are compared with Kubernetes do not show about definitions."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.custom_resources import LEFT_OUT
from kubernetes_rules.custom_resources.definitions import (
    defaulted_definition,
    definition_errors,
    prepared_definition,
)
from kubernetes_rules.custom_resources.objects import status_errors
from kubernetes_rules.custom_resources.schema import parse_schema


def _definition(**more: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    spec = {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Cluster",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    return {"metadata": {"name": "widgets.example.com"}, "spec": spec | more}


def test_a_conversion_webhook_is_refused_with_the_way_out() -> None:
    crd = prepared_definition(defaulted_definition(_definition(conversion={"strategy": "Webhook"})))

    (error,) = definition_errors(crd)

    assert error.field == "spec.conversion.strategy"
    assert "use None" in error.detail
    assert any("conversion webhooks" in line for line in LEFT_OUT)


def test_a_new_storage_version_is_added_to_the_stored_versions() -> None:
    old = prepared_definition(defaulted_definition(_definition()))
    versions = [old["spec"]["versions"][0] | {"storage": False}, old["spec"]["versions"][0] | {"name": "v2"}]

    new = prepared_definition(_definition(versions=versions), old)

    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert new["metadata"]["generation"] == 2


def test_the_metadata_in_a_default_of_an_embedded_resource_is_stored_as_it_is_read() -> None:
    created = "2024-02-29T10:11:12.7+01:00"
    default = {"apiVersion": "v1", "kind": "A", "metadata": {"creationTimestamp": created, "unknown": 1}}
    marks = {"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"a": {"type": "object", "default": default, **marks}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}

    stored = prepared_definition(defaulted_definition(_definition(versions=[version])))

    found = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"]["default"]
    assert found["metadata"] == {"creationTimestamp": "2024-02-29T09:11:12Z"}


def test_an_update_of_the_status_tolerates_what_it_leaves_alone() -> None:
    status = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    schema = parse_schema({"type": "object", "properties": {"status": status}})

    errors = status_errors(schema, {"status": {"a": "x", "b": "y"}}, {"status": {"a": "x", "b": 1}})

    assert [error.field for error in errors] == ["status.b"]
