"""The other ends of the plugin's sockets for tests: a kubelet that calls, and claims that hold state."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from kubeletplugin.kubelet.plugin_sockets import PluginSockets, open_sockets
from kubeletplugin.kubelet.wire.claim_call import Call
from proto import dra_v1_pb2 as v1
from proto import grpc_health_v1_pb2 as grpc_health
from proto import registration_v1_pb2 as registration
from tests.clusters import Metrics, Service
from tests.eventually import WAIT_SECONDS
from tests.plugin import ClaimRef, HealthBoard, NodeStateBoard, PreparedDevice

DRA_V1 = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
GRPC_HEALTH = "/grpc.health.v1.Health"

Answer = TypeVar("Answer", bound=Message)


class FakeClaims:
    """Claims that keep what is prepared, by UID; ``failures`` makes claims fail by name.

    ``before`` is run in each call, so that a test can hold it up.
    """

    def __init__(self) -> None:
        self.prepared: dict[str, tuple[PreparedDevice, ...]] = {}
        self.failures: dict[str, Exception] = {}
        self.devices: tuple[PreparedDevice, ...] = (
            PreparedDevice(("gpu",), "node/gpu", "gpu-0", ("k8s.gpu.nvidia.com/claim=x",), "share"),
        )
        self.before: Callable[[ClaimRef, Call], None] = lambda _claim, _call: None

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        self.before(claim, call)
        if claim.name in self.failures:
            raise self.failures[claim.name]
        return self.prepared.setdefault(claim.uid, self.devices)

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        self.before(claim, call)
        if claim.name in self.failures:
            raise self.failures[claim.name]
        self.prepared.pop(claim.uid, None)


class FakeKubelet:
    """A kubelet's connection to one socket."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._channel.close()

    def call(
        self, method: str, request: Message, answer: type[Answer], within_seconds: float = WAIT_SECONDS
    ) -> Answer:
        """One call and its answer; raises grpc.RpcError."""
        ask = self._channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        done: Answer = ask(request, timeout=within_seconds)
        return done

    @contextmanager
    def stream(self, method: str, request: Message, answer: type[Answer]) -> Iterator[Iterator[Answer]]:
        """The answers of a stream, which is cancelled at the end of the block."""
        ask = self._channel.unary_stream(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        answers = ask(request, timeout=WAIT_SECONDS)
        try:
            yield answers
        finally:
            answers.cancel()

    def prepare(self, *names: str) -> dict[str, v1.NodePrepareResourceResponse]:
        """Prepare claims of these names in v1, their UIDs being ``uid-<name>``."""
        request = v1.NodePrepareResourcesRequest(claims=[claim_of(name) for name in names])
        return dict(
            self.call(f"{DRA_V1}/NodePrepareResources", request, v1.NodePrepareResourcesResponse).claims
        )

    def unprepare(self, *names: str) -> dict[str, str]:
        """Unprepare claims in v1; the error by UID."""
        request = v1.NodeUnprepareResourcesRequest(claims=[claim_of(name) for name in names])
        answer = self.call(f"{DRA_V1}/NodeUnprepareResources", request, v1.NodeUnprepareResourcesResponse)
        return {uid: entry.error for uid, entry in answer.claims.items()}

    def serving(self, service: str = "") -> str:
        """The status of the gRPC health protocol, by name."""
        request = grpc_health.HealthCheckRequest(service=service)
        answer = self.call(f"{GRPC_HEALTH}/Check", request, grpc_health.HealthCheckResponse)
        return grpc_health.HealthCheckResponse.ServingStatus.Name(answer.status)


def claim_of(name: str) -> v1.Claim:
    return v1.Claim(namespace="team", name=name, uid=f"uid-{name}")


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    usual = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="gpu-dra-", dir=usual if len(usual) < 12 else "/tmp") as folder:
        yield Path(folder)


@dataclass(slots=True)
class Plugin:
    """The plugin's sockets over fake claims, and how to reach them."""

    folder: Path
    service: Service
    sockets: PluginSockets
    claims: FakeClaims
    board: HealthBoard
    metrics: Metrics

    @property
    def service_socket(self) -> Path:
        return self.folder / "plugin" / "dra.sock"

    @property
    def registration_socket(self) -> Path:
        return self.folder / "registry" / "gpu.nvidia.com-reg.sock"

    def register(self) -> None:
        """Do what a kubelet does when it took the plugin."""
        with FakeKubelet(self.registration_socket) as kubelet:
            kubelet.call(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                registration.RegistrationStatus(plugin_registered=True),
                registration.RegistrationStatusResponse,
            )


@contextmanager
def running_plugin() -> Iterator[Plugin]:
    """The plugin's sockets, served until the end of the block."""
    with short_folder() as folder:
        service, claims, board, metrics = Service(), FakeClaims(), HealthBoard(), Metrics()
        try:
            sockets = open_sockets(
                service,
                driver="gpu.nvidia.com",
                service_socket=folder / "plugin" / "dra.sock",
                registration_socket=folder / "registry" / "gpu.nvidia.com-reg.sock",
                claims=claims,
                board=board,
                state=NodeStateBoard(),
                metrics=metrics,
            )
            yield Plugin(folder, service, sockets, claims, board, metrics)
        finally:
            service.stop()
