"""A metadata file says the same in each version of the API, and nothing that is not known."""

from __future__ import annotations

from kubeletplugin.claims.metadata import MetadataClaim, MetadataDevice, document
from tests.kubeletplugin.claims.metadata.told import documents

CLAIM = MetadataClaim("team", "vm-gpus-x7k2p", "u-1", "gpus")


def test_the_versions_differ_in_their_name_alone_and_the_newest_stands_first() -> None:
    newest, older = documents(document(CLAIM, "gpu", [MetadataDevice("p", "d", {})]).decode())

    assert newest.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
    assert older.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
    assert newest == older


def test_it_names_the_claim_the_request_and_its_devices_in_their_order() -> None:
    devices = [MetadataDevice("p", name, {"z": {"int": 1}, "a": {"bool": True}}) for name in ("d-2", "d-1")]
    found, _ = documents(document(CLAIM, "gpu/large", devices).decode())

    assert found["kind"] == "DeviceMetadata"
    assert found["metadata"] == {"name": "vm-gpus-x7k2p", "namespace": "team", "uid": "u-1", "generation": 1}
    assert found["podClaimName"] == "gpus"
    (request,) = found["requests"]
    assert request["name"] == "gpu/large"
    assert [(one["driver"], one["pool"], one["name"]) for one in request["devices"]] == [
        ("gpu.nvidia.com", "p", "d-2"),
        ("gpu.nvidia.com", "p", "d-1"),
    ]
    assert list(request["devices"][0]["attributes"]) == ["a", "z"]


def test_what_there_is_not_is_left_out() -> None:
    found, _ = documents(
        document(MetadataClaim("team", "gpus", "u-1", ""), "gpu", [MetadataDevice("p", "d", {})]).decode()
    )

    assert "podClaimName" not in found
    assert found["requests"][0]["devices"] == [{"driver": "gpu.nvidia.com", "pool": "p", "name": "d"}]
