"""Ends this process's NVML session while a kubelet plugin asks for it, says so, and goes on when it may.

A GPU cannot be taken from the NVIDIA driver while any process has it open. The session stays closed
until no plugin asks any more. A plugin whose stream ends asks for nothing, and one that asks for longer than
a change of the kernel driver can take is ignored.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Condition

import grpc

from driver.errors import NvmlError
from driver.hardware.inventory import Discovery
from driver.process.log import get_logger
from proto import node_state_v1_pb2 as v1

_log = get_logger(__name__)

_HAS_LET_GO = "/gpu.nvidia.com.nodestate.v1.NodeState/HasLetGo"
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 1.0
LONGEST_SECONDS = 300.0
"""A plugin is done sooner, or it is ill."""


class DriverRelease:
    """Follows what the plugins ask for. ``name`` tells this process from other controllers of the node."""

    def __init__(
        self, discovery: Discovery, look_again: Callable[[], None], longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        """``look_again()`` is called when GPUs may be asked again: they may be others."""
        self.name = uuid.uuid4().hex
        self._discovery = discovery
        self._look_again = look_again
        self._longest_seconds = longest_seconds
        self._changed = Condition()
        self._asked: dict[Path, int] = {}
        self._ignored: dict[Path, int] = {}
        self._stopped = False

    def asks(self, path: Path, number: int) -> None:
        """Take in what the plugin at this socket asks for, 0 for nothing; from any thread."""
        with self._changed:
            if number:
                self._asked[path] = number
            else:
                self._asked.pop(path, None)
                self._ignored.pop(path, None)
            self._changed.notify_all()

    def run(self) -> None:
        """Let go whenever a plugin asks, until ``stop``."""
        while self._wait_for_a_plugin():
            try:
                with self._discovery.let_go():
                    _log.info("NVML let go of for the kubelet plugin")
                    self._stay_away()
            except NvmlError as error:
                _log.warning("NVML cannot be let go of", error=str(error))
                with self._changed:
                    asked = self._open_requests()
                for path, number in asked.items():
                    self._answer(path, number, str(error))
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, _AGAIN_SECONDS)
            self._look_again()

    def stop(self) -> None:
        """Make ``run`` return; the process ends, so that nothing more is asked of NVML."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait_for_a_plugin(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._open_requests())
            return not self._stopped

    def _open_requests(self) -> dict[Path, int]:
        """The plugins that ask, but for those that have asked too long for the same."""
        return {path: number for path, number in self._asked.items() if self._ignored.get(path) != number}

    def _stay_away(self) -> None:
        """Answer the plugins that ask, until none does."""
        answered: dict[Path, int] = {}
        end = time.monotonic() + self._longest_seconds
        while True:
            with self._changed:
                asked = self._open_requests()
                if not asked or self._stopped:
                    return
                if time.monotonic() > end:
                    _log.warning("a kubelet plugin has asked too long to let go of NVML")
                    self._ignored.update(asked)
                    return
            for path, number in asked.items():
                if answered.get(path) != number and self._answer(path, number, ""):
                    answered[path] = number
            all_know = all(answered.get(path) == number for path, number in asked.items())
            self._wait_for_others(asked, end - time.monotonic() if all_know else _AGAIN_SECONDS)

    def _wait_for_others(self, asked: dict[Path, int], seconds: float) -> None:
        """Wait until something else is asked for."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._open_requests() != asked, max(seconds, 0.0))

    def _answer(self, path: Path, number: int, failure: str) -> bool:
        """Answer the plugin at this socket; whether the answer arrived."""
        request = v1.HasLetGoRequest(controller=self.name, let_go=number, failure=failure)
        try:
            with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
                call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_HAS_LET_GO)
                call(request.SerializeToString(), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            _log.warning("kubelet plugin not told", socket=str(path), code=error.code().name)
            return False
        return True
