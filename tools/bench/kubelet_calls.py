"""Calls a plugin as the kubelet does, and takes the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from proto import dra_v1_pb2 as pb
from tools.bench.floor import SERVICE


class PluginFailed(Exception):
    """A claim was answered with an error."""


class Plugin:
    """One connection to a plugin's socket; times are in milliseconds."""

    def __init__(self, socket: Path) -> None:
        """Connect; waits until the socket answers."""
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        grpc.channel_ready_future(self._channel).result(timeout=30)
        self._prepare = self._channel.unary_unary(
            f"/{SERVICE}/NodePrepareResources",
            request_serializer=pb.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=pb.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare = self._channel.unary_unary(
            f"/{SERVICE}/NodeUnprepareResources",
            request_serializer=pb.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=pb.NodeUnprepareResourcesResponse.FromString,
        )

    def close(self) -> None:
        """Disconnect."""
        self._channel.close()

    def prepare(self, claim: pb.Claim) -> float:
        """Prepare one claim in a call of its own."""
        return self._timed(lambda: self._prepare(pb.NodePrepareResourcesRequest(claims=[claim]), timeout=45))

    def unprepare(self, claim: pb.Claim) -> float:
        """Unprepare one claim in a call of its own."""
        return self._timed(
            lambda: self._unprepare(pb.NodeUnprepareResourcesRequest(claims=[claim]), timeout=45)
        )

    def at_once(self, work: Callable[[pb.Claim], float], claims: Sequence[pb.Claim]) -> float:
        """Do the work for all claims, each in a call of its own, all started together; the whole time."""
        with ThreadPoolExecutor(len(claims)) as pool:
            started = time.perf_counter()
            for future in [pool.submit(work, claim) for claim in claims]:
                future.result()
            return (time.perf_counter() - started) * 1000

    def _timed(self, call: Callable[[], Any]) -> float:
        started = time.perf_counter()
        answer = call()
        milliseconds = (time.perf_counter() - started) * 1000
        for uid, entry in answer.claims.items():
            if entry.error:
                raise PluginFailed(f"claim {uid}: {entry.error}")
        return milliseconds
