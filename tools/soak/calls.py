"""The second caller of the plugin: claims that were allocated by hand, on GPUs that no pod gets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from driver.devices.names import gpu_device_name
from driver.nvml.pci_address import PciAddress
from envtest.client import paths
from envtest.client.errors import ApiRefused
from proto import dra_v1_pb2 as pb
from tools.bench.floor import SERVICE
from tools.bench.kubelet_calls import Plugin, PluginFailed, make_claim
from tools.soak.judgement import Mark, may_be_refused
from tools.soak.node import Node
from tools.soak.plan import Call
from tools.soak.pods import insist

SUFFIXES: dict[str, tuple[str, ...]] = {
    "whole": ("",),
    "admin": ("",),
    "partition": tuple(f"-mig-1g-10gb-{start}" for start in range(4)),
    "time-sliced": ("-ts-4",) * 4,
    "mps": ("-mps-4",) * 4,
}
"""What the devices of each kind of claim have behind the name of their GPU."""

CROWD = 160
_SHARE = {"shares": "1"}
_AGAIN_SECONDS, _PATIENCE_SECONDS, _GRACE_SECONDS = 1.0, 120.0, 20.0


@dataclass(slots=True)
class Caller:
    """Makes calls for one GPU, one plan step after the other; ``failures`` says which were refused and why.

    A call is repeated until it succeeds, as the kubelet does. It may be refused only while something is
    disturbed. ``clock`` gives the seconds since the run began.
    """

    node: Node
    gpu: PciAddress
    clock: Callable[[], float]
    marks: Sequence[Mark]
    failures: list[str] = field(default_factory=list)
    prepared: int = 0

    def do(self, call: Call) -> None:
        """Make claims, prepare all of them at once, prepare them again, and give them back."""
        with ThreadPoolExecutor(call.claims) as pool:
            list(pool.map(lambda suffix: self._one(call.kind, suffix), SUFFIXES[call.kind][: call.claims]))

    def crowd(self) -> None:
        """Make many calls at once for a claim that is not there: pools get all their threads."""
        claims = [pb.Claim(namespace="bench", name="none", uid=str(uuid.uuid4())) for _ in range(CROWD)]
        # One call for all claims, and one for each: the plugin has a pool for calls, and one for claims.
        sets = [claims, *([one] for one in claims)]
        with grpc.insecure_channel(f"unix:{self.node.socket}") as channel:
            prepare: grpc.UnaryUnaryMultiCallable[Any, bytes] = channel.unary_unary(
                f"/{SERVICE}/NodePrepareResources",
                request_serializer=pb.NodePrepareResourcesRequest.SerializeToString,
            )
            # While all wait for the API server, no thread is free for the next one.
            with self.node.silent_api_server():
                begun = [
                    prepare.future(pb.NodePrepareResourcesRequest(claims=one), timeout=60) for one in sets
                ]
                self._wait_for_threads()
            for call in begun:
                call.result()

    def _wait_for_threads(self) -> None:
        """Wait until the plugin makes no more threads."""
        folder = Path(f"/proc/{self.node.processes()['kubeletplugin'].host_pid}/task")
        known = 0
        while (now := len(list(folder.iterdir()))) > known:
            known = now
            time.sleep(_AGAIN_SECONDS)

    def _one(self, kind: str, suffix: str) -> None:
        claim = self._make(kind, suffix)
        for _ in range(2):
            self._until_done(claim, lambda plugin: plugin.prepare(claim))
        self.prepared += 1
        self._until_done(claim, lambda plugin: plugin.unprepare(claim))
        self._delete(claim.name)

    def _make(self, kind: str, suffix: str) -> pb.Claim:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            name = f"{kind}-{uuid.uuid4().hex[:8]}"
            try:
                return make_claim(
                    self.node.cluster,
                    name,
                    self.node.driver.node.name,
                    gpu_device_name(self.gpu) + suffix,
                    admin=kind == "admin",
                    consumed=_SHARE if kind in ("time-sliced", "mps") else None,
                )
            except ApiRefused:
                if time.monotonic() > until:
                    raise
                # The API server may have ended between the claim and its allocation.
                self._delete(name)
                time.sleep(_AGAIN_SECONDS)

    def _delete(self, name: str) -> None:
        insist(lambda: self.node.cluster.api.delete(paths.resource_claim(name, "bench")))

    def _until_done(self, claim: pb.Claim, call: Callable[[Plugin], float]) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                plugin = Plugin(self.node.socket)
                try:
                    call(plugin)
                    return
                finally:
                    plugin.close()
            except (PluginFailed, grpc.RpcError, grpc.FutureTimeoutError) as error:
                if not may_be_refused(self.marks, str(self.gpu), self.clock(), _GRACE_SECONDS):
                    self.failures.append(f"claim {claim.name} was refused: {error}")
                if time.monotonic() > until:
                    self.failures.append(
                        f"claim {claim.name} is refused for {_PATIENCE_SECONDS:g} s: {error}"
                    )
                    return
            time.sleep(_AGAIN_SECONDS)
