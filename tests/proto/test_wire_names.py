"""Names and numbers are those of the kubelet's own files (Kubernetes 1.37), and ours stay as they are."""

import pytest
from google.protobuf.descriptor import FileDescriptor

from proto import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    grpc_health_v1_pb2,
    mps_v1_pb2,
    node_state_v1_pb2,
    podresources_v1_pb2,
    registration_v1_pb2,
)

KUBELET = ("dra v1", "health v1", "health v1alpha1", "registration", "grpc", "podresources")
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

MPS = {
    "Daemon": {
        "name": 1,
        "devices": 2,
        "multi_user": 3,
        "active_thread_percentage": 4,
        "pinned_memory_mib": 5,
        "protocol": 6,
    },
    "EnsureResponse": {"state": 1},
    "StopRequest": {"name": 1},
    "StopResponse": {},
    "WatchRequest": {},
    "State": {"daemons": 1, "told_ns": 2},
    "DaemonState": {"name": 1, "running": 2, "message": 3},
}
"""The supervisor may be older or newer than the plugin."""

NODE_STATE = {
    "WatchRequest": {"controller": 1},
    "State": {"held": 1, "blocked": 2, "busy": 3, "let_go": 4, "healed": 5},
    "Healed": {"pci_bus_id": 1, "boottime_milliseconds": 2},
    "HasLetGoRequest": {"controller": 1, "let_go": 2, "failure": 3},
    "HasLetGoResponse": {},
    "EnableVirtualFunctionsRequest": {"pci_bus_id": 1},
    "EnableVirtualFunctionsResponse": {"failure": 1},
    "HealRequest": {"gpu": 1, "reset": 2, "wait_seconds": 3},
    "HealProgress": {"step": 1, "pci_bus_ids": 2, "claims": 3, "processes": 4, "message": 5},
    "HoldingClaim": {"namespace": 1, "name": 2, "uid": 3},
    "UsingProcess": {"process_id": 1, "name": 2, "pod_uid": 3},
    "BlockedPlacement": {"pci_bus_id": 1, "span": 2, "reason": 3, "message": 4},
    "Span": {"start": 1, "size": 2},
}
"""Plugin and controller may be of different versions."""


@pytest.mark.parametrize(
    ("file", "package", "messages"),
    [
        (dra_v1_pb2.DESCRIPTOR, "k8s.io.kubelet.pkg.apis.dra.v1", DRA),
        (dra_health_v1_pb2.DESCRIPTOR, "v1", HEALTH),
        (dra_health_v1alpha1_pb2.DESCRIPTOR, "v1alpha1", HEALTH),
        (registration_v1_pb2.DESCRIPTOR, "pluginregistration", REGISTRATION),
        (grpc_health_v1_pb2.DESCRIPTOR, "grpc.health.v1", GRPC_HEALTH),
        (podresources_v1_pb2.DESCRIPTOR, "v1", PODRESOURCES),
        (mps_v1_pb2.DESCRIPTOR, "gpu.nvidia.com.mps.v1", MPS),
        (node_state_v1_pb2.DESCRIPTOR, "gpu.nvidia.com.nodestate.v1", NODE_STATE),
    ],
    ids=[*KUBELET, "mps", "node state"],
)
def test_messages_keep_their_names_and_numbers(
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
        (mps_v1_pb2.DESCRIPTOR, {"Mps": ["Ensure", "Stop", "Watch"]}),
        (
            node_state_v1_pb2.DESCRIPTOR,
            {"NodeState": ["Watch", "HasLetGo", "EnableVirtualFunctions", "Heal"]},
        ),
    ],
    ids=[*KUBELET, "mps", "node state"],
)
def test_services_keep_their_calls(file: FileDescriptor, methods: dict[str, list[str]]) -> None:
    ours = {
        name: [method.name for method in service.methods] for name, service in file.services_by_name.items()
    }
    assert ours == methods


def test_our_own_calls_stream_what_they_did() -> None:
    for file, streams in (
        (mps_v1_pb2.DESCRIPTOR, {"Watch"}),
        (node_state_v1_pb2.DESCRIPTOR, {"Watch", "Heal"}),
    ):
        [service] = file.services_by_name.values()
        assert {method.name for method in service.methods if method.server_streaming} == streams


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
