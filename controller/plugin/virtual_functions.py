"""Asks the kubelet plugin to turn on the virtual functions of GPUs, if the node configuration says so.

The plugin does not read the node configuration, and the controller has no rights to change hardware.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition

from google.protobuf.message import DecodeError

from controller.plugin.grpc_call import CallFailed, GrpcCall
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from proto import node_state_v1_pb2 as v1

_log = get_logger(__name__)

_METHOD = "/gpu.nvidia.com.nodestate.v1.NodeState/EnableVirtualFunctions"
# The plugin waits for a lock, for this process to close its NVML session, and for the kernel.
_ANSWER_SECONDS = 180.0

# Until plugins are tried again if none of them answered.
_NOBODY_SECONDS = 1.0


class VirtualFunctionRequests:
    """Asks for one GPU after the other, and again after a while if that failed.

    ``plugins()`` gives the sockets of the plugins that serve. ``on_failure(gpu, why)`` is called once for
    each reason, ``check_now()`` when functions were turned on.
    """

    def __init__(
        self,
        plugins: Callable[[], Sequence[Path]],
        on_failure: Callable[[PciAddress, str], None],
        check_now: Callable[[], None],
        again_seconds: float,
    ) -> None:
        self._plugins = plugins
        self._on_failure = on_failure
        self._check_now = check_now
        self._again_seconds = again_seconds
        self._changed = Condition()
        self._due: dict[PciAddress, float] = {}
        self._failures: dict[PciAddress, str] = {}
        self._call: GrpcCall | None = None
        self._stopped = False

    def set_wanted(self, gpus: frozenset[PciAddress]) -> None:
        """Take in which GPUs should get virtual functions and have none; from any thread."""
        with self._changed:
            # A GPU that was there before keeps its waiting time. Asking once too often does no harm: the
            # plugin does nothing if a virtual function of the GPU is on.
            self._due = {pci: self._due.get(pci, 0.0) for pci in gpus}
            self._failures = {pci: why for pci, why in self._failures.items() if pci in gpus}
            self._changed.notify_all()

    def run(self) -> None:
        """Ask whenever a GPU is due, until ``stop``."""
        while (pci := self._next()) is not None:
            failure = self._ask(pci)
            wait_seconds = _NOBODY_SECONDS if failure is None else self._again_seconds
            with self._changed:
                # set_wanted() may have removed the GPU during the call.
                if pci in self._due:
                    self._due[pci] = time.monotonic() + wait_seconds
                is_new = bool(failure) and self._failures.get(pci) != failure
                if failure and pci in self._due:
                    self._failures[pci] = failure
            if failure and is_new:
                self._on_failure(pci, failure)
            elif failure == "":
                _log.info("virtual functions turned on", gpu=str(pci))
                self._check_now()

    def stop(self) -> None:
        """Make ``run`` return; the plugin finishes what it has begun."""
        with self._changed:
            self._stopped = True
            if self._call is not None:
                self._call.cancel()
            self._changed.notify_all()

    def _next(self) -> PciAddress | None:
        """Wait for the next GPU that is due; None when stopped."""
        with self._changed:
            while not self._stopped:
                first = min(self._due, key=lambda pci: (self._due[pci], pci), default=None)
                wait_seconds = None if first is None else self._due[first] - time.monotonic()
                if wait_seconds is not None and wait_seconds <= 0:
                    return first
                self._changed.wait(wait_seconds)
            return None

    def _ask(self, pci: PciAddress) -> str | None:
        """Why they are not on, empty if they are; None if no plugin answered."""
        for path in self._plugins():
            try:
                return self._ask_one(path, pci)
            except CallFailed as error:
                code = error.code
                if code == "CANCELLED":
                    return None
                if code == "DEADLINE_EXCEEDED":
                    return (
                        f"the kubelet plugin did not turn them on within {_ANSWER_SECONDS:.0f} s; see its log"
                    )
                _log.info(
                    "the kubelet plugin does not turn on virtual functions", socket=str(path), code=code
                )
        return None

    def _ask_one(self, path: Path, pci: PciAddress) -> str:
        request = v1.EnableVirtualFunctionsRequest(pci_bus_id=str(pci))
        call = GrpcCall(path, _METHOD, request.SerializeToString(), _ANSWER_SECONDS)
        with self._changed:
            self._call = call
            # stop() may have come before there was a call that it could cancel.
            if self._stopped:
                call.cancel()
        try:
            return v1.EnableVirtualFunctionsResponse.FromString(b"".join(call)).failure
        except DecodeError as error:
            raise CallFailed("INTERNAL") from error
        finally:
            with self._changed:
                self._call = None
