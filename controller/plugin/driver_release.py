"""Closes this process's NVML session while a kubelet plugin requests it, and reports that to the plugin.

A GPU cannot be unbound from the NVIDIA driver while any process has it open, and an NVML session keeps GPUs
open.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Condition

from controller.plugin.grpc_call import CallFailed, GrpcCall
from driver.errors import NvmlError
from driver.hardware.inventory import Discovery
from driver.process.log import get_logger
from proto import node_state_v1_pb2 as v1

_log = get_logger(__name__)

_HAS_LET_GO = "/gpu.nvidia.com.nodestate.v1.NodeState/HasLetGo"
_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 1.0
# Longer than a change of the kernel driver takes. A plugin that wants more is broken, and without NVML the
# node is not monitored.
LONGEST_SECONDS = 300.0


class DriverRelease:
    """Follows the plugins' requests. ``name`` tells this process from other controllers of the node."""

    def __init__(
        self, discovery: Discovery, check_now: Callable[[], None], longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        """``check_now()`` is called when NVML can be used again; the GPUs may be others than before."""
        self.name = uuid.uuid4().hex
        self._discovery = discovery
        self._check_now = check_now
        self._longest_seconds = longest_seconds
        self._changed = Condition()
        self._requests: dict[Path, int] = {}
        self._ignored: dict[Path, int] = {}
        self._stopped = False

    def request(self, path: Path, number: int) -> None:
        """Take in the number of the request of the plugin at this socket, 0 for none; from any thread."""
        with self._changed:
            if number:
                self._requests[path] = number
            else:
                self._requests.pop(path, None)
                self._ignored.pop(path, None)
            self._changed.notify_all()

    def run(self) -> None:
        """Close the session whenever a plugin requests it, until ``stop``."""
        while self._wait_for_a_plugin():
            try:
                with self._discovery.let_go():
                    _log.info("closed NVML for the kubelet plugin")
                    self._stay_released()
            except NvmlError as error:
                _log.warning("cannot close NVML", error=str(error))
                # A call that hangs keeps the session open. The plugin has to know, or it would wait in vain.
                with self._changed:
                    requests = self._open_requests()
                for path, number in requests.items():
                    self._answer(path, number, str(error))
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, _AGAIN_SECONDS)
            self._check_now()

    def stop(self) -> None:
        """Make ``run`` return; the process ends, so NVML is not used any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait_for_a_plugin(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._open_requests())
            return not self._stopped

    def _open_requests(self) -> dict[Path, int]:
        """The plugins with a request, except those whose request is open for too long."""
        return {path: number for path, number in self._requests.items() if self._ignored.get(path) != number}

    def _stay_released(self) -> None:
        """Answer the plugins' requests until there are none any more."""
        answered: dict[Path, int] = {}
        end = time.monotonic() + self._longest_seconds
        while True:
            with self._changed:
                requests = self._open_requests()
                if not requests or self._stopped:
                    return
                if time.monotonic() > end:
                    _log.warning("a kubelet plugin has kept NVML closed for too long")
                    self._ignored.update(requests)
                    return
            for path, number in requests.items():
                if answered.get(path) != number and self._answer(path, number, ""):
                    answered[path] = number
            # An answer that did not arrive is sent again.
            all_know = all(answered.get(path) == number for path, number in requests.items())
            self._wait_for_others(requests, end - time.monotonic() if all_know else _AGAIN_SECONDS)

    def _wait_for_others(self, requests: dict[Path, int], seconds: float) -> None:
        """Wait until the requests change."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or self._open_requests() != requests, max(seconds, 0.0)
            )

    def _answer(self, path: Path, number: int, failure: str) -> bool:
        """Answer the plugin at this socket; returns whether the answer arrived."""
        request = v1.HasLetGoRequest(controller=self.name, let_go=number, failure=failure)
        try:
            list(GrpcCall(path, _HAS_LET_GO, request.SerializeToString(), _ANSWER_SECONDS))
        except CallFailed as error:
            _log.warning("cannot tell the kubelet plugin", socket=str(path), code=error.code)
            return False
        return True
