"""Asks the kubelet which prepared devices containers of this node hold, over podresources v1."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from driver.errors import DriverError
from kubeletplugin.kubelet.wire.containers import ContainerName
from proto import podresources_v1_pb2 as pb

LIST_METHOD = "/v1.PodResourcesLister/List"

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""What the kubelet's own clients accept; gRPC's default of 4 MiB is too little for a full node."""

RECENT_SECONDS = 10.0
"""How old a list may be for those who look every 15 s: none of them is served twice by one list."""


class PodResourcesUnavailable(DriverError):
    """The kubelet did not say which devices are in use."""


@dataclass(frozen=True, slots=True)
class ClaimInUse:
    """A claim whose devices containers of a pod have, with their CDI names without vendor and class."""

    namespace: str
    claim: str
    pod: str
    cdi_devices: frozenset[str]


def devices_in_use(socket: Path, driver: str, timeout_seconds: float = 2.0) -> frozenset[str]:
    """The CDI device names of ``driver``'s devices in containers of this node, without vendor and class.

    They begin with the claim's UID, so that a claim is never mistaken for a later one of the same
    name. ``socket`` is the kubelet's, /var/lib/kubelet/pod-resources/kubelet.sock. Raises
    PodResourcesUnavailable when there is no answer in time.
    """
    return frozenset().union(*(one.cdi_devices for one in claims_in_use(socket, driver, timeout_seconds)))


def claims_in_use(socket: Path, driver: str, timeout_seconds: float = 2.0) -> tuple[ClaimInUse, ...]:
    """The claims of which containers of this node have devices of ``driver``, once for each container.

    Arguments and errors as for ``devices_in_use``.
    """
    return tuple(
        ClaimInUse(held.claim_namespace, held.claim_name, pod.name, devices)
        for pod in list_pods(socket, timeout_seconds).pod_resources
        for container in pod.containers
        for held in container.dynamic_resources
        if (devices := _cdi_devices(held, driver))
    )


def containers_by_device(
    told: pb.ListPodResourcesResponse, driver: str
) -> dict[str, frozenset[ContainerName]]:
    """By CDI device name, the containers that the kubelet lists for it, whether they run or not.

    Those are containers and sidecars of the node's active pods, but no other init containers, and each with
    all devices of the claims that it names.
    """
    found: dict[str, set[ContainerName]] = {}
    for pod in told.pod_resources:
        for container in pod.containers:
            name = ContainerName(pod.namespace, pod.name, container.name)
            for held in container.dynamic_resources:
                for device in _cdi_devices(held, driver):
                    found.setdefault(device, set()).add(name)
    return {device: frozenset(names) for device, names in found.items()}


def given_by_device_plugins(told: pb.ListPodResourcesResponse, prefix: str) -> frozenset[str]:
    """The ids of the devices that containers have from device plugins, of resources that begin with
    ``prefix``.
    """
    return frozenset(
        device_id
        for pod in told.pod_resources
        for container in pod.containers
        for given in container.devices
        if given.resource_name.startswith(prefix)
        for device_id in given.device_ids
    )


class SharedList:
    """What the kubelet lists, asked for once for all who want to know meanwhile.

    The kubelet refuses more than 100 calls a second, and more than 10 at once (podresources' rate limit).
    """

    def __init__(
        self, ask: Callable[[], pb.ListPodResourcesResponse], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``ask`` raises DriverError."""
        self._ask = ask
        self._clock = clock
        self._changed = threading.Condition()
        self._begun = 0
        self._begun_at = -RECENT_SECONDS
        self._asking = False
        self._last: tuple[int, pb.ListPodResourcesResponse | DriverError] = (0, pb.ListPodResourcesResponse())

    def now(self) -> pb.ListPodResourcesResponse:
        """What the kubelet lists now; raises what ``ask`` raises.

        That is what was asked of the kubelet after the call, never what was under way already.
        """
        with self._changed:
            wanted = self._begun + 1
            self._changed.wait_for(lambda: self._last[0] >= wanted or not self._asking)
            if self._last[0] >= wanted:
                return _listed_or_raised(self._last[1])
            self._begun += 1
            number, self._asking, self._begun_at = self._begun, True, self._clock()
        told: pb.ListPodResourcesResponse | DriverError
        told = PodResourcesUnavailable("the kubelet was not asked")
        try:
            told = self._ask()
        except DriverError as error:
            told = error
        finally:
            with self._changed:
                self._last, self._asking = (number, told), False
                self._changed.notify_all()
        return _listed_or_raised(told)

    def recent(self) -> pb.ListPodResourcesResponse:
        """What somebody has asked the kubelet for a short while ago, else as ``now``.

        For whoever looks from time to time: two that do ask once.
        """
        with self._changed:
            if self._clock() - self._begun_at < RECENT_SECONDS:
                self._changed.wait_for(lambda: not self._asking)
                return _listed_or_raised(self._last[1])
        return self.now()


def _listed_or_raised(told: pb.ListPodResourcesResponse | DriverError) -> pb.ListPodResourcesResponse:
    if isinstance(told, DriverError):
        raise told
    return told


def list_pods(socket: Path, timeout_seconds: float = 2.0) -> pb.ListPodResourcesResponse:
    """What containers of this node have; arguments and errors as for ``devices_in_use``."""
    options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    with grpc.insecure_channel(f"unix:{socket.absolute()}", options) as channel:
        ask = channel.unary_unary(
            LIST_METHOD,
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        try:
            answer: pb.ListPodResourcesResponse = ask(pb.ListPodResourcesRequest(), timeout=timeout_seconds)
            return answer
        except grpc.RpcError as error:
            raise PodResourcesUnavailable(
                f"the kubelet does not list pod resources at {socket}: {error}",
                "check that the kubelet runs and that its pod-resources folder is mounted",
            ) from error


def _cdi_devices(held: pb.DynamicResource, driver: str) -> frozenset[str]:
    return frozenset(
        cdi.name.partition("=")[2]
        for resource in held.claim_resources
        if resource.driver_name == driver
        for cdi in resource.cdi_devices
    )
