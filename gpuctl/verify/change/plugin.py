"""Runs the driver's plugin and MPS supervisor on this machine, and calls the plugin as the kubelet does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from driver.devices.names import DRIVER_NAME
from driver.errors import DriverError
from driver.process.sockets import service_socket_name
from envtest.child_processes import RunningProcess, StartProcess
from gpuctl.doctor.inside.places import Places
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.kubelet.wire.server import is_answered
from proto import dra_v1_pb2 as pb

NODE = "verify"
_SERVICE = pb.DESCRIPTOR.services_by_name["DRAPlugin"].full_name
_PACKAGES = Path(__file__).resolve().parents[3]
_CALL_SECONDS = 45.0
"""How long the kubelet waits for a call (pkg/kubelet/cm/dra/plugin)."""
_AGAIN_SECONDS, _START_SECONDS, _END_SECONDS = 0.2, 30.0, 10.0
_LOG_LINES, _MOST_REASONS = 12, 3

Object = dict[str, Any]


class StepFailed(DriverError):
    """A step of a kind did not succeed; the message names it."""

    retryable = False


@dataclass(slots=True)
class Driver:
    """The processes of the driver, with all of their files in ``folder``, and calls of the plugin."""

    places: Places
    folder: Path
    start: StartProcess
    processes: dict[str, RunningProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("plugins", "registry", "cdi"):
            (self.folder / name).mkdir(mode=0o700)

    @property
    def cdi_dir(self) -> Path:
        """The folder of the CDI specs."""
        return self.folder / "cdi"

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder."""
        return self.folder / "plugins" / DRIVER_NAME

    def begin(self, kubeconfig: str) -> None:
        """Start both processes, and wait for them; raises StepFailed if the plugin does not serve."""
        config, hook, mps = self.folder / "kubeconfig", self.folder / "hook", self.folder / "mps"
        config.touch(0o600)
        config.write_text(kubeconfig)
        # The plugin puts it into CDI specs. There is no runtime that would run it: verify asks the plugin.
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o700)
        places = (
            *("--driver-root", self.places.driver_root, "--host-root", str(self.places.host_root)),
            *("--sysfs-root", str(self.places.sysfs_root)),
        )
        # Programs outside of containers have the node's /dev/shm. A fake node has no processes.
        proc = self.folder / "proc"
        proc.mkdir()
        seen = proc if self.places.nvml.startswith("fake:") else Path("/proc")
        self._begin(
            "kubeletplugin.sharing.mps",
            *("--mps-dir", str(mps), "--no-mounts", "--proc-root", str(seen), *places),
        )
        on_host = self.places.host_driver_root
        self._begin(
            "kubeletplugin",
            *("--node-name", NODE, "--kubeconfig", str(config), "--nvml", self.places.nvml, *places),
            *(("--host-driver-root", on_host) if on_host else ()),
            *("--plugins-dir", str(self.folder / "plugins"), "--registry-dir", str(self.folder / "registry")),
            *("--cdi-dir", str(self.cdi_dir), "--mps-dir", str(mps), "--memory-hook", str(hook)),
        )
        self._wait("kubeletplugin", self.data_dir / service_socket_name())
        # It is answered once the plugin is ready for claims, also for a claim that it never prepared.
        nothing = {"metadata": {"namespace": NODE, "name": NODE, "uid": NODE}}
        self.unprepare(nothing, _START_SECONDS)
        # Without it, shares by MPS alone fail, and their result says why.
        with suppress(StepFailed):
            self._wait("kubeletplugin.sharing.mps", mps / SOCKET)

    def prepare(self, claim: Object, seconds: float) -> tuple[str, ...]:
        """Prepare a claim, again and again as the kubelet does; returns its CDI devices.

        Raises StepFailed with the plugin's answers if that does not succeed in so many seconds.
        """
        answer = self._until(
            "prepare",
            seconds,
            lambda channel, left: _call(channel, "Prepare", pb.NodePrepareResourcesResponse)(
                pb.NodePrepareResourcesRequest(claims=[_named(claim)]), timeout=left
            ),
        )
        return tuple(one for device in answer.devices for one in device.cdi_device_ids)

    def unprepare(self, claim: Object, seconds: float) -> None:
        """Give a claim back likewise."""
        self._until(
            "unprepare",
            seconds,
            lambda channel, left: _call(channel, "Unprepare", pb.NodeUnprepareResourcesResponse)(
                pb.NodeUnprepareResourcesRequest(claims=[_named(claim)]), timeout=left
            ),
        )

    def log_tails(self) -> tuple[str, ...]:
        """The last lines of the logs of the processes, each with the name of its process."""
        return tuple(
            f"{name}: {line}"
            for name in self.processes
            for line in self._log(name).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        )

    def end(self) -> None:
        """End the processes, the plugin first."""
        for name in reversed(self.processes):
            process = self.processes[name]
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def _begin(self, module: str, *flags: str) -> None:
        # Options of the driver can be set by such variables; those of the caller are not meant for it.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DRA_")}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGES), variables.get("PYTHONPATH"))))
        with self._log(module).open("ab") as log:
            command = (sys.executable, "-P", "-m", module, *flags)
            self.processes[module] = self.start(command, variables, log.fileno())

    def _log(self, module: str) -> Path:
        return self.folder / f"{module}.log"

    def _wait(self, module: str, socket: Path) -> None:
        deadline, pause = time.monotonic() + _START_SECONDS, threading.Event()
        while not is_answered(socket):
            ended = self.processes[module].poll()
            if ended is not None or time.monotonic() > deadline:
                how = f"does not serve after {_START_SECONDS:g} s" if ended is None else f"ended with {ended}"
                raise StepFailed(f"{module} {how}", "see its log")
            pause.wait(_AGAIN_SECONDS / 4)

    def _channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{self.data_dir / service_socket_name()}")

    def _until(self, step: str, seconds: float, call: Callable[[grpc.Channel, float], Any]) -> Any:
        """The plugin's answer about the only claim of a call, without an error."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        reasons: dict[str, None] = {}
        with self._channel() as channel:
            while True:
                left = deadline - time.monotonic()
                try:
                    (answer,) = call(channel, max(_AGAIN_SECONDS, min(left, _CALL_SECONDS))).claims.values()
                    why = answer.error
                except grpc.RpcError as error:
                    answer, why = None, str(error.details())
                if not why:
                    return answer
                reasons[why] = None
                if time.monotonic() > deadline:
                    said = "; then: ".join(list(reasons)[:_MOST_REASONS])
                    raise StepFailed(f"{step} did not succeed within {seconds:g} s: {said}", "see the log")
                pause.wait(_AGAIN_SECONDS)


def _call(channel: grpc.Channel, verb: str, answer: Any) -> Any:
    return channel.unary_unary(
        f"/{_SERVICE}/Node{verb}Resources",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )


def _named(claim: Object) -> pb.Claim:
    metadata = claim["metadata"]
    return pb.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


@contextmanager
def running_driver(places: Places, folder: Path, start: StartProcess, kubeconfig: str) -> Iterator[Driver]:
    """The driver on this machine until the end of the block; raises StepFailed, OSError."""
    driver = Driver(places, folder, start)
    try:
        driver.begin(kubeconfig)
        yield driver
    finally:
        driver.end()
