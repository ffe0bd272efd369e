"""Calls this process's own gRPC server by its socket, as any client would."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

HEALTH_CHECK = "/grpc.health.v1.Health/Check"
MPS_WATCH = "/gpu.nvidia.com.mps.v1.Mps/Watch"
"""Methods that take an empty message and answer at once, by a worker of the pool that all calls share."""

ANSWER_SECONDS = 2.0
SILENT_SECONDS = 90.0
"""A server that is silent for this long hangs. Shorter silences are normal: calls that wait for a sick GPU
may take every worker until they end, within the kubelet's 45 s."""

_OPTIONS = (
    # A new connection for each check: gRPC would otherwise share one among channels to the same address.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class SelfCheck:
    """Whether the server at a socket of this process answers."""

    def __init__(self, socket: Path, method: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Call ``method`` at ``socket``; the silence is counted from now."""
        self._socket = socket
        self._method = method
        self._clock = clock
        self._answered_at = clock()

    def why_not(self) -> str:
        """Call the server; returns why it counts as hanging, empty unless it was silent for too long."""
        if self._is_answered():
            self._answered_at = self._clock()
            return ""
        silent_seconds = self._clock() - self._answered_at
        if silent_seconds <= SILENT_SECONDS:
            return ""
        return f"no answer at {self._socket} for {silent_seconds:.0f} s"

    def _is_answered(self) -> bool:
        with grpc.insecure_channel(f"unix:{self._socket}", options=_OPTIONS) as channel:
            # On the wire, a method with one answer is called in the same way as one with a stream of them.
            ask: grpc.UnaryStreamMultiCallable[bytes, Any] = channel.unary_stream(self._method)
            call = ask(b"", timeout=ANSWER_SECONDS)
            try:
                next(call)
            except grpc.RpcError as error:
                # Any other error is an answer of the server.
                return error.code() not in _UNANSWERED
            finally:
                call.cancel()
        return True
