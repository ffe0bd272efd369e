"""Imitates NVIDIA's device plugin: offers a resource to a real kubelet, and gives containers a variable.

It speaks the device plugin API v1beta1 (k8s.io/kubelet/pkg/apis/deviceplugin). Its few messages are encoded
by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import grpc

VARIABLE = "FROM_DEVICE_PLUGIN"
_SERVICE = "v1beta1.DevicePlugin"


class DevicePlugin:
    """A context manager that offers devices of a resource; ``folder`` is the kubelet's for device plugins."""

    def __init__(self, folder: Path, uuids: Sequence[str], resource: str = "nvidia.com/gpu") -> None:
        self._folder = folder
        self._uuids = uuids
        self._resource = resource
        self._ended = threading.Event()
        self._running = ExitStack()

    def __enter__(self) -> Self:
        socket = self._folder / "stand-in.sock"
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(max_workers=8))
        nothing = _unary(b"")
        methods = {
            "GetDevicePluginOptions": nothing,
            "PreStartContainer": nothing,
            "GetPreferredAllocation": nothing,
            "Allocate": _unary(_field(1, _field(1, _field(1, VARIABLE.encode()) + _field(2, b"yes")))),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._devices, bytes, bytes),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, methods)])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._running.callback(socket.unlink, missing_ok=True)
        self._running.callback(lambda: server.stop(None).wait())
        self._running.callback(self._ended.set)
        try:
            self._register(socket.name)
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _register(self, endpoint: str) -> None:
        request = b"".join(
            _field(number, text.encode())
            for number, text in ((1, "v1beta1"), (2, endpoint), (3, self._resource))
        )
        with grpc.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register", request_serializer=bytes, response_deserializer=bytes
            )
            register(request, timeout=10)

    def _devices(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        devices = (_field(1, uuid.encode()) + _field(2, b"Healthy") for uuid in self._uuids)
        yield b"".join(_field(1, device) for device in devices)
        # The kubelet counts the devices as gone when the stream ends.
        while context.is_active() and not self._ended.wait(0.5):
            pass


def _unary(answer: bytes) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer, bytes, bytes)


def _field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes, fewer than 128."""
    assert len(content) < 128
    # Wire type 2: a length, which takes one byte here, and so many bytes.
    return bytes([number << 3 | 2, len(content)]) + content
