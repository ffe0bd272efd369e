"""Has plugins prepare and unprepare the claims of pods, and keeps their answers in a checkpoint.

Go: pkg/kubelet/cm/dra/manager.go.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from envtest.embedded.control import kinds, pod_claims
from envtest.embedded.control.objects import Objects, uid_of
from envtest.embedded.node.kubelet_calls import Answer, KubeletError, call_plugin
from envtest.embedded.node.kubelet_plugins import PluginRegistry
from envtest.kubelet_api import dra_v1_pb2 as dra
from kubernetes_rules.pod_claims import extended_claim, is_extended
from kubernetes_rules.quantity import Quantity

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name: a claim of the same name has to wait until the one before is unprepared."""


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A prepared device, as the plugin answered."""

    pool: str
    name: str
    requests: tuple[str, ...]
    cdi_ids: tuple[str, ...]
    share_id: str = ""


@dataclass(slots=True)
class ClaimInfo:
    """A claim that pods of this node use: the devices by driver, and the UIDs of the pods.

    ``prepared`` is not in the checkpoint: after a restart plugins are asked again for a new pod.
    """

    uid: str
    namespace: str
    name: str
    devices: dict[str, list[PreparedDevice]]
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    unpreparing: bool = False


class ClaimCache:
    """The claims of a node's pods. Thread-safe; calls to plugins are made outside of the lock.

    Every method raises KubeletError with the words of the real kubelet.
    """

    def __init__(self, objects: Objects, plugins: PluginRegistry, checkpoint: Path) -> None:
        self._objects = objects
        self._plugins = plugins
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._claims: dict[Key, ClaimInfo] = _loaded(checkpoint) if checkpoint.exists() else {}

    @property
    def pods(self) -> set[str]:
        """The UIDs of all pods that use a claim here."""
        with self._lock:
            return {uid for info in self._claims.values() for uid in info.pods}

    def claims(self) -> list[ClaimInfo]:
        """All claims that are known here."""
        with self._lock:
            return list(self._claims.values())

    def of(self, namespace: str, name: str) -> ClaimInfo | None:
        """One claim."""
        with self._lock:
            return self._claims.get((namespace, name))

    def prepare(self, pod: Object) -> None:
        """Prepare the claims of a pod that are not prepared yet; the pod becomes a user of all of them."""
        found = self._usable(pod)
        for claim in found:
            # First all that can fail is checked, and nothing is noted: a driver without a plugin is an error
            # here.
            for driver in {result["driver"] for result in pod_claims.results_of(claim)}:
                self._plugins.plugin(driver)
        batches: dict[str, list[ClaimInfo]] = {}
        with self._lock:
            asked = [self._attach(pod, claim) for claim in found]
            for info in asked:
                # A claim that another pod has prepared is not prepared again.
                for driver in info.devices if not info.prepared else ():
                    batches.setdefault(driver, []).append(info)
            self._save()
        for driver, infos in batches.items():
            self._prepare_batch(driver, infos)
        with self._lock:
            for info in asked:
                info.prepared = True
            self._save()

    def unprepare(self, pod_uid: str) -> None:
        """Unprepare the claims whose last user was this pod, which has ended."""
        batches: dict[str, list[ClaimInfo]] = {}
        with self._lock:
            last = []
            for info in self._claims.values():
                if info.pods == {pod_uid}:
                    # From here on new pods of the claim are refused, until its unprepare has succeeded
                    # (1.37).
                    info.unpreparing = True
                    last.append(info)
                    for driver in info.devices:
                        batches.setdefault(driver, []).append(info)
                else:
                    info.pods.discard(pod_uid)
        for driver, infos in batches.items():
            self._unprepare_batch(driver, infos)
        with self._lock:
            for info in last:
                self._claims.pop((info.namespace, info.name), None)
            self._save()

    def _usable(self, pod: Object) -> list[Object]:
        """The pod's claims, each of which exists, is reserved for the pod and allocated."""
        try:
            found = [claim for _, claim in pod_claims.claims_of_pod(self._objects, pod)]
            extended = extended_claim(pod)
            if extended is not None:
                claim = self._objects.find(kinds.CLAIMS, pod["metadata"]["namespace"], extended)
                if claim is None:
                    raise pod_claims.claim_not_found(extended)
                found.append(claim)
        except pod_claims.ClaimNotUsable as error:
            raise KubeletError(str(error)) from error
        for claim in found:
            name = claim["metadata"]["name"]
            if not pod_claims.is_reserved(claim, pod):
                raise KubeletError(
                    f"pod {pod['metadata']['name']} ({uid_of(pod)}) is not allowed to use "
                    f"ResourceClaim {name} ({uid_of(claim)})"
                )
            if not claim["status"].get("allocation"):
                raise KubeletError(f"ResourceClaim {name}: not allocated")
        return found

    def _attach(self, pod: Object, claim: Object) -> ClaimInfo:
        """Note the pod as a user of the claim, under the lock."""
        metadata = claim["metadata"]
        key = (metadata["namespace"], metadata["name"])
        drivers: dict[str, list[PreparedDevice]] = {
            result["driver"]: [] for result in pod_claims.results_of(claim)
        }
        info = self._claims.get(key)
        if info is None:
            info = self._claims[key] = ClaimInfo(uid_of(claim), *key, devices=drivers)
        # The cache is by namespace and name, as in the kubelet.
        elif info.uid != uid_of(claim):
            raise KubeletError(
                f"old ResourceClaim with same name {key[1]} and different UID {info.uid} still exists "
                f"(previous pod force-deleted?!)"
            )
        elif info.unpreparing:
            raise KubeletError(f"ResourceClaim {key[1]} is being unprepared")
        info.pods.add(uid_of(pod))
        return info

    def _prepare_batch(self, driver: str, infos: Sequence[ClaimInfo]) -> None:
        request = dra.NodePrepareResourcesRequest(claims=map(_reference, infos))
        answer = self._call(driver, "NodePrepareResources", request, dra.NodePrepareResourcesResponse)
        _check("NodePrepareResources", infos, answer.claims)
        with self._lock:
            for info in infos:
                # The answer replaces the devices of an earlier one (1.36 appended them).
                info.devices[driver] = [
                    PreparedDevice(
                        one.pool_name,
                        one.device_name,
                        tuple(one.request_names),
                        tuple(one.cdi_device_ids),
                        one.share_id,
                    )
                    for one in answer.claims[info.uid].devices
                ]

    def _unprepare_batch(self, driver: str, infos: Sequence[ClaimInfo]) -> None:
        request = dra.NodeUnprepareResourcesRequest(claims=map(_reference, infos))
        answer = self._call(driver, "NodeUnprepareResources", request, dra.NodeUnprepareResourcesResponse)
        _check("NodeUnprepareResources", infos, answer.claims)

    def _call(self, driver: str, method: str, request: Message, answer: type[Answer]) -> Answer:
        plugin = self._plugins.plugin(driver)
        return call_plugin(plugin.channel, plugin.service, method, request, answer)

    def _save(self) -> None:
        """Write the checkpoint, under the lock."""
        kept = [
            {
                "uid": info.uid,
                "namespace": info.namespace,
                "name": info.name,
                "pods": sorted(info.pods),
                "devices": {
                    driver: [asdict(one) for one in devices] for driver, devices in info.devices.items()
                },
            }
            for info in self._claims.values()
        ]
        # Before plugins are called, so that claims of pods that are gone are found after a crash.
        new = self._checkpoint.with_suffix(".new")
        new.write_text(json.dumps({"claims": kept}))
        # A reader finds the old checkpoint or the new one, never a part.
        new.replace(self._checkpoint)


def container_device_ids(
    cache: ClaimCache, pod: Mapping[str, Any], container: Mapping[str, Any]
) -> list[str]:
    """The CDI devices that a container is started with, in the order of its claims."""
    namespace = pod["metadata"]["namespace"]
    return [
        device_id
        for claim, requests in container_claims(pod, container).items()
        for request in requests
        for _, device in devices_of(cache, namespace, claim, request)
        for device_id in device.cdi_ids
    ]


def container_claims(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, list[str]]:
    """The requests that a container uses of each of its claims, '' for all of them. Raises ClaimNotUsable."""
    wanted: dict[str, list[str]] = {}
    asked = container.get("resources", {}).get("claims", ())
    for one in pod_claims.pod_claims(pod):
        requests = [str(entry.get("request", "")) for entry in asked if entry["name"] == one.entry]
        if requests:
            wanted.setdefault(one.claim, []).extend(requests)
    extended = extended_claim(pod)
    if extended is not None:
        amounts = container.get("resources", {}).get("requests", {})
        resources = {
            name for name, text in amounts.items() if is_extended(name) and Quantity.parse(text).value
        }
        for mapping in pod["status"]["extendedResourceClaimStatus"].get("requestMappings", ()):
            if mapping["containerName"] == container["name"] and mapping["resourceName"] in resources:
                wanted.setdefault(extended, []).append(mapping["requestName"])
    return wanted


def devices_of(
    cache: ClaimCache, namespace: str, claim: str, request: str
) -> list[tuple[str, PreparedDevice]]:
    """Driver and device of a claim, those of one request or, for an empty one, of all."""
    info = cache.of(namespace, claim)
    if info is None:
        return []
    # Plugins answer with the names of requests, without those of subrequests.
    name = request.partition("/")[0]
    return [
        (driver, device)
        for driver, devices in info.devices.items()
        for device in devices
        if not name or not device.requests or name in device.requests
    ]


def _reference(info: ClaimInfo) -> dra.Claim:
    return dra.Claim(namespace=info.namespace, name=info.name, uid=info.uid)


def _check(method: str, infos: Sequence[ClaimInfo], answered: Mapping[str, Any]) -> None:
    """Each claim needs an entry without an error, and no other may have one."""
    asked = {info.uid: info.name for info in infos}
    for uid, entry in answered.items():
        if uid not in asked:
            raise KubeletError(f"{method} returned result for unknown claim UID {uid}")
        if entry.error:
            raise KubeletError(f"{method} failed for ResourceClaim {asked[uid]}: {entry.error}")
    if len(answered) < len(asked):
        raise KubeletError(f"{method} skipped {len(asked) - len(answered)} ResourceClaims")


def _loaded(checkpoint: Path) -> dict[Key, ClaimInfo]:
    """The claims in the checkpoint of an earlier kubelet of this node."""
    claims = {}
    for kept in json.loads(checkpoint.read_text())["claims"]:
        devices = {
            driver: [
                PreparedDevice(
                    **{**one, "requests": tuple(one["requests"]), "cdi_ids": tuple(one["cdi_ids"])}
                )
                for one in listed
            ]
            for driver, listed in kept["devices"].items()
        }
        info = ClaimInfo(kept["uid"], kept["namespace"], kept["name"], devices, set(kept["pods"]))
        claims[info.namespace, info.name] = info
    return claims
