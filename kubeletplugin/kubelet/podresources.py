"""Asks the kubelet which prepared devices containers of this node hold, over podresources v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from driver.errors import DriverError
from proto import podresources_v1_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

LIST_METHOD = "/v1.PodResourcesLister/List"

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""What the kubelet's own clients accept; gRPC's default of 4 MiB is too little for a full node."""


class PodResourcesUnavailable(DriverError):
    """The kubelet did not say which devices are in use."""


def devices_in_use(socket: Path, driver: str, timeout_seconds: float = 2.0) -> frozenset[str]:
    """The CDI device names of ``driver``'s devices in containers of this node, without vendor and class.

    They begin with the claim's UID, so that a claim is never mistaken for a later one of the same
    name. ``socket`` is the kubelet's, /var/lib/kubelet/pod-resources/kubelet.sock. Raises
    PodResourcesUnavailable when there is no answer in time.
    """
    options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    with grpc.insecure_channel(f"unix:{socket.absolute()}", options) as channel:
        ask = channel.unary_unary(
            LIST_METHOD,
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        try:
            answer: pb.ListPodResourcesResponse = ask(pb.ListPodResourcesRequest(), timeout=timeout_seconds)
        except grpc.RpcError as error:
            raise PodResourcesUnavailable(
                f"the kubelet does not list pod resources at {socket}: {error}",
                "check that the kubelet runs and that its pod-resources folder is mounted",
            ) from error
    return frozenset(
        cdi.name.partition("=")[2]
        for pod in answer.pod_resources
        for container in pod.containers
        for held in container.dynamic_resources
        for resource in held.claim_resources
        if resource.driver_name == driver
        for cdi in resource.cdi_devices
    )
