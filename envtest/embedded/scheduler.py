"""Gives claims their devices and pods their node, as the real scheduler does in the simplest case.

That case is one node, and claims that ask for a number of devices of one DeviceClass. First fit: pools by
driver and name, slices by name, devices as they are listed. What would need more than that is refused with
CannotJudge and never guessed: other requests, constraints, selectors beyond plain comparisons, devices with
counters or shares, pods with more than one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driver.errors import ConfigError
from driver.kube.paths import claim_path, object_path
from envtest.embedded.device_selector import CannotJudge, check_known, selects

if TYPE_CHECKING:
    from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

GROUP = "resource.k8s.io"
_EXACTLY = {"deviceClassName", "allocationMode", "count"}
_NEEDS_MORE = ("consumesCounters", "allowMultipleAllocations", "bindingConditions", "bindsToNode")
_UNSCHEDULABLE = "0/1 nodes are available: 1 cannot allocate all claims."
_MAX_USERS = 256


@dataclass(frozen=True, slots=True)
class Offered:
    """One device of a complete pool, as its slice lists it."""

    driver: str
    pool: str
    listed: Mapping[str, Any]

    @property
    def identity(self) -> tuple[str, str, str]:
        """What allocations name a device by: driver, pool, device."""
        return self.driver, self.pool, str(self.listed["name"])


def complete_pools(slices: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The slices of each pool whose newest generation is whole, by driver and pool, in allocation order."""
    pools: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in sorted(slices, key=lambda one: str(one["metadata"]["name"])):
        pools.setdefault((one["spec"]["driver"], one["spec"]["pool"]["name"]), []).append(one)
    whole = {}
    for key, members in sorted(pools.items()):
        newest = max(int(one["spec"]["pool"]["generation"]) for one in members)
        current = [one for one in members if int(one["spec"]["pool"]["generation"]) == newest]
        if len(current) == int(current[0]["spec"]["pool"]["resourceSliceCount"]):
            whole[key] = current
    return whole


class EmbeddedScheduler:
    """The scheduler of a cluster with one node; the caller says when it looks at a pod."""

    def __init__(self, server: EmbeddedApiServer, node_name: str) -> None:
        self._server = server
        self._node_name = node_name

    def schedule(self, namespace: str, name: str) -> str | None:
        """Allocate and reserve the pod's claims and bind it; why it has to wait, None when it is bound.

        Why it waits is also in the pod's PodScheduled condition. Raises CannotJudge, and ConfigError when
        the pod, a claim or the class is not there.
        """
        with self._server.store.changed:
            pod = self._get("", "pods", namespace, name)
            claims = [self._get(GROUP, "resourceclaims", namespace, claim) for claim in claim_names(pod)]
            unallocated = [claim for claim in claims if "allocation" not in claim.get("status", {})]
            chosen = self._choose(unallocated)
            if chosen is None:
                self._condition(pod, "False", _UNSCHEDULABLE)
                return _UNSCHEDULABLE
            for claim in claims:
                allocation = chosen.get(claim["metadata"]["uid"])
                self._reserve(claim, allocation or claim["status"]["allocation"], pod)
            self._server.replace(_path(pod), {**pod, "spec": {**pod["spec"], "nodeName": self._node_name}})
            self._condition(self._get("", "pods", namespace, name), "True", "")
        return None

    def release_unused(self) -> None:
        """Take the allocation from claims whose pods are all gone, as the claim controller does."""
        with self._server.store.changed:
            uids = {pod["metadata"]["uid"] for pod in self._server.objects("pods")}
            for claim in self._server.objects("resourceclaims", GROUP):
                status = claim.get("status") or {}
                users = [user for user in status.get("reservedFor", ()) if user["uid"] in uids]
                if len(users) == len(status.get("reservedFor", ())):
                    continue
                left = {**status, "reservedFor": users} if users else {}
                self._server.replace(f"{_path(claim)}/status", {**claim, "status": left})

    def _choose(self, claims: list[Object]) -> dict[str, Object] | None:
        """An allocation for each claim by UID, None when there are not enough devices."""
        names = {request["exactly"]["deviceClassName"] for claim in claims for request in _requests(claim)}
        if not names:
            return {}
        if len(names) > 1:
            raise CannotJudge(f"the pod asks for devices of the classes {', '.join(sorted(names))}")
        device_class = self._get(GROUP, "deviceclasses", "", names.pop())
        free = self._free(device_class)
        chosen = {}
        for claim in claims:
            results = []
            for request in _requests(claim):
                for _ in range(int(request["exactly"].get("count", 1))):
                    device = next(free, None)
                    if device is None:
                        return None
                    driver, pool, name = device.identity
                    results.append(
                        {"request": request["name"], "driver": driver, "pool": pool, "device": name}
                    )
            chosen[claim["metadata"]["uid"]] = self._allocation(claim, device_class, results)
        return chosen

    def _free(self, device_class: Object) -> Iterator[Offered]:
        """The devices of the class that nobody has, in allocation order."""
        expressions = [one["cel"]["expression"] for one in device_class["spec"].get("selectors", ())]
        for expression in expressions:
            check_known(expression)
        taken = {
            (result["driver"], result["pool"], result["device"])
            for claim in self._server.objects("resourceclaims", GROUP)
            for result in _results(claim)
        }
        for device in self._offered():
            attributes = device.listed.get("attributes") or {}
            if not all(selects(expression, device.driver, attributes) for expression in expressions):
                continue
            if any(field in device.listed for field in _NEEDS_MORE):
                raise CannotJudge(f"the device {'/'.join(device.identity)} is more than a plain one")
            if device.identity not in taken and not _is_tainted(device.listed):
                yield device

    def _offered(self) -> Iterator[Offered]:
        slices = self._server.objects("resourceslices", GROUP)
        for one in slices:
            if "nodeName" not in one["spec"]:
                raise CannotJudge(f"the slice {one['metadata']['name']} is not of one node")
        here = [one for one in slices if one["spec"]["nodeName"] == self._node_name]
        for (driver, pool), members in complete_pools(here).items():
            devices = [
                Offered(driver, pool, one) for each in members for one in each["spec"].get("devices", ())
            ]
            if len({device.identity for device in devices}) == len(devices):  # else the pool is invalid
                yield from devices

    def _allocation(self, claim: Object, device_class: Object, results: list[Object]) -> Object:
        """The result as the API has it: class configuration first, then the claim's own."""
        requests = [request["name"] for request in _requests(claim)]
        config = [
            {"source": "FromClass", "requests": requests, **entry}
            for entry in device_class["spec"].get("config", ())
        ]
        config += [{"source": "FromClaim", **entry} for entry in claim["spec"]["devices"].get("config", ())]
        here = {"key": "metadata.name", "operator": "In", "values": [self._node_name]}
        return {
            "devices": {"results": results, **({"config": config} if config else {})},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        }

    def _reserve(self, claim: Object, allocation: Object, pod: Object) -> None:
        """Write the allocation, and the pod as one of those that may use it."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        users = list(claim.get("status", {}).get("reservedFor", ()))
        if uid not in (user["uid"] for user in users):
            if len(users) == _MAX_USERS:
                raise CannotJudge(f"the claim {claim['metadata']['name']} has {_MAX_USERS} pods already")
            users.append({"resource": "pods", "name": name, "uid": uid})
        status = {**claim.get("status", {}), "allocation": allocation, "reservedFor": users}
        self._server.replace(f"{_path(claim)}/status", {**claim, "status": status})

    def _condition(self, pod: Object, status: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": status}
        if message:
            condition |= {"reason": "Unschedulable", "message": message}
        others = [one for one in pod.get("status", {}).get("conditions", ()) if one["type"] != "PodScheduled"]
        changed = {"phase": "Pending", **pod.get("status", {}), "conditions": [*others, condition]}
        self._server.replace(f"{_path(pod)}/status", {**pod, "status": changed})

    def _get(self, group: str, resource: str, namespace: str, name: str) -> Object:
        item = self._server.store.get((group, resource), (namespace, name))
        if item is None:
            raise ConfigError(f"there is no {name!r} among the {resource}", "create it")
        return item


def claim_names(pod: Mapping[str, Any]) -> list[str]:
    """The claims of a pod in its order. Raises CannotJudge for a template: nobody makes claims of it here."""
    names = []
    for entry in pod["spec"].get("resourceClaims", ()):
        if "resourceClaimName" not in entry:
            raise CannotJudge(f"the pod {pod['metadata']['name']} has a claim that is still to be made")
        names.append(str(entry["resourceClaimName"]))
    return names


def _requests(claim: Mapping[str, Any]) -> list[Object]:
    """The requests of a claim; raises CannotJudge unless each is a class and a number."""
    devices = claim["spec"].get("devices", {})
    name = claim["metadata"]["name"]
    if devices.get("constraints"):
        raise CannotJudge(f"the claim {name} has constraints")
    for request in devices.get("requests", ()):
        exactly = request.get("exactly") or {}
        more = sorted(set(exactly) - _EXACTLY)
        if (
            more
            or "deviceClassName" not in exactly
            or exactly.get("allocationMode", "ExactCount") != "ExactCount"
        ):
            asks = ", ".join(more) or "something else than a number of devices of a class"
            raise CannotJudge(f"the request {request['name']} of claim {name} asks for {asks}")
    return list(devices.get("requests", ()))


def _results(claim: Mapping[str, Any]) -> list[Object]:
    allocation = claim.get("status", {}).get("allocation") or {}
    return list(allocation.get("devices", {}).get("results", ()))


def _is_tainted(listed: Mapping[str, Any]) -> bool:
    """Whether a taint keeps new claims away; requests with tolerations are not judged here."""
    return any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in listed.get("taints", ()))


def _path(item: Object) -> str:
    """The API path of a pod or a claim."""
    namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
    if item["kind"] == "Pod":
        return object_path(f"/api/v1/namespaces/{namespace}/pods", name)
    return claim_path(namespace, name)
