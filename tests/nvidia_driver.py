"""Imitates NVIDIA's kubelet plugin: its sockets, its checkpoint and its CDI specs, without GPUs.

It prepares whole GPUs of its pool, which has the node's name. When it ends, its sockets are removed and its
files stay, as with that driver.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import grpc

from driver.process.boot import running_boot_id
from kubeletplugin.kubelet.wire.names import former_cdi_spec_file_name
from proto import dra_v1_pb2 as v1
from proto import registration_v1_pb2 as registration
from tests.clusters import Object
from tests.gpus import DRIVER_NAME
from tests.kubeletplugin.migration.nvidia_state import checkpoint, claim, gpu, told, write_spec


class NvidiaDriver:
    """Serves from ``start`` to ``end``; its checkpoint and CDI specs are on the disk at any time.

    ``registered`` is set once a kubelet has it. ``get_claim(namespace, name)`` is the API object. ``uuids``
    are the GPUs by the names of their devices.
    """

    def __init__(
        self,
        node: str,
        plugins: Path,
        registry: Path,
        cdi: Path,
        uuids: Mapping[str, str],
        get_claim: Callable[[str, str], Object],
    ) -> None:
        self.data = plugins / DRIVER_NAME
        self.data.mkdir(parents=True, exist_ok=True)
        self.service_socket = self.data / "dra.sock"
        self.registration_socket = registry / f"{DRIVER_NAME}-reg.sock"
        self._node, self._cdi, self._uuids, self._get_claim = node, cdi, dict(uuids), get_claim
        self._claims: dict[str, Object] = {}
        self.registered = threading.Event()
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def checkpoint(self) -> Path:
        """Where it keeps what it has prepared."""
        return self.data / "checkpoint.json"

    def start(self) -> None:
        """Open the sockets; the kubelet finds the registration within a second."""
        self._write()
        dra = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                self._prepare_all,
                request_deserializer=v1.NodePrepareResourcesRequest.FromString,
                response_serializer=v1.NodePrepareResourcesResponse.SerializeToString,
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                self._unprepare_all,
                request_deserializer=v1.NodeUnprepareResourcesRequest.FromString,
                response_serializer=v1.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        }
        info = registration.PluginInfo(
            type="DRAPlugin",
            name=DRIVER_NAME,
            endpoint=str(self.service_socket),
            supported_versions=["v1.DRAPlugin"],
        )
        registrar = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: info,
                request_deserializer=registration.InfoRequest.FromString,
                response_serializer=registration.PluginInfo.SerializeToString,
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                self._notify,
                request_deserializer=registration.RegistrationStatus.FromString,
                response_serializer=registration.RegistrationStatusResponse.SerializeToString,
            ),
        }
        self._serve(self.service_socket, "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra)
        self._serve(self.registration_socket, "pluginregistration.Registration", registrar)

    def end(self) -> None:
        """Stop serving and remove the sockets, as when the pod is deleted."""
        self._running.close()

    def prepare(self, namespace: str, name: str, uid: str) -> list[v1.Device]:
        """Prepare a claim for whole GPUs as that driver does without any sharing."""
        results = self._get_claim(namespace, name)["status"]["allocation"]["devices"]["results"]
        ours = [one for one in results if one["driver"] == DRIVER_NAME]
        answers = [told(uid, self._node, one["device"], one["request"]) for one in ours]
        devices = [gpu(self._uuids[answer["DeviceName"]], answer) for answer in answers]
        write_spec(self._cdi, uid, *(answer["DeviceName"] for answer in answers))
        self._claims[uid] = claim(devices, pods=[name])
        self._write()
        return [
            v1.Device(
                request_names=answer["Requests"],
                pool_name=answer["PoolName"],
                device_name=answer["DeviceName"],
                cdi_device_ids=answer["CDIDeviceIDs"],
            )
            for answer in answers
        ]

    def unprepare(self, uid: str) -> None:
        """Forget a claim, and remove its CDI spec."""
        self._claims.pop(uid, None)
        (self._cdi / former_cdi_spec_file_name(uid)).unlink(missing_ok=True)
        self._write()

    def _serve(self, socket: Path, service: str, methods: Object) -> None:
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(max_workers=4))
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._running.callback(socket.unlink, missing_ok=True)
        self._running.callback(lambda: server.stop(None).wait())

    def _notify(
        self, status: registration.RegistrationStatus, _context: grpc.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        if status.plugin_registered:
            self.registered.set()
        return registration.RegistrationStatusResponse()

    def _prepare_all(
        self, request: v1.NodePrepareResourcesRequest, _context: grpc.ServicerContext
    ) -> v1.NodePrepareResourcesResponse:
        answer = v1.NodePrepareResourcesResponse()
        for one in request.claims:
            answer.claims[one.uid].devices.extend(self.prepare(one.namespace, one.name, one.uid))
        return answer

    def _unprepare_all(
        self, request: v1.NodeUnprepareResourcesRequest, _context: grpc.ServicerContext
    ) -> v1.NodeUnprepareResourcesResponse:
        answer = v1.NodeUnprepareResourcesResponse()
        for one in request.claims:
            self.unprepare(one.uid)
            answer.claims[one.uid].SetInParent()
        return answer

    def _write(self) -> None:
        unfinished = self.checkpoint.with_suffix(".tmp")
        unfinished.write_bytes(checkpoint(self._claims, running_boot_id()))
        unfinished.rename(self.checkpoint)


def slice_devices(uuids: Mapping[str, str]) -> list[Object]:
    """Whole GPUs as that driver publishes them, with the attributes that a class reads."""
    return [
        {"name": name, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}
        for name, uuid in uuids.items()
    ]
