"""A small DRA driver, which imports ``envtest`` and ``kubernetes_rules`` alone. Its device is ``a``.

Arguments: a kubeconfig, the node's name, the kubelet's folder, the folder of CDI specs.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf.message import Message

from envtest.client.api import ApiClient
from envtest.kubelet_api import dra_v1_pb2 as dra
from envtest.kubelet_api import registration_v1_pb2 as registration

DRIVER = "device.example.com"
KIND = "example.com/device"
DRA = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"


Calls = dict[str, tuple[Callable[..., Any], type[Message]]]
"""What is done at each call, and the type of its request."""


class MyDriver:
    """Prepares claims with a CDI spec in YAML each, and publishes its device once it is registered."""

    def __init__(self, api: ApiClient, node: str, kubelet_dir: Path, cdi_dir: Path) -> None:
        self._api = api
        self._node = node
        self._cdi_dir = cdi_dir
        self._plugin_dir = kubelet_dir / "plugins" / DRIVER
        self._endpoint = self._plugin_dir / "dra.sock"
        self._registration = kubelet_dir / "plugins_registry" / f"{DRIVER}-reg.sock"

    def start(self) -> list[grpc.Server]:
        """Serve the kubelet: the service first, then the socket by which it is found."""
        self._plugin_dir.mkdir(parents=True, exist_ok=True)
        plugin: Calls = {
            "NodePrepareResources": (self._prepare, dra.NodePrepareResourcesRequest),
            "NodeUnprepareResources": (self._unprepare, dra.NodeUnprepareResourcesRequest),
        }
        found: Calls = {
            "GetInfo": (self._info, registration.InfoRequest),
            "NotifyRegistrationStatus": (self._registered, registration.RegistrationStatus),
        }
        return [
            serve(self._endpoint, DRA, plugin),
            serve(self._registration, "pluginregistration.Registration", found),
        ]

    def _info(self, _request: Any, _context: grpc.ServicerContext) -> registration.PluginInfo:
        return registration.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(self._endpoint), supported_versions=["v1.DRAPlugin"]
        )

    def _registered(
        self, status: registration.RegistrationStatus, _context: grpc.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        if status.plugin_registered:
            kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
            pool = {"name": self._node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": DRIVER, "nodeName": self._node, "pool": pool, "devices": [{"name": "a"}]}
            self._api.apply({**kind, "metadata": {"name": f"{self._node}-{DRIVER}"}, "spec": spec})
        return registration.RegistrationStatusResponse()

    def _prepare(
        self, request: dra.NodePrepareResourcesRequest, _context: grpc.ServicerContext
    ) -> dra.NodePrepareResourcesResponse:
        answer = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
            results = self._api.get(path)["status"]["allocation"]["devices"]["results"]
            names = [one["device"] for one in results]
            devices = [
                {"name": f"{claim.uid}-{name}", "containerEdits": {"env": [f"DEVICE={name}"]}}
                for name in names
            ]
            spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}
            self._spec_of(claim.uid).write_text(yaml.safe_dump(spec))
            for one, device in zip(results, devices, strict=True):
                answer.claims[claim.uid].devices.add(
                    request_names=[one["request"]],
                    pool_name=one["pool"],
                    device_name=one["device"],
                    cdi_device_ids=[f"{KIND}={device['name']}"],
                )
        return answer

    def _unprepare(
        self, request: dra.NodeUnprepareResourcesRequest, _context: grpc.ServicerContext
    ) -> dra.NodeUnprepareResourcesResponse:
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self._spec_of(claim.uid).unlink(missing_ok=True)
            answer.claims[claim.uid].SetInParent()
        return answer

    def _spec_of(self, uid: str) -> Path:
        return self._cdi_dir / f"{DRIVER}-{uid}.yaml"


def serve(path: Path, service: str, calls: Calls) -> grpc.Server:
    """Serve calls at a unix socket."""
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.unary_unary_rpc_method_handler(
            call, request.FromString, lambda one: one.SerializeToString()
        )
        for name, (call, request) in calls.items()
    }
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


if __name__ == "__main__":
    kubeconfig, node_name, *folders = sys.argv[1:]
    config = json.loads(Path(kubeconfig).read_text())
    api = ApiClient(config["clusters"][0]["cluster"]["server"], None, config["users"][0]["user"]["token"])
    running = MyDriver(api, node_name, *map(Path, folders)).start()
    threading.Event().wait()
