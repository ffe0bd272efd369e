"""A fake node whose claims are in an API server, for tests of what their status tells."""

from __future__ import annotations

from typing import Any

from driver.devices.names import DRIVER_NAME
from envtest.embedded.api.server import EmbeddedApiServer
from kubeletplugin.reports.device_status import DeviceMemory
from kubeletplugin.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import NODE, FakeNode

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
OTHER = {"driver": "nic.example.com", "pool": NODE, "device": "nic-0"}

Object = dict[str, Any]


class Cluster:
    """A fake node whose claims are in an API server, where allocations come and go."""

    def __init__(self, node: FakeNode, server: EmbeddedApiServer) -> None:
        self.node = node
        self.server = server
        self.memory: dict[tuple[str, str], DeviceMemory] = {}
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})

    def claim(self, name: str, *devices: str, admin: bool = False) -> ClaimRef:
        """An allocated claim for these devices, known to the API server and to the node."""
        requests = [
            {"name": f"gpu-{position}", "exactly": {"deviceClassName": "any"}}
            for position in range(len(devices) + 1)
        ]
        uid = self.server.create(
            CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        )["metadata"]["uid"]
        ref = self.node.claim_devices(name, *devices, uid=uid, admin=admin)
        self.allocate(ref)
        return ref

    def allocate(self, ref: ClaimRef) -> None:
        """Give the claim its devices, and one of another driver."""
        allocation = self.node.api[ref.namespace, ref.name]["status"]["allocation"]
        results = allocation["devices"]["results"]
        # Admin access asks for rights of the namespace, which are not what is looked at here.
        plain = [{key: value for key, value in result.items() if key != "adminAccess"} for result in results]
        of_other = {"request": f"gpu-{len(results)}", **OTHER}
        self.write_status(ref.name, {"allocation": {"devices": {"results": [*plain, of_other]}}})

    def stored(self, name: str) -> Object:
        (found,) = (
            claim
            for claim in self.server.objects("resourceclaims", "resource.k8s.io")
            if claim["metadata"]["name"] == name
        )
        return found

    def write_status(self, name: str, status: Object) -> None:
        self.server.replace(f"{CLAIMS}/{name}/status", {**self.stored(name), "status": status})

    def told(self, name: str) -> dict[str, Object]:
        """What our driver says of each device of a claim."""
        devices = self.stored(name).get("status", {}).get("devices") or []
        return {entry["device"]: entry for entry in devices if entry["driver"] == DRIVER_NAME}

    def is_ready(self, name: str, device: str, status: str, reason: str) -> bool:
        """Whether a device's only condition is so."""
        (condition,) = self.told(name)[device]["conditions"]
        return bool((condition["status"], condition["reason"]) == (status, reason))

    def asked(self, verb: str) -> int:
        return self.server.count(verb, "resourceclaims")

    def wait_told(self, name: str, device: str) -> Object:
        assert self.server.wait_until(lambda: device in self.told(name))
        return self.told(name)[device]
