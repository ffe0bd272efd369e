"""Names and numbers of the MPS service stay: the supervisor may be older or newer than the plugin."""

from __future__ import annotations

from proto import mps_v1_pb2


def test_messages_keep_their_names_and_numbers() -> None:
    file = mps_v1_pb2.DESCRIPTOR
    ours = {
        name: {field.name: field.number for field in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert (file.package, ours) == (
        "gpu.nvidia.com.mps.v1",
        {
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
        },
    )


def test_the_service_keeps_its_calls() -> None:
    [service] = mps_v1_pb2.DESCRIPTOR.services_by_name.values()
    methods = {method.name: method.server_streaming for method in service.methods}
    assert (service.name, methods) == ("Mps", {"Ensure": False, "Stop": False, "Watch": True})
