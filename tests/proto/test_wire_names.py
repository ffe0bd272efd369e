"""Names and numbers are those of the kubelet's own files (Kubernetes 1.37): they are the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proto import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    grpc_health_v1_pb2,
    podresources_v1_pb2,
    registration_v1_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

DRA = {
    "NodePrepareResourcesRequest": {"claims": 1},
    "NodePrepareResourcesResponse": {"claims": 1},
    "NodePrepareResourceResponse": {"devices": 1, "error": 2},
    "Device": {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4, "share_id": 5},
    "NodeUnprepareResourcesRequest": {"claims": 1},
    "NodeUnprepareResourcesResponse": {"claims": 1},
    "NodeUnprepareResourceResponse": {"error": 1},
    "Claim": {"namespace": 1, "uid": 2, "name": 3},
}
HEALTH = {
    "NodeWatchResourcesRequest": {},
    "DeviceIdentifier": {"pool_name": 1, "device_name": 2},
    "DeviceHealth": {
        "device": 1,
        "health": 2,
        "last_updated_time": 3,
        "health_check_timeout_seconds": 4,
        "message": 5,
    },
    "NodeWatchResourcesResponse": {"devices": 1},
}
REGISTRATION = {
    "InfoRequest": {},
    "PluginInfo": {"type": 1, "name": 2, "endpoint": 3, "supported_versions": 4},
    "RegistrationStatus": {"plugin_registered": 1, "error": 2},
    "RegistrationStatusResponse": {},
}
GRPC_HEALTH = {
    "HealthCheckRequest": {"service": 1},
    "HealthCheckResponse": {"status": 1},
    "HealthListRequest": {},
    "HealthListResponse": {"statuses": 1},
}
PODRESOURCES = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": 1},
    "PodResources": {"name": 1, "namespace": 2, "containers": 3},
    "GetPodResourcesRequest": {"pod_name": 1, "pod_namespace": 2},
    "GetPodResourcesResponse": {"pod_resources": 1},
    "ContainerResources": {"name": 1, "devices": 2, "dynamic_resources": 5},
    "ContainerDevices": {"resource_name": 1, "device_ids": 2},
    "DynamicResource": {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4},
    "ClaimResource": {"cdi_devices": 1, "driver_name": 2, "pool_name": 3, "device_name": 4, "share_id": 5},
    "CDIDevice": {"name": 1},
}


@pytest.mark.parametrize(
    ("file", "package", "messages"),
    [
        (dra_v1_pb2.DESCRIPTOR, "k8s.io.kubelet.pkg.apis.dra.v1", DRA),
        (dra_health_v1_pb2.DESCRIPTOR, "v1", HEALTH),
        (dra_health_v1alpha1_pb2.DESCRIPTOR, "v1alpha1", HEALTH),
        (registration_v1_pb2.DESCRIPTOR, "pluginregistration", REGISTRATION),
        (grpc_health_v1_pb2.DESCRIPTOR, "grpc.health.v1", GRPC_HEALTH),
        (podresources_v1_pb2.DESCRIPTOR, "v1", PODRESOURCES),
    ],
    ids=[
        "dra v1",
        "health v1",
        "health v1alpha1",
        "registration",
        "grpc",
        "podresources",
    ],
)
def test_messages_have_the_names_and_numbers_of_the_kubelet(
    file: FileDescriptor, package: str, messages: dict[str, dict[str, int]]
) -> None:
    ours = {
        name: {field.name: field.number for field in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert (file.package, ours) == (package, messages)


@pytest.mark.parametrize(
    ("file", "methods"),
    [
        (dra_v1_pb2.DESCRIPTOR, {"DRAPlugin": ["NodePrepareResources", "NodeUnprepareResources"]}),
        (dra_health_v1_pb2.DESCRIPTOR, {"DRAResourceHealth": ["NodeWatchResources"]}),
        (dra_health_v1alpha1_pb2.DESCRIPTOR, {"DRAResourceHealth": ["NodeWatchResources"]}),
        (registration_v1_pb2.DESCRIPTOR, {"Registration": ["GetInfo", "NotifyRegistrationStatus"]}),
        (grpc_health_v1_pb2.DESCRIPTOR, {"Health": ["Check", "List", "Watch"]}),
        (podresources_v1_pb2.DESCRIPTOR, {"PodResourcesLister": ["List", "Get"]}),
    ],
    ids=["dra v1", "health v1", "health v1alpha1", "registration", "grpc", "podresources"],
)
def test_services_have_the_methods_of_the_kubelet(
    file: FileDescriptor, methods: dict[str, list[str]]
) -> None:
    ours = {
        name: [method.name for method in service.methods] for name, service in file.services_by_name.items()
    }
    assert ours == methods


def test_health_and_serving_states_have_the_numbers_of_the_protocols() -> None:
    health = {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}
    assert dict(dra_health_v1_pb2.HealthStatus.items()) == health
    assert dict(dra_health_v1alpha1_pb2.HealthStatus.items()) == health
    serving = {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}
    assert dict(grpc_health_v1_pb2.HealthCheckResponse.ServingStatus.items()) == serving


def test_a_prepare_answer_has_the_bytes_that_the_kubelet_reads() -> None:
    answer = dra_v1_pb2.NodePrepareResourcesResponse()
    answer.claims["u"].devices.add(request_names=["r"], pool_name="p", device_name="d", share_id="s")
    device = b"\x0a\x01r\x12\x01p\x1a\x01d\x2a\x01s"
    entry = b"\x0a\x01u\x12" + bytes([len(device) + 2]) + b"\x0a" + bytes([len(device)]) + device
    assert answer.SerializeToString() == b"\x0a" + bytes([len(entry)]) + entry
