"""Names and numbers of the node's state stay: the plugin and the controller may be of different versions."""

from __future__ import annotations

from proto import node_state_v1_pb2


def test_messages_keep_their_names_and_numbers() -> None:
    file = node_state_v1_pb2.DESCRIPTOR
    ours = {
        name: {field.name: field.number for field in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert (file.package, ours) == (
        "gpu.nvidia.com.nodestate.v1",
        {
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
        },
    )


def test_the_service_keeps_its_calls() -> None:
    [service] = node_state_v1_pb2.DESCRIPTOR.services_by_name.values()
    calls = {method.name: method.server_streaming for method in service.methods}
    assert (service.name, calls) == (
        "NodeState",
        {"Watch": True, "HasLetGo": False, "EnableVirtualFunctions": False, "Heal": True},
    )
