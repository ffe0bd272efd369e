"""A fake node whose claims are in an API server, for tests of what their status tells."""

from collections.abc import Callable
from functools import partial

from kubeletplugin.reports.claim_status import ClaimStatuses, StatusWriter
from tests.clusters import EmbeddedApiServer, Object, Reference
from tests.eventually import eventually
from tests.gpus import DRIVER_NAME, EventReason, Health
from tests.kubeletplugin.fake_node import NODE, POOL, FakeNode
from tests.plugin import ClaimRef, DeviceHealth, DeviceMemory, HealthTracker

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
OTHER = {"driver": "nic.example.com", "pool": NODE, "device": "nic-0"}

Start = Callable[[], ClaimStatuses]


class Cluster:
    """A fake node whose claims are in an API server, where allocations come and go."""

    def __init__(self, node: FakeNode, server: EmbeddedApiServer) -> None:
        self.node = node
        self.server = server
        self.memory: dict[tuple[str, str], DeviceMemory] = {}
        self.healths: HealthTracker
        self.writer: StatusWriter
        self.events: list[tuple[str, str, str, str]] = []
        self.ill: dict[str, Health] = {}
        self.unseen: set[str] = set()
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})

    def post(self, about: Reference, reason: EventReason, message: str) -> None:
        """Keep an event."""
        self.events.append((about.kind, about.name, reason.word, message))

    def told_events(self, count: int) -> list[tuple[str, str, str, str]]:
        """The events, once there are so many: they come after the status is written."""
        return eventually(f"{count} events", lambda: list(self.events), lambda told: len(told) >= count)

    def look(self, *devices: str) -> None:
        """Look at what claims have, and at these devices besides; ``ill`` is what is found."""
        held = {one.device for entry in self.node.journal.entries() for one in entry.devices}
        self.healths.update(
            tuple(
                DeviceHealth(POOL, device, self.ill.get(device, Health("Healthy")), 0)
                for device in sorted((held | {*devices}) - self.unseen)
            )
        )

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

    def prepared(self, *places: int) -> dict[str, str]:
        """Prepared claims ``c0`` and so on for small partitions at these places; their devices."""
        devices = {f"c{place}": self.node.part(place) for place in places}
        for name, device in devices.items():
            self.node.prepare(self.claim(name, device))
        return devices

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

    def condition(self, name: str, device: str) -> Object:
        """A device's only condition."""
        (condition,) = self.told(name)[device]["conditions"]
        return dict(condition)

    def is_ready(self, name: str, device: str, status: str, reason: str) -> bool:
        """Whether a device's only condition is so."""
        return _is_ready(self.condition(name, device), status, reason)

    def wait_ready(self, name: str, device: str, status: str, reason: str) -> None:
        """Wait until a device's only condition is so."""
        what = f"{device} of {name} is Ready={status}, {reason}"
        eventually(what, partial(self.condition, name, device), lambda one: _is_ready(one, status, reason))

    def asked(self, verb: str) -> int:
        return self.server.count(verb, "resourceclaims")

    def wait_all_told(self, devices: dict[str, str]) -> None:
        """Wait until each of these claims tells of its device."""
        for name, device in devices.items():
            self.wait_told(name, device)

    def wait_told(self, name: str, device: str) -> Object:
        """What our driver says of a device, once it says something."""
        told = partial(self.told, name)
        return eventually(f"claim {name} tells of {device}", told, lambda devices: device in devices)[device]


def _is_ready(condition: Object, status: str, reason: str) -> bool:
    return bool((condition["status"], condition["reason"]) == (status, reason))
