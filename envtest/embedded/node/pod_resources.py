"""Serves the kubelet's list of the devices that containers hold (podresources v1), for claims only.

Go: pkg/kubelet/apis/podresources/server_v1.go, and GetDynamicResources in pkg/kubelet/cm. As there, plain
init containers are left out, and a container that uses one request of a claim is listed with all its devices.
Calls are not limited to a hundred a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from envtest.embedded.control.objects import ApiDown, is_terminal
from envtest.embedded.control.pod_claims import ClaimNotUsable
from envtest.embedded.node.kubelet_claims import ClaimCache, container_claims, devices_of
from envtest.embedded.node.pod_status import all_containers, is_sidecar
from envtest.kubelet_api import podresources_v1_pb2 as pb

Object = dict[str, Any]

FOLDER, SOCKET = "pod-resources", "kubelet.sock"


class PodResources:
    """The server of one kubelet, at pod-resources/kubelet.sock in its folder."""

    def __init__(self, kubelet_dir: Path, pods: Callable[[], Sequence[Object]], claims: ClaimCache) -> None:
        """``pods`` are those of the node."""
        self._path = kubelet_dir / FOLDER / SOCKET
        self._pods = pods
        self._claims = claims
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="pod resources")
        self._server = grpc.server(self._pool)

    def start(self) -> None:
        """Serve; raises OSError or RuntimeError where the socket cannot be made."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # The socket of an earlier kubelet would keep this one from binding the path.
        self._path.unlink(missing_ok=True)
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "List": grpc.unary_unary_rpc_method_handler(
                self._list,
                request_deserializer=pb.ListPodResourcesRequest.FromString,
                response_serializer=pb.ListPodResourcesResponse.SerializeToString,
            ),
        }
        handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self._path}")
        self._server.start()

    def stop(self) -> None:
        """Serve no more."""
        self._server.stop(grace=None).wait()
        self._pool.shutdown()

    def _list(
        self, _request: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        return listed(self._known_pods(context), self._claims)

    def _known_pods(self, context: grpc.ServicerContext) -> Sequence[Object]:
        try:
            return self._pods()
        except ApiDown as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def listed(pods: Sequence[Object], claims: ClaimCache) -> pb.ListPodResourcesResponse:
    """What the containers of these pods hold, those of pods that have ended left out."""
    return pb.ListPodResourcesResponse(
        pod_resources=[pod_resources_of(pod, claims) for pod in pods if not is_terminal(pod)]
    )


def pod_resources_of(pod: Object, claims: ClaimCache) -> pb.PodResources:
    """What the containers of a pod hold."""
    return pb.PodResources(
        name=pod["metadata"]["name"],
        namespace=pod["metadata"]["namespace"],
        containers=[
            pb.ContainerResources(name=one["name"], dynamic_resources=_held(claims, pod, one))
            for one in all_containers(pod)
            if one in pod["spec"]["containers"] or is_sidecar(one)
        ],
    )


def _held(
    claims: ClaimCache, pod: Mapping[str, Any], container: Mapping[str, Any]
) -> list[pb.DynamicResource]:
    namespace = pod["metadata"]["namespace"]
    found = []
    try:
        named = container_claims(pod, container)
    except ClaimNotUsable:
        return []
    # A claim that is not prepared yet: the container holds nothing so far.
    if any(claims.of(namespace, claim) is None for claim in named):
        return []
    for claim in named:
        resources, cdi_devices = [], []
        for driver, device in devices_of(claims, namespace, claim, ""):
            # Each entry has the CDI devices of the entries before it as well: so does the kubelet's.
            cdi_devices += [pb.CDIDevice(name=one) for one in device.cdi_ids]
            resource = pb.ClaimResource(
                cdi_devices=cdi_devices,
                driver_name=driver,
                pool_name=device.pool,
                device_name=device.name,
                share_id=device.share_id or None,
            )
            resources.append(resource)
        one = pb.DynamicResource(claim_name=claim, claim_namespace=namespace, claim_resources=resources)
        found.append(one)
    return found
