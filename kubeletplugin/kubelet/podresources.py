"""Asks the kubelet which prepared devices the containers of this node have, by its podresources v1 API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from driver.errors import DriverError
from kubeletplugin.kubelet.wire.containers import ClaimInUse, ContainerName
from proto import podresources_v1_pb2 as pb

LIST_METHOD = "/v1.PodResourcesLister/List"

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""As the kubelet's own clients allow; gRPC's default of 4 MiB is too little for a full node."""

RECENT_SECONDS = 10.0
"""How old a list may be for callers that ask every 15 s; none of them gets the same list twice."""


class PodResourcesUnavailable(DriverError):
    """The kubelet did not list the devices in use."""


def devices_in_use(socket: Path, driver: str, timeout_seconds: float = 2.0) -> frozenset[str]:
    """The CDI device names of ``driver``'s devices in containers of this node, without vendor and class.

    They begin with the claim's UID, so that a claim is not mistaken for a later one of the same name.
    ``socket`` is the kubelet's, /var/lib/kubelet/pod-resources/kubelet.sock. Raises PodResourcesUnavailable
    if there is no answer in time.
    """
    # A claim may be listed once for each container.
    return frozenset().union(*(one.cdi_devices for one in claims_in_use(socket, driver, timeout_seconds)))


def claims_in_use(socket: Path, driver: str, timeout_seconds: float = 2.0) -> tuple[ClaimInUse, ...]:
    """The claims whose devices of ``driver`` containers of this node have, once for each container.

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
    listed: pb.ListPodResourcesResponse, driver: str
) -> dict[str, frozenset[ContainerName]]:
    """By CDI device name, the containers that the kubelet lists for it, whether they run or not."""
    # The kubelet lists the containers and sidecars of active pods, but no other init containers. It lists
    # all devices of a claim, also those of requests that the container does not name.
    found: dict[str, set[ContainerName]] = {}
    for pod in listed.pod_resources:
        for container in pod.containers:
            name = ContainerName(pod.namespace, pod.name, container.name)
            for held in container.dynamic_resources:
                for device in _cdi_devices(held, driver):
                    found.setdefault(device, set()).add(name)
    return {device: frozenset(names) for device, names in found.items()}


def given_by_device_plugins(listed: pb.ListPodResourcesResponse, prefix: str) -> frozenset[str]:
    """The ids of containers' devices from device plugins, for resource names that begin with ``prefix``."""
    return frozenset(
        device_id
        for pod in listed.pod_resources
        for container in pod.containers
        for given in container.devices
        if given.resource_name.startswith(prefix)
        for device_id in given.device_ids
    )


class SharedList:
    """The kubelet's list, fetched once for all callers that want it at the same time."""

    # The kubelet limits this API to 100 calls a second with bursts of 10, over all of its clients.

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
        """What the kubelet lists now; raises what ``ask`` raises."""
        with self._changed:
            # A call to the kubelet that is under way may have missed a change before this one, so only
            # the next call counts. Whoever waits for the same one makes it, or gets its answer.
            wanted = self._begun + 1
            self._changed.wait_for(lambda: self._last[0] >= wanted or not self._asking)
            if self._last[0] >= wanted:
                return _listed_or_raised(self._last[1])
            self._begun += 1
            number, self._asking, self._begun_at = self._begun, True, self._clock()
        answer: pb.ListPodResourcesResponse | DriverError
        answer = PodResourcesUnavailable("cannot ask the kubelet for pod resources")
        try:
            answer = self._ask()
        except DriverError as error:
            answer = error
        finally:
            with self._changed:
                self._last, self._asking = (number, answer), False
                self._changed.notify_all()
        return _listed_or_raised(answer)

    def recent(self) -> pb.ListPodResourcesResponse:
        """The list of at most ten seconds ago if somebody asked for one, else as ``now``.

        For callers that ask at intervals: several of them share one call.
        """
        with self._changed:
            if self._clock() - self._begun_at < RECENT_SECONDS:
                self._changed.wait_for(lambda: not self._asking)
                return _listed_or_raised(self._last[1])
        return self.now()


def _listed_or_raised(answer: pb.ListPodResourcesResponse | DriverError) -> pb.ListPodResourcesResponse:
    if isinstance(answer, DriverError):
        raise answer
    return answer


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
        # The kubelet lists qualified names, vendor/class=device.
        cdi.name.partition("=")[2]
        for resource in held.claim_resources
        if resource.driver_name == driver
        for cdi in resource.cdi_devices
    )
