"""Registers DRA plugins over their sockets, prepares and unprepares the claims of pods, as a kubelet does.

No container is started: a pod that runs is one whose claims are prepared and whose CDI devices resolve.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from driver.errors import DriverError
from driver.kube.paths import object_path
from driver.service import Service
from envtest.embedded.cdi import ContainerView, resolve
from envtest.embedded.scheduler import GROUP, claim_names
from proto import dra_health_v1_pb2 as device_health
from proto import dra_v1_pb2 as dra
from proto import registration_v1_pb2 as registration

if TYPE_CHECKING:
    from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]
Answer = TypeVar("Answer", bound=Message)

DRA_V1 = "v1.DRAPlugin"
HEALTH_V1 = "v1.DRAResourceHealth"
REGISTRATION_SECONDS = 1.0
CALL_SECONDS = 45.0
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class KubeletError(DriverError):
    """A pod could not be started or ended; the message has the plugin's own words."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A registered plugin and the connection to its service."""

    driver: str
    channel: grpc.Channel


@dataclass(slots=True)
class PreparedClaim:
    """A claim that plugins were asked to prepare, what they answered, by driver, and the pods that use it."""

    claim: dra.Claim
    drivers: set[str] = field(default_factory=set)
    devices: dict[str, list[dra.Device]] = field(default_factory=dict)
    pods: set[str] = field(default_factory=set)


class EmbeddedKubelet:
    """The kubelet of one node; the caller says when it looks for plugins and which pods start and end.

    ``health`` is what the plugins' streams said last, by pool and device. ``prepared`` are the claims
    that plugins hold, by UID. Every method raises KubeletError.
    """

    def __init__(self, server: EmbeddedApiServer, node_name: str, registry_dir: Path, cdi_dir: Path) -> None:
        self._server = server
        self._node_name = node_name
        self._registry_dir = registry_dir
        self._cdi_dir = cdi_dir
        self._service = Service()
        self._lock = threading.Lock()
        self._plugins: dict[str, Plugin] = {}
        self._sockets: set[Path] = set()
        self._health: dict[tuple[str, str], str] = {}
        self.prepared: dict[str, PreparedClaim] = {}

    @property
    def health(self) -> dict[tuple[str, str], str]:
        """``HEALTHY``, ``UNHEALTHY`` or ``UNKNOWN`` of each device."""
        with self._lock:
            return dict(self._health)

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers whose plugins are registered, sorted."""
        return tuple(sorted(self._plugins))

    def register_plugins(self) -> None:
        """Look once for new sockets of plugins, and register those that answer."""
        for path in sorted(self._registry_dir.glob("*.sock")):
            if path not in self._sockets and self._register(path):
                self._sockets.add(path)

    def start_pod(self, namespace: str, name: str) -> dict[str, ContainerView]:
        """Prepare the pod's claims; what each of its containers would get, by the container's name."""
        pod = self._pod(namespace, name)
        if pod["spec"].get("nodeName") != self._node_name:
            raise KubeletError(f"the pod {name} is not bound to {self._node_name}", "schedule it first")
        claims = {
            entry["name"]: self._claim_of(pod, claim)
            for entry, claim in zip(pod["spec"].get("resourceClaims", ()), claim_names(pod), strict=True)
        }
        self._prepare(pod, list(claims.values()))
        views = {
            container["name"]: resolve(self._cdi_dir, self._device_ids(container, claims))
            for container in pod["spec"]["containers"]
        }
        status = {**pod.get("status", {}), "phase": "Running"}
        self._server.replace(f"{_pod_path(namespace, name)}/status", {**pod, "status": status})
        return views

    def end_pod(self, namespace: str, name: str) -> None:
        """Unprepare the claims that no other pod uses, then remove the pod from the API."""
        uid = self._pod(namespace, name)["metadata"]["uid"]
        for held in [held for held in self.prepared.values() if uid in held.pods]:
            if held.pods == {uid}:
                for driver in sorted(held.drivers):
                    self._unprepare(driver, held)
                del self.prepared[held.claim.uid]
            held.pods.discard(uid)
        self._server.delete(_pod_path(namespace, name))

    def close(self) -> None:
        """End the streams and the connections; nothing is unprepared."""
        self._service.stop()
        for plugin in self._plugins.values():
            plugin.channel.close()

    def _register(self, path: Path) -> bool:
        """Whether the plugin behind a registration socket answered and is registered now."""
        service = "/pluginregistration.Registration"
        with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
            try:
                info = _call(
                    channel,
                    f"{service}/GetInfo",
                    registration.InfoRequest(),
                    registration.PluginInfo,
                    REGISTRATION_SECONDS,
                )
            except grpc.RpcError:
                return False  # not up yet: looked at again the next time
            reason = _reason_to_refuse(info)
            status = registration.RegistrationStatus(plugin_registered=not reason, error=reason)
            _call(
                channel,
                f"{service}/NotifyRegistrationStatus",
                status,
                registration.RegistrationStatusResponse,
                CALL_SECONDS,
            )
        if reason:
            raise KubeletError(f"the plugin at {path} is refused: {reason}")
        plugin = Plugin(info.name, grpc.insecure_channel(f"unix:{info.endpoint}", options=_OPTIONS))
        self._plugins[info.name] = plugin
        if HEALTH_V1 in info.supported_versions:
            self._follow_health(plugin)
        return True

    def _follow_health(self, plugin: Plugin) -> None:
        watch = plugin.channel.unary_stream(
            f"/{HEALTH_V1}/NodeWatchResources",
            request_serializer=device_health.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=device_health.NodeWatchResourcesResponse.FromString,
        )
        stream = watch(device_health.NodeWatchResourcesRequest())

        def follow() -> None:
            try:
                for answer in stream:
                    self._heard(answer)
            except grpc.RpcError:
                pass  # the plugin went away, or the kubelet ends
            self._heard(device_health.NodeWatchResourcesResponse())

        self._service.spawn(f"health of {plugin.driver}", follow, stop=stream.cancel)

    def _heard(self, answer: device_health.NodeWatchResourcesResponse) -> None:
        told = {
            (one.device.pool_name, one.device.device_name): device_health.HealthStatus.Name(one.health)
            for one in answer.devices
        }
        with self._lock:
            self._health = told
        self._server.store.notify()

    def _prepare(self, pod: Object, claims: list[Object]) -> None:
        """Ask each driver for its claims that are not prepared yet; then the pod is a user of all."""
        asked: dict[str, list[dra.Claim]] = {}
        for claim in claims:
            metadata = claim["metadata"]
            reference = dra.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
            held = self.prepared.setdefault(reference.uid, PreparedClaim(reference))
            held.pods.add(pod["metadata"]["uid"])
            held.drivers |= {
                result["driver"] for result in claim["status"]["allocation"]["devices"]["results"]
            }
            for driver in held.drivers - held.devices.keys():
                asked.setdefault(driver, []).append(reference)
        for driver, references in sorted(asked.items()):
            answer = self._ask(
                driver,
                "NodePrepareResources",
                dra.NodePrepareResourcesRequest(claims=references),
                dra.NodePrepareResourcesResponse,
            )
            for uid, entry in answer.claims.items():
                if uid in self.prepared and not entry.error:
                    self.prepared[uid].devices[driver] = list(entry.devices)
            self._check(driver, "prepare", references, answer.claims)

    def _unprepare(self, driver: str, held: PreparedClaim) -> None:
        answer = self._ask(
            driver,
            "NodeUnprepareResources",
            dra.NodeUnprepareResourcesRequest(claims=[held.claim]),
            dra.NodeUnprepareResourcesResponse,
        )
        self._check(driver, "unprepare", [held.claim], answer.claims)
        held.drivers.discard(driver)
        held.devices.pop(driver, None)

    def _ask(self, driver: str, method: str, request: Message, answer: type[Answer]) -> Answer:
        plugin = self._plugins.get(driver)
        if plugin is None:
            raise KubeletError(f"no plugin of the driver {driver} is registered", "start it")
        path = f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}"
        try:
            return _call(plugin.channel, path, request, answer, CALL_SECONDS)
        except grpc.RpcError as error:
            raise KubeletError(
                f"{method} of the driver {driver} failed: {error}", "look at its log"
            ) from error

    @staticmethod
    def _check(driver: str, verb: str, references: list[dra.Claim], answered: Mapping[str, Any]) -> None:
        """Each claim needs an entry without an error, and no other may have one."""
        asked = {reference.uid: f"{reference.namespace}/{reference.name}" for reference in references}
        if set(asked) != set(answered):
            raise KubeletError(f"the driver {driver} answered for other claims than those it was asked for")
        for uid, entry in answered.items():
            if entry.error:
                raise KubeletError(f"{driver} cannot {verb} claim {asked[uid]}: {entry.error}")

    def _device_ids(self, container: Mapping[str, Any], claims: Mapping[str, Object]) -> list[str]:
        """The CDI devices of a container: those of its claims, or of the one request that it names."""
        ids: list[str] = []
        for entry in container.get("resources", {}).get("claims", ()):
            held = self.prepared[claims[entry["name"]]["metadata"]["uid"]]
            for device in (device for devices in held.devices.values() for device in devices):
                wanted = entry.get("request")
                if not wanted or not device.request_names or wanted in device.request_names:
                    ids.extend(device.cdi_device_ids)
        return ids

    def _claim_of(self, pod: Object, name: str) -> Object:
        claim = self._server.store.get((GROUP, "resourceclaims"), (pod["metadata"]["namespace"], name))
        users = (claim or {}).get("status", {}).get("reservedFor", ())
        if claim is None or pod["metadata"]["uid"] not in (user["uid"] for user in users):
            raise KubeletError(f"the claim {name} is not reserved for the pod", "schedule the pod first")
        return claim

    def _pod(self, namespace: str, name: str) -> Object:
        pod = self._server.store.get(("", "pods"), (namespace, name))
        if pod is None:
            raise KubeletError(f"there is no pod {namespace}/{name}", "create it")
        return pod


def _reason_to_refuse(info: registration.PluginInfo) -> str:
    """Why a plugin cannot be used, empty when it can."""
    if info.type != "DRAPlugin":
        return f"it is a {info.type or 'plugin without a type'}, and not a DRAPlugin"
    if DRA_V1 not in info.supported_versions:
        return f"it does not support {DRA_V1}"
    return "" if info.endpoint else "it names no endpoint"


def _call(
    channel: grpc.Channel, method: str, request: Message, answer: type[Answer], timeout_seconds: float
) -> Answer:
    ask = channel.unary_unary(
        method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
    )
    done: Answer = ask(request, timeout=timeout_seconds)
    return done


def _pod_path(namespace: str, name: str) -> str:
    return object_path(f"/api/v1/namespaces/{namespace}/pods", name)
